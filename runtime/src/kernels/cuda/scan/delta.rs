//! The gated delta rule (gpu/kernels/scan_delta.py).
//! In: q, k [b, t, h, d], v [b, t, h, e], beta and g [b, t, h]. Out: y and S [b, h, d, e]; or the gradients. Workspaces
//! have NT = ⌈t / CHUNK⌉ chunks, in the dtype of q.

use gpu::{Constant, Launcher, Library};
use tch::{Kind, Tensor};

use super::{Result, Scanned, constant, dense, dtype, empty, launch, nothing, pointer};
use crate::kernels::scan::{exactly, four, scale as factor};

const KERNELS: [&str; 7] = [
    "delta_inverse",
    "delta_states",
    "delta_output",
    "delta_state_gradients",
    "delta_pair_gradients",
    "delta_gate_gradients",
    "delta_key_gradients",
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
    beta: Tensor,
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

/// What both passes compute first.
struct Solved {
    scores: Tensor,
    inverse: Tensor,
    faded: Tensor,
    states: Tensor,
    written: Tensor,
    last: Tensor,
}

impl Operands {
    fn of(launcher: &Launcher, operands: &[&Tensor], scale: Option<f64>) -> Result<Self> {
        let [q, k, v, beta, g] = exactly(operands)?;
        let kind = v.kind();
        let [batch, time, heads, d] = four("q", q)?;
        let [_, _, _, e] = four("v", v)?;
        let constants = [("dtype", dtype(kind)?), ("K", Constant::Int(d))];
        let chunk = constant(launcher.library(), "delta_inverse", &constants, "CHUNK")?;
        Ok(Self {
            q: dense(q, kind)?,
            k: dense(k, kind)?,
            v: dense(v, kind)?,
            beta: dense(beta, Kind::Float)?,
            g: dense(g, Kind::Float)?,
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

    fn like_keys(&self) -> Result<Tensor> {
        self.narrow(&[self.batch, self.time, self.heads, self.d])
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

    fn solve(&self, launcher: &Launcher, start: Option<&Tensor>) -> Result<Solved> {
        let Self { q, k, v, beta, g, constants, d, e, .. } = self;
        let (scores, inverse) = (self.pairs()?, self.pairs()?);
        launch(
            launcher,
            "delta_inverse",
            constants,
            &[
                ("q", pointer(q)?),
                ("k", pointer(k)?),
                ("beta", pointer(beta)?),
                ("g", pointer(g)?),
                ("scores", pointer(&scores)?),
                ("inverse", pointer(&inverse)?),
            ],
            &self.sizes(),
            &[self.scale()],
        )?;
        let (faded, fresh) = (self.like_keys()?, self.like_values()?);
        let [by_dtype, _] = constants;
        for (x, out, width, fades) in [(k, &faded, d, 1), (v, &fresh, e, 0)] {
            let [b, t, h] = self.sizes();
            launch(
                launcher,
                "delta_rows",
                std::slice::from_ref(by_dtype),
                &[
                    ("x", pointer(x)?),
                    ("beta", pointer(beta)?),
                    ("g", pointer(g)?),
                    ("inverse", pointer(&inverse)?),
                    ("out", pointer(out)?),
                ],
                &[b, t, h, ("W", *width), ("fades", fades)],
                &[],
            )?;
        }
        let start = start.map(|start| dense(start, Kind::Float)).transpose()?;
        let (states, written) = (self.by_chunk()?, self.like_values()?);
        let last = self.wide(&[self.batch, self.heads, *d, *e])?;
        let [b, t, h, v] = self.with_width();
        launch(
            launcher,
            "delta_states",
            constants,
            &[
                ("k", pointer(k)?),
                ("g", pointer(g)?),
                ("faded", pointer(&faded)?),
                ("fresh", pointer(&fresh)?),
                ("start", start.as_ref().map_or_else(|| nothing(Kind::Float), pointer)?),
                ("states", pointer(&states)?),
                ("written", pointer(&written)?),
                ("last", pointer(&last)?),
            ],
            &[b, t, h, v, ("has_start", start.is_some().into())],
            &[],
        )?;
        Ok(Solved { scores, inverse, faded, states, written, last })
    }
}

pub(super) fn forward(
    launcher: &Launcher,
    operands: &[&Tensor],
    state: Option<&Tensor>,
    scale: Option<f64>,
) -> Result<Scanned> {
    let of = Operands::of(launcher, operands, scale)?;
    let Solved { scores, states, written, last, inverse: _, faded: _ } =
        of.solve(launcher, state)?;
    let y = of.like_values()?;
    launch(
        launcher,
        "delta_output",
        &of.constants,
        &[
            ("q", pointer(&of.q)?),
            ("g", pointer(&of.g)?),
            ("scores", pointer(&scores)?),
            ("written", pointer(&written)?),
            ("states", pointer(&states)?),
            ("y", pointer(&y)?),
        ],
        &of.with_width(),
        &[of.scale()],
    )?;
    Ok(Scanned { y, state: last })
}

/// dq, dk, dv, dbeta, dg.
pub(super) fn backward(
    launcher: &Launcher,
    dy: &Tensor,
    operands: &[&Tensor],
    scale: Option<f64>,
) -> Result<Vec<Tensor>> {
    let of = Operands::of(launcher, operands, scale)?;
    let dy = dense(dy, of.q.kind())?;
    let Solved { scores, inverse, faded, states, written, last: _ } = of.solve(launcher, None)?;
    let Operands { q, k, v, beta, g, .. } = &of;
    let (gradients, dwritten) = (of.by_chunk()?, of.like_values()?);
    launch(
        launcher,
        "delta_state_gradients",
        &of.constants,
        &[
            ("dy", pointer(&dy)?),
            ("q", pointer(q)?),
            ("k", pointer(k)?),
            ("g", pointer(g)?),
            ("scores", pointer(&scores)?),
            ("faded", pointer(&faded)?),
            ("gradients", pointer(&gradients)?),
            ("dwritten", pointer(&dwritten)?),
        ],
        &of.with_width(),
        &[of.scale()],
    )?;
    let dsolved = of.like_values()?;
    let [by_dtype, _] = &of.constants;
    launch(
        launcher,
        "delta_rows_back",
        std::slice::from_ref(by_dtype),
        &[
            ("dwritten", pointer(&dwritten)?),
            ("inverse", pointer(&inverse)?),
            ("dsolved", pointer(&dsolved)?),
        ],
        &of.with_width(),
        &[],
    )?;
    let (pull, push) = (of.pairs()?, of.pairs()?);
    let rows = of.wide(&[2, of.batch, of.heads, of.chunks, of.chunk])?;
    launch(
        launcher,
        "delta_pair_gradients",
        &of.constants,
        &[
            ("dy", pointer(&dy)?),
            ("k", pointer(k)?),
            ("v", pointer(v)?),
            ("beta", pointer(beta)?),
            ("g", pointer(g)?),
            ("scores", pointer(&scores)?),
            ("written", pointer(&written)?),
            ("dsolved", pointer(&dsolved)?),
            ("pull", pointer(&pull)?),
            ("push", pointer(&push)?),
            ("rows", pointer(&rows)?),
        ],
        &of.with_width(),
        &[of.scale()],
    )?;
    let dv = of.like_values()?;
    let [dbeta, dg] = [(); 2].map(|()| of.wide(&[of.batch, of.time, of.heads]));
    let (dbeta, dg) = (dbeta?, dg?);
    launch(
        launcher,
        "delta_gate_gradients",
        &of.constants,
        &[
            ("dy", pointer(&dy)?),
            ("q", pointer(q)?),
            ("k", pointer(k)?),
            ("beta", pointer(beta)?),
            ("g", pointer(g)?),
            ("written", pointer(&written)?),
            ("dsolved", pointer(&dsolved)?),
            ("states", pointer(&states)?),
            ("gradients", pointer(&gradients)?),
            ("rows", pointer(&rows)?),
            ("dv", pointer(&dv)?),
            ("dbeta", pointer(&dbeta)?),
            ("dg", pointer(&dg)?),
        ],
        &of.with_width(),
        &[of.scale()],
    )?;
    let (dq, dk) = (of.like_keys()?, of.like_keys()?);
    launch(
        launcher,
        "delta_key_gradients",
        &of.constants,
        &[
            ("dy", pointer(&dy)?),
            ("q", pointer(q)?),
            ("k", pointer(k)?),
            ("beta", pointer(beta)?),
            ("g", pointer(g)?),
            ("written", pointer(&written)?),
            ("dv", pointer(&dv)?),
            ("states", pointer(&states)?),
            ("gradients", pointer(&gradients)?),
            ("pull", pointer(&pull)?),
            ("push", pointer(&push)?),
            ("dq", pointer(&dq)?),
            ("dk", pointer(&dk)?),
        ],
        &of.with_width(),
        &[of.scale()],
    )?;
    Ok(vec![dq, dk, dv, dbeta, dg])
}
