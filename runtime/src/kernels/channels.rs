//! Reductions over the last axis, copies along it, and means over tokens, by libtorch.
//!
//! Each row is reduced by itself, so cutting a sequence changes nothing.

use tch::{Kind, Tensor};

use super::path::Path;
use super::{KernelError, linear};

/// exp(x − m) / Σ exp(x − m) over the last axis, m its maximum.
pub fn softmax(x: &Tensor) -> Result<Tensor, KernelError> {
    Ok(x.f_softmax(-1, None::<Kind>)?)
}

/// y (dy − Σ dy ⊙ y).
pub fn softmax_grad(dy: &Tensor, y: &Tensor) -> Result<Tensor, KernelError> {
    Ok(y.f_mul(&dy.f_sub(&sum(&dy.f_mul(y)?, true)?)?)?)
}

/// Σ x over the last axis, which stays with `keep`.
pub fn sum(x: &Tensor, keep: bool) -> Result<Tensor, KernelError> {
    Ok(x.f_sum_dim_intlist([-1i64].as_slice(), keep, None::<Kind>)?)
}

/// The mean over batch and time: [b, t, c] -> \[c\].
pub fn mean_tokens(path: Path, x: &Tensor) -> Result<Tensor, KernelError> {
    Ok(linear::sum_tokens(path, x)?.f_div_scalar(tokens(x) as f64)?)
}

/// dmean / tokens for each token of x: \[c\] -> [b, t, c].
pub fn mean_tokens_grad(dmean: &Tensor, x: &Tensor) -> Result<Tensor, KernelError> {
    let each = dmean.f_div_scalar(tokens(x) as f64)?;
    Ok(each.f_expand(x.size(), false)?.f_contiguous()?)
}

/// Batch × time.
fn tokens(x: &Tensor) -> i64 {
    x.size().iter().take(2).product()
}

/// Copies along a last axis of `width`. With `kept`, x already has that axis, with an extent of 1.
pub fn spread(x: &Tensor, width: i64, kept: bool) -> Result<Tensor, KernelError> {
    let one = if kept { x.shallow_clone() } else { x.f_unsqueeze(-1)? };
    let mut size = one.size();
    if let Some(last) = size.last_mut() {
        *last = width;
    }
    Ok(one.f_expand(size, false)?.f_contiguous()?)
}
