//! Gated linear attention (gpu/kernels/scan_gla.py).
//! In: q, k, g [b, t, h, d], v [b, t, h, e]; gates per head are spread over channels. Out: y and S [b, h, d, e]; or the gradients. Workspaces have NT =
//! ⌈t / CHUNK⌉ chunks, in the dtype of q.

use gpu::{Constant, Launcher, Library};
use tch::{Kind, Tensor};

use super::{Result, Scanned, constant, dense, dtype, empty, launch, nothing, pointer};
use crate::kernels::scan::gla::{channel_gates, like_gates};
use crate::kernels::scan::{exactly, four, scale as factor};

const KERNELS: [&str; 7] = [
    "gla_scores",
    "gla_states",
    "gla_output",
    "gla_state_gradients",
    "gla_value_gradients",
    "gla_near_gradients",
    "gla_key_gradients",
];

/// Whether states of d × e were compiled.
pub(super) fn is_compiled(library: &Library, kind: Kind, d: i64, e: i64) -> bool {
    let Ok(dtype) = dtype(kind) else { return false };
    let constants = [("dtype", dtype), ("K", Constant::Int(d))];
    KERNELS.iter().all(|name| {
        library.compiled(name, &constants).any(|(_, kernel)| {
            match kernel.constants.get("BLOCK_V") {
                Some(Constant::Int(block)) => *block > 0 && e % block == 0,
                Some(Constant::Text(_)) => false,
                None => true, // it reads no values
            }
        })
    })
}

/// The operands as the kernels take them, with their sizes.
struct Operands {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    constants: [(&'static str, Constant); 2],
    batch: i64,
    time: i64,
    heads: i64,
    d: i64,
    e: i64,
    chunk: i64,
    chunks: i64,
    scale: f64,
}

impl Operands {
    fn of(launcher: &Launcher, operands: &[&Tensor], scale: Option<f64>) -> Result<Self> {
        let [q, k, v, g] = exactly(operands)?;
        let g = &channel_gates(q, g)?;
        let kind = v.kind();
        let [batch, time, heads, d] = four("q", q)?;
        let [_, _, _, e] = four("v", v)?;
        let constants = [("dtype", dtype(kind)?), ("K", Constant::Int(d))];
        let chunk = constant(launcher.library(), "gla_scores", &constants, "CHUNK")?;
        Ok(Self {
            q: dense(q, kind)?,
            k: dense(k, kind)?,
            v: dense(v, kind)?,
            g: dense(g, kind)?,
            constants,
            batch,
            time,
            heads,
            d,
            e,
            chunk,
            chunks: (time + chunk - 1) / chunk,
            scale: factor(scale, d),
        })
    }

    /// Of the dtype of q.
    fn narrow(&self, size: &[i64]) -> Result<Tensor> {
        empty(size, self.q.kind(), &self.q)
    }

    fn wide(&self, size: &[i64]) -> Result<Tensor> {
        empty(size, Kind::Float, &self.q)
    }

    /// A number for each pair of rows of a chunk, [b, h, chunks, chunk, chunk].
    fn pairs(&self) -> Result<Tensor> {
        let Self { batch, heads, chunk, chunks, .. } = self;
        self.narrow(&[*batch, *heads, *chunks, *chunk, *chunk])
    }

    fn key_sizes(&self) -> [i64; 4] {
        [self.batch, self.time, self.heads, self.d]
    }

    fn like_values(&self) -> Result<Tensor> {
        self.narrow(&[self.batch, self.time, self.heads, self.e])
    }

    /// States before or gradients after each chunk, [b, h, chunks, d, e].
    fn by_chunk(&self) -> Result<Tensor> {
        self.narrow(&[self.batch, self.heads, self.chunks, self.d, self.e])
    }

    fn scale(&self) -> (&'static str, f64) {
        ("scale", self.scale)
    }

    fn sizes(&self) -> [(&'static str, i64); 3] {
        [("B", self.batch), ("T", self.time), ("H", self.heads)]
    }

    fn with_width(&self) -> [(&'static str, i64); 4] {
        let [b, t, h] = self.sizes();
        [b, t, h, ("V", self.e)]
    }

    /// q kᵀ with decays, of each chunk.
    fn scores(&self, launcher: &Launcher) -> Result<Tensor> {
        let scores = self.pairs()?;
        launch(
            launcher,
            "gla_scores",
            &self.constants,
            &[
                ("q", pointer(&self.q)?),
                ("k", pointer(&self.k)?),
                ("g", pointer(&self.g)?),
                ("scores", pointer(&scores)?),
            ],
            &self.sizes(),
            &[self.scale()],
        )?;
        Ok(scores)
    }

    /// The state before each chunk, and after the last.
    fn states(&self, launcher: &Launcher, start: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        let start = start.map(|start| dense(start, Kind::Float)).transpose()?;
        let states = self.by_chunk()?;
        let last = self.wide(&[self.batch, self.heads, self.d, self.e])?;
        let [b, t, h, v] = self.with_width();
        launch(
            launcher,
            "gla_states",
            &self.constants,
            &[
                ("k", pointer(&self.k)?),
                ("v", pointer(&self.v)?),
                ("g", pointer(&self.g)?),
                ("start", start.as_ref().map_or_else(|| nothing(Kind::Float), pointer)?),
                ("states", pointer(&states)?),
                ("last", pointer(&last)?),
            ],
            &[b, t, h, v, ("has_start", start.is_some().into())],
            &[],
        )?;
        Ok((states, last))
    }
}

pub(super) fn forward(
    launcher: &Launcher,
    operands: &[&Tensor],
    state: Option<&Tensor>,
    scale: Option<f64>,
) -> Result<Scanned> {
    let of = Operands::of(launcher, operands, scale)?;
    let scores = of.scores(launcher)?;
    let (states, last) = of.states(launcher, state)?;
    let y = of.like_values()?;
    launch(
        launcher,
        "gla_output",
        &of.constants,
        &[
            ("q", pointer(&of.q)?),
            ("v", pointer(&of.v)?),
            ("g", pointer(&of.g)?),
            ("scores", pointer(&scores)?),
            ("states", pointer(&states)?),
            ("y", pointer(&y)?),
        ],
        &of.with_width(),
        &[of.scale()],
    )?;
    Ok(Scanned { y, state: last })
}

/// dq, dk, dv, dg.
pub(super) fn backward(
    launcher: &Launcher,
    dy: &Tensor,
    operands: &[&Tensor],
    scale: Option<f64>,
) -> Result<Vec<Tensor>> {
    let of = Operands::of(launcher, operands, scale)?;
    let dy = dense(dy, of.q.kind())?;
    let scores = of.scores(launcher)?;
    let (states, _) = of.states(launcher, None)?;
    let Operands { q, k, v, g, .. } = &of;
    let gradients = of.by_chunk()?;
    launch(
        launcher,
        "gla_state_gradients",
        &of.constants,
        &[
            ("dy", pointer(&dy)?),
            ("q", pointer(q)?),
            ("g", pointer(g)?),
            ("gradients", pointer(&gradients)?),
        ],
        &of.with_width(),
        &[of.scale()],
    )?;
    let dscores = of.pairs()?;
    let [by_dtype, _] = &of.constants;
    launch(
        launcher,
        "gla_score_gradients",
        std::slice::from_ref(by_dtype),
        &[("dy", pointer(&dy)?), ("v", pointer(v)?), ("dscores", pointer(&dscores)?)],
        &of.with_width(),
        &[of.scale()],
    )?;
    let dv = of.like_values()?;
    launch(
        launcher,
        "gla_value_gradients",
        &of.constants,
        &[
            ("dy", pointer(&dy)?),
            ("k", pointer(k)?),
            ("g", pointer(g)?),
            ("scores", pointer(&scores)?),
            ("gradients", pointer(&gradients)?),
            ("dv", pointer(&dv)?),
        ],
        &of.with_width(),
        &[],
    )?;
    let [near_q, near_k] = [(); 2].map(|()| of.wide(&of.key_sizes()));
    let (near_q, near_k) = (near_q?, near_k?);
    launch(
        launcher,
        "gla_near_gradients",
        &of.constants,
        &[
            ("q", pointer(q)?),
            ("k", pointer(k)?),
            ("g", pointer(g)?),
            ("dscores", pointer(&dscores)?),
            ("near_q", pointer(&near_q)?),
            ("near_k", pointer(&near_k)?),
        ],
        &of.sizes(),
        &[],
    )?;
    let [dq, dk, dg] = [(); 3].map(|()| of.narrow(&of.key_sizes()));
    let (dq, dk, dg) = (dq?, dk?, dg?);
    launch(
        launcher,
        "gla_key_gradients",
        &of.constants,
        &[
            ("dy", pointer(&dy)?),
            ("q", pointer(q)?),
            ("k", pointer(k)?),
            ("v", pointer(v)?),
            ("g", pointer(g)?),
            ("states", pointer(&states)?),
            ("gradients", pointer(&gradients)?),
            ("near_q", pointer(&near_q)?),
            ("near_k", pointer(&near_k)?),
            ("dq", pointer(&dq)?),
            ("dk", pointer(&dk)?),
            ("dg", pointer(&dg)?),
        ],
        &of.with_width(),
        &[of.scale()],
    )?;
    let [_, _, _, given] = exactly(operands)?;
    Ok(vec![dq, dk, dv, like_gates(&dg, given)?])
}
