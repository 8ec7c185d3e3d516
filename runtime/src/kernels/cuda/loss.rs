//! Cross-entropy over the vocabulary (gpu/kernels/loss.py).
//! In: logits in bf16 or f32, targets. Out: as in `kernels::loss`; a target outside the vocabulary makes the loss NaN,
//! and reads nothing elsewhere.

use gpu::{Constant, Launcher};
use tch::{Kind, Tensor};

use super::{Rows, dtype, empty, nothing, pointer};
use crate::kernels::KernelError;
use crate::kernels::loss::{Kept, Losses, Terms};

/// Losses and the likeliest tokens.
pub(crate) fn forward(
    launcher: &Launcher,
    logits: &Tensor,
    targets: &Tensor,
    terms: Terms,
) -> Result<Losses, KernelError> {
    let of = Rows::of(logits)?;
    let targets = targets.f_contiguous()?;
    let constants = [("dtype", dtype(logits.kind())?), ("MODE", Constant::Int(0))];
    let size = targets.size();
    let [nll, lse] = [(); 2].map(|()| empty(&size, Kind::Float, logits));
    let (nll, lse) = (nll?, lse?);
    let likeliest = empty(&size, Kind::Int64, logits)?;
    launcher
        .call("cross_entropy", &constants)
        .pointer("logits", pointer(&of.x)?)
        .pointer("targets", pointer(&targets)?)
        .pointer("nll", pointer(&nll)?)
        .pointer("lse", pointer(&lse)?)
        .pointer("likeliest", pointer(&likeliest)?)
        .pointer("dlogits", nothing(logits.kind())?)
        .int("rows", of.rows)
        .int("vocab", of.width)
        .int("logits_row", of.row)
        .float("base", 0.0)
        .float("nll_factor", 0.0)
        .float("lse_factor", 0.0)
        .run()?;
    let (loss, counted) = (empty(&[], Kind::Double, logits)?, empty(&[], Kind::Int64, logits)?);
    launcher
        .call("loss_sum", &[])
        .pointer("nll", pointer(&nll)?)
        .pointer("lse", pointer(&lse)?)
        .pointer("targets", pointer(&targets)?)
        .pointer("loss", pointer(&loss)?)
        .pointer("counted", pointer(&counted)?)
        .int("rows", of.rows)
        .float("nll_square", terms.nll_square)
        .float("z_loss", terms.z_loss)
        .run()?;
    Ok(Losses { nll, lse, loss, counted, likeliest: Some(likeliest) })
}

/// dlogits, written over the logits if that is permitted.
pub(crate) fn backward(
    launcher: &Launcher,
    logits: &Tensor,
    kept: Kept<'_>,
    scale: f64,
    terms: Terms,
    over_logits: bool,
) -> Result<Tensor, KernelError> {
    let of = Rows::of(logits)?;
    let constants = [("dtype", dtype(logits.kind())?), ("MODE", Constant::Int(1))];
    let d = match over_logits && logits.is_contiguous() {
        true => logits.shallow_clone(),
        false => empty(&logits.size(), logits.kind(), logits)?,
    };
    let [targets, nll, lse] = [kept.targets, kept.nll, kept.lse].map(Tensor::f_contiguous);
    // Held until the launch is queued.
    let (targets, nll, lse) = (targets?, nll?, lse?);
    launcher
        .call("cross_entropy", &constants)
        .pointer("logits", pointer(&of.x)?)
        .pointer("targets", pointer(&targets)?)
        .pointer("nll", pointer(&nll)?)
        .pointer("lse", pointer(&lse)?)
        .pointer("likeliest", nothing(Kind::Int64)?)
        .pointer("dlogits", pointer(&d)?)
        .int("rows", of.rows)
        .int("vocab", of.width)
        .int("logits_row", of.row)
        .float("base", scale)
        .float("nll_factor", 2.0 * terms.nll_square * scale)
        .float("lse_factor", 2.0 * terms.z_loss * scale)
        .run()?;
    Ok(d)
}
