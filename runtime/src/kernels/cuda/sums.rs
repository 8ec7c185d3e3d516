//! Sums over rows, in f32 (gpu/kernels/sums.py), in an order that depends only on the number of rows.

use gpu::{Constant, Launcher};
use tch::{Kind, Tensor};

use super::{Rows, dtype, empty, pointer};
use crate::kernels::KernelError;

/// Rows that one program adds. Longer sums are taken in two stages.
const CHUNK: i64 = 512;

/// Σ over all but the last axis of x: \[width\].
pub(crate) fn rows(launcher: &Launcher, x: &Tensor) -> Result<Tensor, KernelError> {
    let count = Rows::from_tensor(x)?.rows;
    if count <= CHUNK {
        return stage(launcher, x, count.max(1))?.f_reshape([-1]).map_err(KernelError::from);
    }
    // More than CHUNK² rows make a second stage that is long, but correct.
    let partial = stage(launcher, x, CHUNK)?;
    let chunks = partial.size().first().copied().unwrap_or(1);
    Ok(stage(launcher, &partial, chunks)?.f_reshape([-1])?)
}

/// Σ_{b,t} dy: [b, t, dims…] -> [dims…].
pub(crate) fn tokens(launcher: &Launcher, dy: &Tensor) -> Result<Tensor, KernelError> {
    let dims: Vec<i64> = dy.size().into_iter().skip(2).collect();
    let width: i64 = dims.iter().product();
    Ok(rows(launcher, &dy.f_reshape([-1, width.max(1)])?)?.f_reshape(dims)?)
}

/// Sums of `chunk` rows each: [cdiv(rows, chunk), width].
fn stage(launcher: &Launcher, x: &Tensor, chunk: i64) -> Result<Tensor, KernelError> {
    let rows = Rows::from_tensor(x)?;
    let constants = [("dtype", dtype(x.kind())?)];
    // At least one row, so that the sum of none is zeros.
    let out = match rows.rows {
        0 => Tensor::f_zeros([1, rows.width], (Kind::Float, x.device()))?,
        count => empty(&[(count + chunk - 1) / chunk, rows.width], Kind::Float, x)?,
    };
    launcher
        .call("sum_rows", &constants)
        .pointer("x", pointer(&rows.x)?)
        .pointer("out", pointer(&out)?)
        .int("rows", rows.rows)
        .int("width", rows.width)
        .int("chunk", chunk)
        .int("x_row", rows.row)
        .run()?;
    Ok(out)
}

/// [vocab, width]: row i sums dy where the token is i, in the order of the tokens.
pub(crate) fn embed_backward(
    launcher: &Launcher,
    dy: &Tensor,
    tokens: &Tensor,
    vocab: i64,
) -> Result<Tensor, KernelError> {
    let rows = Rows::from_tensor(dy)?;
    let (ids, order) = tokens.f_reshape([-1])?.f_sort_stable(true, 0, false)?;
    let constants: [(&str, Constant); 1] = [("dtype", dtype(dy.kind())?)];
    let dtable = empty(&[vocab, rows.width], Kind::Float, dy)?;
    launcher
        .call("embed_backward", &constants)
        .pointer("dy", pointer(&rows.x)?)
        .pointer("ids", pointer(&ids)?)
        .pointer("order", pointer(&order)?)
        .pointer("dtable", pointer(&dtable)?)
        .int("tokens", rows.rows)
        .int("vocab", vocab)
        .int("width", rows.width)
        .int("dy_row", rows.row)
        .run()?;
    Ok(dtable)
}
