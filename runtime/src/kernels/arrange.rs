//! Kernels that move elements without computing.
//! In: tensors of the plan's shapes. Out: views where the plan says so, else new tensors.

use tch::{Kind, Tensor};

use super::KernelError;

/// [b, t, …] -> [b, t, dims…].
pub fn reshape(x: &Tensor, dims: &[i64]) -> Result<Tensor, KernelError> {
    let mut size: Vec<i64> = x.size().iter().take(2).copied().collect();
    size.extend(dims);
    Ok(x.f_reshape(size)?)
}

/// [b, t, h, d] -> [b, t, h·times, d], each head followed by its copies.
pub fn repeat_heads(x: &Tensor, times: i64) -> Result<Tensor, KernelError> {
    Ok(x.f_repeat_interleave_self_int(times, 2, None)?)
}

/// [b, t, h·times, d] -> [b, t, h, d], summed over each head's copies.
pub fn sum_repeats(dy: &Tensor, times: i64) -> Result<Tensor, KernelError> {
    let apart = dy.f_unflatten(2, [-1, times].as_slice())?; // [b, t, h, times, d]
    Ok(apart.f_sum_dim_intlist([3i64].as_slice(), false, None::<Kind>)?)
}

/// past ++ x along time.
pub fn append_time(past: &Tensor, x: &Tensor) -> Result<Tensor, KernelError> {
    Ok(Tensor::f_cat(&[past, x], 1)?)
}

/// The last min(rows, s) of s steps.
pub fn last_time(x: &Tensor, rows: i64) -> Result<Tensor, KernelError> {
    let steps = x.size().get(1).copied().unwrap_or(0);
    let kept = rows.min(steps);
    copy(&x.f_narrow(1, steps - kept, kept)?)
}

/// past, or zeros, then x without its last step.
pub fn shift(x: &Tensor, past: Option<&Tensor>) -> Result<Tensor, KernelError> {
    let steps = x.size().get(1).copied().unwrap_or(0);
    if steps == 0 {
        return copy(x);
    }
    let first = match past {
        Some(past) => past.shallow_clone(),
        None => x.f_narrow(1, 0, 1)?.f_zeros_like()?,
    };
    Ok(Tensor::f_cat(&[first, x.f_narrow(1, 0, steps - 1)?], 1)?)
}

/// dy without its first step, then zeros.
pub fn shift_grad(dy: &Tensor) -> Result<Tensor, KernelError> {
    let steps = dy.size().get(1).copied().unwrap_or(0);
    if steps == 0 {
        return copy(dy);
    }
    let last = dy.f_narrow(1, 0, 1)?.f_zeros_like()?;
    Ok(Tensor::f_cat(&[dy.f_narrow(1, 1, steps - 1)?, last], 1)?)
}

/// The same elements in newly allocated dense memory.
pub fn copy(x: &Tensor) -> Result<Tensor, KernelError> {
    let mut copy = Tensor::f_empty(x.size(), (x.kind(), x.device()))?;
    copy.f_copy_(x)?;
    Ok(copy)
}
