//! The end of a step (gpu/kernels/update.py), as in `kernels::update`: the norm of the gradients, and AdamW, in f32.
//! AdamW also writes the parameter's bf16 copy.
//!
//! Squares are summed by blocks (`scale::shard::BLOCK`) that no two ranks share, so the norm is the same for any number
//! of ranks.

use gpu::{Constant, Launcher};
use tch::{Kind, Tensor};

use super::{empty, nothing, pointer};
use crate::kernels::KernelError;
use crate::kernels::update::operands::{Factors, Update};
use scale::shard::BLOCK;

/// sqrt Σ g², [] f64, on the device.
pub(crate) fn grad_norm(launcher: &Launcher, gradients: &[&Tensor]) -> Result<Tensor, KernelError> {
    norm_of_sums(launcher, &square_sums(launcher, gradients)?)
}

/// Σ g² over the blocks of each gradient, one gradient after another: [blocks] f64, on the device.
pub(crate) fn square_sums(
    launcher: &Launcher,
    gradients: &[&Tensor],
) -> Result<Tensor, KernelError> {
    let Some(like) = gradients.first() else {
        return Err(KernelError::new("the norm of no gradients".to_owned()));
    };
    let block = i64::try_from(BLOCK).unwrap_or(i64::MAX);
    let blocks = |g: &Tensor| (g.numel() as i64 + block - 1) / block;
    let count: i64 = gradients.iter().map(|g| blocks(g)).sum();
    let sums = empty(&[count], Kind::Double, like)?;
    let mut first = 0;
    for g in gradients {
        let g = g.f_contiguous()?;
        launcher
            .call("square_sums", &[("CHUNK", Constant::Int(block))])
            .pointer("g", pointer(&g)?)
            .pointer("sums", pointer(&sums)?)
            .int("count", g.numel() as i64)
            .int("first", first)
            .run()?;
        first += blocks(&g);
    }
    Ok(sums)
}

/// sqrt Σ sums, [] f64, on the device, of sums [blocks] f64 of all gradients: it does not depend on the ranks that made
/// them.
pub(crate) fn norm_of_sums(launcher: &Launcher, sums: &Tensor) -> Result<Tensor, KernelError> {
    let (norm, coefficient) = (empty(&[], Kind::Double, sums)?, empty(&[], Kind::Double, sums)?);
    launcher
        .call("clip_coefficient", &[])
        .pointer("sums", pointer(sums)?)
        .pointer("norm", pointer(&norm)?)
        .pointer("coefficient", pointer(&coefficient)?)
        .int("blocks", sums.numel() as i64)
        .float("most", f64::INFINITY)
        .run()?;
    Ok(norm)
}

/// Updates p, m and v in place, and writes the copy of p.
pub(crate) fn adamw(
    launcher: &Launcher,
    update: Update<'_>,
    factors: Factors,
) -> Result<(), KernelError> {
    let Update { p, g, m, v, coefficient, copy } = update;
    let known = [("parameter", p), ("first moment", m), ("second moment", v)];
    for (what, tensor) in known.into_iter().chain(copy.map(|copy| ("bf16 copy", copy))) {
        if !tensor.is_contiguous() || tensor.numel() != g.numel() {
            return Err(KernelError::new(format!(
                "AdamW with a {what} of shape {:?} and strides {:?}",
                tensor.size(),
                tensor.stride()
            )));
        }
    }
    let g = g.f_contiguous()?;
    // With ranks, the norm and so the coefficient come from the CPU.
    let coefficient = coefficient.f_to_device(p.device())?;
    let Factors { keep, beta1, rest1, beta2, rest2, root, eps, rate, coefficient: _ } = factors;
    launcher
        .call("adamw", &[("COPY", Constant::Int(copy.is_some().into()))])
        .pointer("p", pointer(p)?)
        .pointer("g", pointer(&g)?)
        .pointer("m", pointer(m)?)
        .pointer("v", pointer(v)?)
        .pointer("copy", copy.map_or_else(|| nothing(Kind::BFloat16), pointer)?)
        .pointer("coefficient", pointer(&coefficient)?)
        .int("count", g.numel() as i64)
        .float("keep", keep.into())
        .float("beta1", beta1.into())
        .float("rest1", rest1.into())
        .float("beta2", beta2.into())
        .float("rest2", rest2.into())
        .float("root", root.into())
        .float("eps", eps.into())
        .float("rate", rate.into())
        .run()?;
    Ok(())
}
