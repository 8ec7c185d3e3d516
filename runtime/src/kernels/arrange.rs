//! Kernels that rearrange elements: reshape, repeat, append, shift, copy, cast. They return views where the plan says
//! so, else new tensors.

use compiler::plan::IGNORED;
use tch::{Device, Kind, Tensor};

use super::lanes::Element;
use super::{KernelError, ffi};

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

/// Maximum number of elements for our own cast: libtorch's is faster for more, but takes microseconds to start.
const FEW: usize = 1 << 13;

/// x in another dtype, rounded to the nearest, ties to even; x itself if it has that dtype.
pub fn cast(x: &Tensor, kind: Kind) -> Result<Tensor, KernelError> {
    let ours = x.device() == Device::Cpu && x.numel() <= FEW && x.is_contiguous();
    match (ours, x.kind(), kind) {
        (true, Kind::BFloat16, Kind::Float) => {
            let mut wide = Tensor::f_empty(x.size(), (kind, Device::Cpu))?;
            Element::widen(ffi::halves(x)?, ffi::slice_mut(&mut wide, &[x])?);
            Ok(wide)
        }
        (true, Kind::Float, Kind::BFloat16) => {
            let mut narrow = Tensor::f_empty(x.size(), (kind, Device::Cpu))?;
            let to = ffi::halves_mut(&mut narrow, &[x])?;
            for (to, x) in to.iter_mut().zip(ffi::slice(x)?) {
                *to = to_bf16(*x);
            }
            Ok(narrow)
        }
        _ => Ok(x.f_to_kind(kind)?),
    }
}

/// The nearest bf16's bits, ties to even.
fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if x.is_nan() { 0x7fc0 } else { rounded as u16 }
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

/// Targets `by` places later in each row, then ignored ones.
pub fn shift_targets(targets: &Tensor, by: i64) -> Result<Tensor, KernelError> {
    let steps = targets.size().get(1).copied().unwrap_or(0);
    let kept = (steps - by).max(0);
    let none = targets.f_narrow(1, 0, steps - kept)?.f_full_like(IGNORED)?;
    Ok(Tensor::f_cat(&[targets.f_narrow(1, steps - kept, kept)?, none], 1)?)
}

/// The same elements in newly allocated dense memory.
pub fn copy(x: &Tensor) -> Result<Tensor, KernelError> {
    let mut copy = Tensor::f_empty(x.size(), (x.kind(), x.device()))?;
    copy.f_copy_(x)?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_of_few_elements_are_libtorchs() {
        // Every bf16, and each with the bits below it at, above and under half.
        let all: Vec<f32> =
            (0..=u16::MAX).map(|bits| f32::from_bits(u32::from(bits) << 16)).collect();
        let below = [0u32, 1, 0x7fff, 0x8000, 0x8001, 0xffff];
        for piece in all.chunks(FEW) {
            for low in below {
                let values: Vec<f32> =
                    piece.iter().map(|x| f32::from_bits(x.to_bits() | low)).collect();
                let x = Tensor::from_slice(&values);
                let (ours, theirs) = (cast(&x, Kind::BFloat16).unwrap(), x.to_kind(Kind::BFloat16));
                assert_eq!((ours.kind(), theirs.kind()), (Kind::BFloat16, Kind::BFloat16));
                let back = cast(&ours, Kind::Float).unwrap();
                let [ours, theirs]: [Vec<f32>; 2] = [&back, &theirs.to_kind(Kind::Float)]
                    .map(|tensor| Vec::try_from(tensor).unwrap());
                for ((ours, theirs), x) in ours.iter().zip(&theirs).zip(&values) {
                    let same =
                        ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan();
                    assert!(same, "{x:e} ({:08x}): {ours:e} and {theirs:e}", x.to_bits());
                }
            }
        }
    }

    #[test]
    fn casts_of_many_or_strided_elements_are_the_same() {
        let many = Tensor::arange(2 * FEW as i64, (Kind::Float, Device::Cpu)) * 1.001;
        let narrow = cast(&many, Kind::BFloat16).unwrap();
        let pieces: Vec<Tensor> =
            many.split(1 << 10, 0).iter().map(|x| cast(x, Kind::BFloat16).unwrap()).collect();
        assert!(narrow == Tensor::cat(&pieces, 0));
        let columns = many.reshape([-1, 8]).slice(1, 0, 3, 1).slice(0, 0, 9, 1);
        assert!(cast(&columns, Kind::BFloat16).unwrap() == columns.to_kind(Kind::BFloat16));
        assert_eq!(cast(&many, Kind::Double).unwrap().kind(), Kind::Double);
        assert!(cast(&many, Kind::Float).unwrap().data_ptr() == many.data_ptr());
    }
}
