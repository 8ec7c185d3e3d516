//! The gated unit of an MLP (gpu/kernels/swiglu.py), as in `kernels::swiglu`.

use gpu::Launcher;
use tch::Tensor;

use super::{Rows, dtype, empty, pointer};
use crate::kernels::KernelError;

/// Rows with all channels of a token as one.
fn token_rows(x: &Tensor) -> Result<Rows, KernelError> {
    let Rows { x, rows, heads, width, row } = Rows::from_tensor(x)?;
    Ok(Rows { x, rows: rows / heads.max(1), heads: 1, width: width * heads, row })
}

/// y.
pub(crate) fn forward(
    launcher: &Launcher,
    gate: &Tensor,
    up: &Tensor,
) -> Result<Tensor, KernelError> {
    let constants = [("dtype", dtype(gate.kind())?)];
    let y = empty(&gate.size(), gate.kind(), gate)?;
    let (gate, up) = (token_rows(gate)?, token_rows(up)?);
    launcher
        .call("swiglu_forward", &constants)
        .pointer("gate", pointer(&gate.x)?)
        .pointer("up", pointer(&up.x)?)
        .pointer("y", pointer(&y)?)
        .int("rows", gate.rows)
        .int("width", gate.width)
        .int("gate_row", gate.row)
        .int("up_row", up.row)
        .run()?;
    Ok(y)
}

/// (dgate, dup).
pub(crate) fn backward(
    launcher: &Launcher,
    dy: &Tensor,
    gate: &Tensor,
    up: &Tensor,
) -> Result<(Tensor, Tensor), KernelError> {
    let constants = [("dtype", dtype(gate.kind())?)];
    let dgate = empty(&gate.size(), gate.kind(), gate)?;
    let dup = empty(&gate.size(), gate.kind(), gate)?;
    let (dy, gate, up) = (token_rows(dy)?, token_rows(gate)?, token_rows(up)?);
    launcher
        .call("swiglu_backward", &constants)
        .pointer("dy", pointer(&dy.x)?)
        .pointer("gate", pointer(&gate.x)?)
        .pointer("up", pointer(&up.x)?)
        .pointer("dgate", pointer(&dgate)?)
        .pointer("dup", pointer(&dup)?)
        .int("rows", gate.rows)
        .int("width", gate.width)
        .int("dy_row", dy.row)
        .int("gate_row", gate.row)
        .int("up_row", up.row)
        .run()?;
    Ok((dgate, dup))
}
