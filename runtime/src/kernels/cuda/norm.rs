//! RMS norms with and without a gate, and L2 norms (gpu/kernels/norm.py), as in `kernels::{norm, gated_norm, l2_norm}`.
//!
//! A weight's gradient adds chunks of CHUNK rows in order.

use compiler::plan::Gate;
use gpu::{Constant, Launcher, Library};
use tch::{Kind, Tensor};

use super::{Rows, dtype, empty, nothing, pointer, sums};
use crate::kernels::KernelError;

/// Rows per chunk of a weight's gradient; a multiple of every kernel's rows.
const CHUNK: i64 = 64;

/// The constants of an RMS norm of this width; `None` if it was not compiled.
pub(crate) fn tile(
    library: &Library,
    name: &str,
    kind: Kind,
    gate: Option<Gate>,
    width: i64,
) -> Option<[(&'static str, Constant); 3]> {
    let gate = match gate {
        None => 0,
        Some(Gate::Before) => 1,
        Some(Gate::After) => 2,
    };
    let [dtype, gate] = [("dtype", dtype(kind).ok()?), ("GATE", Constant::Int(gate))];
    let width = library.at_least(name, &[dtype.clone(), gate.clone()], "BC", width)?;
    Some([dtype, gate, ("BC", width.into())])
}

/// The constants of an L2 norm of this width.
pub(crate) fn l2_tile(
    library: &Library,
    name: &str,
    kind: Kind,
    width: i64,
) -> Option<[(&'static str, Constant); 2]> {
    let dtype = ("dtype", dtype(kind).ok()?);
    let width = library.at_least(name, std::slice::from_ref(&dtype), "BC", width)?;
    Some([dtype, ("BC", width.into())])
}

fn uncompiled(width: i64) -> KernelError {
    KernelError::new(format!("no CUDA norm was compiled for a width of {width}"))
}

/// The shape of x without its last axis.
fn leading(x: &Tensor) -> Vec<i64> {
    let mut size = x.size();
    size.pop();
    size
}

/// y and rstd.
pub(crate) fn forward(
    launcher: &Launcher,
    x: &Tensor,
    gate: Option<(&Tensor, Gate)>,
    weight: &Tensor,
    eps: f64,
) -> Result<(Tensor, Tensor), KernelError> {
    const NAME: &str = "rms_norm_forward";
    let rows = Rows::from_tensor(x)?;
    let gates = gate.map(|(gate, _)| Rows::from_tensor(gate)).transpose()?;
    let constants = tile(launcher.library(), NAME, x.kind(), gate.map(|(_, at)| at), rows.width)
        .ok_or_else(|| uncompiled(rows.width))?;
    let weight = weight.f_contiguous()?;
    let y = empty(&x.size(), x.kind(), x)?;
    let rstd = empty(&leading(x), Kind::Float, x)?;
    launcher
        .call(NAME, &constants)
        .pointer("x", pointer(&rows.x)?)
        .pointer("gate", gates.as_ref().map_or_else(|| nothing(x.kind()), |g| pointer(&g.x))?)
        .pointer("weight", pointer(&weight)?)
        .pointer("y", pointer(&y)?)
        .pointer("rstd", pointer(&rstd)?)
        .int("rows", rows.rows)
        .int("heads", rows.heads)
        .int("width", rows.width)
        .int("x_row", rows.row)
        .int("gate_row", gates.as_ref().map_or(0, |gates| gates.row))
        .float("eps", eps)
        .run()?;
    Ok((y, rstd))
}

/// dx, dgate if there is a gate, dweight.
pub(crate) fn backward(
    launcher: &Launcher,
    dy: &Tensor,
    x: &Tensor,
    gate: Option<(&Tensor, Gate)>,
    weight: &Tensor,
    rstd: &Tensor,
) -> Result<(Tensor, Option<Tensor>, Tensor), KernelError> {
    const NAME: &str = "rms_norm_backward";
    let (rows, grads) = (Rows::from_tensor(x)?, Rows::from_tensor(dy)?);
    let gates = gate.map(|(gate, _)| Rows::from_tensor(gate)).transpose()?;
    let constants = tile(launcher.library(), NAME, x.kind(), gate.map(|(_, at)| at), rows.width)
        .ok_or_else(|| uncompiled(rows.width))?;
    let (weight, rstd) = (weight.f_contiguous()?, rstd.f_contiguous()?);
    let dx = empty(&x.size(), x.kind(), x)?;
    let dgate = gates.as_ref().map(|_| empty(&x.size(), x.kind(), x)).transpose()?;
    let chunks = (rows.rows + CHUNK - 1) / CHUNK;
    let partial = empty(&[chunks, rows.width], Kind::Float, x)?;
    launcher
        .call(NAME, &constants)
        .pointer("dy", pointer(&grads.x)?)
        .pointer("x", pointer(&rows.x)?)
        .pointer("gate", gates.as_ref().map_or_else(|| nothing(x.kind()), |g| pointer(&g.x))?)
        .pointer("weight", pointer(&weight)?)
        .pointer("rstd", pointer(&rstd)?)
        .pointer("dx", pointer(&dx)?)
        .pointer("dgate", dgate.as_ref().map_or_else(|| nothing(x.kind()), pointer)?)
        .pointer("partial", pointer(&partial)?)
        .int("rows", rows.rows)
        .int("heads", rows.heads)
        .int("width", rows.width)
        .int("dy_row", grads.row)
        .int("x_row", rows.row)
        .int("gate_row", gates.as_ref().map_or(0, |gates| gates.row))
        .int("chunk", CHUNK)
        .run()?;
    let dweight = sums::rows(launcher, &partial)?.f_reshape(weight.size())?;
    Ok((dx, dgate, dweight))
}

/// y and rnorm.
pub(crate) fn l2_forward(
    launcher: &Launcher,
    x: &Tensor,
    eps: f64,
) -> Result<(Tensor, Tensor), KernelError> {
    const NAME: &str = "l2_norm_forward";
    let rows = Rows::from_tensor(x)?;
    let constants = l2_tile(launcher.library(), NAME, x.kind(), rows.width)
        .ok_or_else(|| uncompiled(rows.width))?;
    let y = empty(&x.size(), x.kind(), x)?;
    let rnorm = empty(&leading(x), Kind::Float, x)?;
    launcher
        .call(NAME, &constants)
        .pointer("x", pointer(&rows.x)?)
        .pointer("y", pointer(&y)?)
        .pointer("rnorm", pointer(&rnorm)?)
        .int("rows", rows.rows)
        .int("heads", rows.heads)
        .int("width", rows.width)
        .int("x_row", rows.row)
        .float("eps", eps)
        .run()?;
    Ok((y, rnorm))
}

/// dx.
pub(crate) fn l2_backward(
    launcher: &Launcher,
    dy: &Tensor,
    x: &Tensor,
    rnorm: &Tensor,
) -> Result<Tensor, KernelError> {
    const NAME: &str = "l2_norm_backward";
    let (rows, grads) = (Rows::from_tensor(x)?, Rows::from_tensor(dy)?);
    let constants = l2_tile(launcher.library(), NAME, x.kind(), rows.width)
        .ok_or_else(|| uncompiled(rows.width))?;
    let rnorm = rnorm.f_contiguous()?;
    let dx = empty(&x.size(), x.kind(), x)?;
    launcher
        .call(NAME, &constants)
        .pointer("dy", pointer(&grads.x)?)
        .pointer("x", pointer(&rows.x)?)
        .pointer("rnorm", pointer(&rnorm)?)
        .pointer("dx", pointer(&dx)?)
        .int("rows", rows.rows)
        .int("heads", rows.heads)
        .int("width", rows.width)
        .int("dy_row", grads.row)
        .int("x_row", rows.row)
        .run()?;
    Ok(dx)
}
