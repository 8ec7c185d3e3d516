//! Mamba2's recurrence (gpu/kernels/scan_ssd.py).
//! In: x [b, t, h, p], dt [b, t, h], a and d \[h\], b and c [b, t, groups, n]. Out: y and S [b, h, p, n]; or the
//! gradients. Workspaces have NT = ⌈t / CHUNK⌉ chunks.

use gpu::{Constant, Launcher, Library};
use tch::{Kind, Tensor};

use super::{Result, Scanned, constant, dense, dtype, empty, nothing, pointer};
use crate::kernels::scan::{exactly, four};

const KERNELS: [&str; 7] = [
    "ssd_scores",
    "ssd_states",
    "ssd_output",
    "ssd_state_gradients",
    "ssd_value_gradients",
    "ssd_gate_gradients",
    "ssd_group_gradients",
];

/// Whether heads of p channels with n columns of state were compiled.
pub(super) fn is_compiled(library: &Library, kind: Kind, p: i64, n: i64) -> bool {
    let Ok(dtype) = dtype(kind) else { return false };
    let constants = [("dtype", dtype), ("N", Constant::Int(n))];
    KERNELS.iter().all(|name| {
        library.compiled(name, &constants).any(|(_, kernel)| {
            match kernel.constants.get("BLOCK_P") {
                Some(Constant::Int(block)) => *block > 0 && p % block == 0,
                Some(Constant::Text(_)) => false,
                None => true, // ssd_scores does not read x
            }
        })
    })
}

/// The operands as the kernels take them, with their sizes.
struct Operands {
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor,
    constants: [(&'static str, Constant); 2],
    /// Batch, time, heads, groups, channels, columns, chunk, chunks.
    sizes: Sizes,
}

#[derive(Clone, Copy)]
struct Sizes {
    batch: i64,
    time: i64,
    heads: i64,
    groups: i64,
    p: i64,
    n: i64,
    chunk: i64,
    chunks: i64,
}

impl Operands {
    fn of(launcher: &Launcher, operands: &[&Tensor]) -> Result<Self> {
        let [x, dt, a, b, c, d] = exactly(operands)?;
        let kind = x.kind();
        let [batch, time, heads, p] = four("x", x)?;
        let [_, _, groups, n] = four("b", b)?;
        let constants = [("dtype", dtype(kind)?), ("N", Constant::Int(n))];
        let chunk = constant(launcher.library(), "ssd_scores", &constants, "CHUNK")?;
        Ok(Self {
            x: dense(x, kind)?,
            dt: dense(dt, Kind::Float)?,
            a: dense(a, Kind::Float)?,
            b: dense(b, kind)?,
            c: dense(c, kind)?,
            d: dense(d, Kind::Float)?,
            constants,
            sizes: Sizes {
                batch,
                time,
                heads,
                groups,
                p,
                n,
                chunk,
                chunks: (time + chunk - 1) / chunk,
            },
        })
    }

    fn wide(&self, size: &[i64]) -> Result<Tensor> {
        empty(size, Kind::Float, &self.x)
    }

    /// C Bᵀ of each chunk and group, [b, groups, chunks, chunk, chunk].
    fn scores(&self, launcher: &Launcher) -> Result<Tensor> {
        let Sizes { batch, time, groups, chunk, chunks, .. } = self.sizes;
        let scores = self.wide(&[batch, groups, chunks, chunk, chunk])?;
        launcher
            .call("ssd_scores", &self.constants)
            .pointer("b", pointer(&self.b)?)
            .pointer("c", pointer(&self.c)?)
            .pointer("scores", pointer(&scores)?)
            .int("B", batch)
            .int("T", time)
            .int("G", groups)
            .run()?;
        Ok(scores)
    }

    /// States in the dtype of x, [b, h, chunks, p, n].
    fn chunk_states(&self) -> Result<Tensor> {
        let Sizes { batch, heads, chunks, p, n, .. } = self.sizes;
        empty(&[batch, heads, chunks, p, n], self.x.kind(), &self.x)
    }

    /// The state before each chunk, and after the last.
    fn states(&self, launcher: &Launcher, start: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        let Sizes { batch, time, heads, groups, p, n, .. } = self.sizes;
        let start = start.map(|start| dense(start, Kind::Float)).transpose()?;
        let states = self.chunk_states()?;
        let last = self.wide(&[batch, heads, p, n])?;
        launcher
            .call("ssd_states", &self.constants)
            .pointer("x", pointer(&self.x)?)
            .pointer("dt", pointer(&self.dt)?)
            .pointer("a", pointer(&self.a)?)
            .pointer("b", pointer(&self.b)?)
            .pointer("start", start.as_ref().map_or_else(|| nothing(Kind::Float), pointer)?)
            .pointer("states", pointer(&states)?)
            .pointer("last", pointer(&last)?)
            .int("B", batch)
            .int("T", time)
            .int("H", heads)
            .int("G", groups)
            .int("P", p)
            .int("has_start", start.is_some().into())
            .run()?;
        Ok((states, last))
    }
}

pub(super) fn forward(
    launcher: &Launcher,
    operands: &[&Tensor],
    state: Option<&Tensor>,
) -> Result<Scanned> {
    let of = Operands::of(launcher, operands)?;
    let Sizes { batch, time, heads, groups, p, .. } = of.sizes;
    let scores = of.scores(launcher)?;
    let (states, last) = of.states(launcher, state)?;
    let y = empty(&[batch, time, heads, p], of.x.kind(), &of.x)?;
    launcher
        .call("ssd_output", &of.constants)
        .pointer("x", pointer(&of.x)?)
        .pointer("dt", pointer(&of.dt)?)
        .pointer("a", pointer(&of.a)?)
        .pointer("c", pointer(&of.c)?)
        .pointer("d", pointer(&of.d)?)
        .pointer("scores", pointer(&scores)?)
        .pointer("states", pointer(&states)?)
        .pointer("y", pointer(&y)?)
        .int("B", batch)
        .int("T", time)
        .int("H", heads)
        .int("G", groups)
        .int("P", p)
        .run()?;
    Ok(Scanned { y, state: last })
}

/// dx, ddt, da, db, dc, dd.
pub(super) fn backward(
    launcher: &Launcher,
    dy: &Tensor,
    operands: &[&Tensor],
) -> Result<Vec<Tensor>> {
    let of = Operands::of(launcher, operands)?;
    let Sizes { batch, time, heads, groups, p, n, chunk, chunks } = of.sizes;
    let kind = of.x.kind();
    let dy = dense(dy, kind)?;
    let scores = of.scores(launcher)?;
    let (states, _) = of.states(launcher, None)?;
    let gradients = of.chunk_states()?;
    launcher
        .call("ssd_state_gradients", &of.constants)
        .pointer("dy", pointer(&dy)?)
        .pointer("dt", pointer(&of.dt)?)
        .pointer("a", pointer(&of.a)?)
        .pointer("c", pointer(&of.c)?)
        .pointer("gradients", pointer(&gradients)?)
        .int("B", batch)
        .int("T", time)
        .int("H", heads)
        .int("G", groups)
        .int("P", p)
        .run()?;
    let dx = empty(&[batch, time, heads, p], kind, &of.x)?;
    let rows = of.wide(&[2, batch, heads, chunks, chunk])?;
    launcher
        .call("ssd_value_gradients", &of.constants)
        .pointer("dy", pointer(&dy)?)
        .pointer("x", pointer(&of.x)?)
        .pointer("dt", pointer(&of.dt)?)
        .pointer("a", pointer(&of.a)?)
        .pointer("b", pointer(&of.b)?)
        .pointer("d", pointer(&of.d)?)
        .pointer("scores", pointer(&scores)?)
        .pointer("gradients", pointer(&gradients)?)
        .pointer("dx", pointer(&dx)?)
        .pointer("rows", pointer(&rows)?)
        .int("B", batch)
        .int("T", time)
        .int("H", heads)
        .int("G", groups)
        .int("P", p)
        .run()?;
    let ddt = of.wide(&[batch, time, heads])?;
    let weights = of.wide(&[batch, heads, chunks, chunk, chunk])?;
    let parts = of.wide(&[2, batch, heads, chunks])?;
    launcher
        .call("ssd_gate_gradients", &of.constants)
        .pointer("dy", pointer(&dy)?)
        .pointer("x", pointer(&of.x)?)
        .pointer("dt", pointer(&of.dt)?)
        .pointer("a", pointer(&of.a)?)
        .pointer("c", pointer(&of.c)?)
        .pointer("scores", pointer(&scores)?)
        .pointer("states", pointer(&states)?)
        .pointer("gradients", pointer(&gradients)?)
        .pointer("rows", pointer(&rows)?)
        .pointer("ddt", pointer(&ddt)?)
        .pointer("weights", pointer(&weights)?)
        .pointer("parts", pointer(&parts)?)
        .int("B", batch)
        .int("T", time)
        .int("H", heads)
        .int("G", groups)
        .int("P", p)
        .run()?;
    let [db, dc] = [(); 2].map(|()| empty(&[batch, time, groups, n], kind, &of.x));
    let (db, dc) = (db?, dc?);
    launcher
        .call("ssd_group_gradients", &of.constants)
        .pointer("dy", pointer(&dy)?)
        .pointer("x", pointer(&of.x)?)
        .pointer("dt", pointer(&of.dt)?)
        .pointer("a", pointer(&of.a)?)
        .pointer("b", pointer(&of.b)?)
        .pointer("c", pointer(&of.c)?)
        .pointer("states", pointer(&states)?)
        .pointer("gradients", pointer(&gradients)?)
        .pointer("weights", pointer(&weights)?)
        .pointer("db", pointer(&db)?)
        .pointer("dc", pointer(&dc)?)
        .int("B", batch)
        .int("T", time)
        .int("H", heads)
        .int("G", groups)
        .int("P", p)
        .run()?;
    let [da, dd] = [(); 2].map(|()| of.wide(&[heads]));
    let (da, dd) = (da?, dd?);
    launcher
        .call("ssd_parameters", &[])
        .pointer("parts", pointer(&parts)?)
        .pointer("da", pointer(&da)?)
        .pointer("dd", pointer(&dd)?)
        .int("B", batch)
        .int("T", time)
        .int("H", heads)
        .run()?;
    Ok(vec![dx, ddt, da, db, dc, dd])
}
