//! Cross-entropy over the vocabulary (gpu/kernels/loss.py) of bf16 or f32 logits, as in `kernels::loss`.
//!
//! A target outside the vocabulary makes the loss NaN, and reads no memory outside the logits.

use gpu::{Constant, Launcher};
use tch::{Kind, Tensor};

use super::{Rows, dtype, empty, nothing, pointer};
use crate::kernels::KernelError;
use crate::kernels::loss::operands::{Kept, Losses, Terms};

/// What a launch does with the logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Losses and the likeliest tokens.
    Forward,
    /// Gradients, from losses.
    Gradient,
    /// Losses and gradients.
    Both,
}

/// Operands and results of one launch.
struct Call<'a> {
    mode: Mode,
    logits: &'a Tensor,
    targets: &'a Tensor,
    nll: &'a Tensor,
    lse: &'a Tensor,
    likeliest: Option<&'a Tensor>,
    dlogits: Option<&'a Tensor>,
    scale: f64,
    terms: Terms,
}

fn launch(launcher: &Launcher, call: &Call<'_>) -> Result<(), KernelError> {
    let Call { mode, logits, targets, nll, lse, likeliest, dlogits, scale, terms } = *call;
    let rows = Rows::from_tensor(logits)?;
    let mode = match mode {
        Mode::Forward => 0,
        Mode::Gradient => 1,
        Mode::Both => 2,
    };
    let constants = [("dtype", dtype(logits.kind())?), ("MODE", Constant::Int(mode))];
    launcher
        .call("cross_entropy", &constants)
        .pointer("logits", pointer(&rows.x)?)
        .pointer("targets", pointer(targets)?)
        .pointer("nll", pointer(nll)?)
        .pointer("lse", pointer(lse)?)
        .pointer("likeliest", likeliest.map_or_else(|| nothing(Kind::Int64), pointer)?)
        .pointer("dlogits", dlogits.map_or_else(|| nothing(logits.kind()), pointer)?)
        .int("rows", rows.rows)
        .int("vocab", rows.width)
        .int("logits_row", rows.row)
        .float("base", scale)
        .float("nll_factor", 2.0 * terms.nll_square * scale)
        .float("lse_factor", 2.0 * terms.z_loss * scale)
        .run()?;
    Ok(())
}

/// The summed loss and the count.
fn sums(
    launcher: &Launcher,
    [nll, lse, targets]: [&Tensor; 3],
    terms: Terms,
) -> Result<(Tensor, Tensor), KernelError> {
    let (loss, counted) = (empty(&[], Kind::Double, nll)?, empty(&[], Kind::Int64, nll)?);
    launcher
        .call("loss_sum", &[])
        .pointer("nll", pointer(nll)?)
        .pointer("lse", pointer(lse)?)
        .pointer("targets", pointer(targets)?)
        .pointer("loss", pointer(&loss)?)
        .pointer("counted", pointer(&counted)?)
        .int("rows", targets.numel() as i64)
        .float("nll_square", terms.nll_square)
        .float("z_loss", terms.z_loss)
        .run()?;
    Ok((loss, counted))
}

/// Losses and the likeliest tokens.
pub(crate) fn forward(
    launcher: &Launcher,
    logits: &Tensor,
    targets: &Tensor,
    terms: Terms,
) -> Result<Losses, KernelError> {
    let targets = &targets.f_contiguous()?;
    let size = targets.size();
    let nll = empty(&size, Kind::Float, logits)?;
    let lse = empty(&size, Kind::Float, logits)?;
    let likeliest = empty(&size, Kind::Int64, logits)?;
    let call = Call {
        mode: Mode::Forward,
        logits,
        targets,
        nll: &nll,
        lse: &lse,
        likeliest: Some(&likeliest),
        dlogits: None,
        scale: 0.0,
        terms,
    };
    launch(launcher, &call)?;
    let (loss, counted) = sums(launcher, [&nll, &lse, targets], terms)?;
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
    let d = match over_logits && logits.is_contiguous() {
        true => logits.shallow_clone(),
        false => empty(&logits.size(), logits.kind(), logits)?,
    };
    let [targets, nll, lse] = [kept.targets, kept.nll, kept.lse].map(Tensor::f_contiguous);
    // Held until the launch is queued.
    let (targets, nll, lse) = (&targets?, &nll?, &lse?);
    let (likeliest, dlogits) = (None, Some(&d));
    let mode = Mode::Gradient;
    launch(launcher, &Call { mode, logits, targets, nll, lse, likeliest, dlogits, scale, terms })?;
    Ok(d)
}

/// The summed loss, the count and dlogits, of dense logits that dlogits are written over.
pub(crate) fn both(
    launcher: &Launcher,
    logits: &Tensor,
    targets: &Tensor,
    scale: f64,
    terms: Terms,
) -> Result<(Losses, Tensor), KernelError> {
    let targets = &targets.f_contiguous()?;
    let d = logits.f_contiguous()?;
    let nll = empty(&targets.size(), Kind::Float, logits)?;
    let lse = empty(&targets.size(), Kind::Float, logits)?;
    let call = Call {
        mode: Mode::Both,
        logits: &d,
        targets,
        nll: &nll,
        lse: &lse,
        likeliest: None,
        dlogits: Some(&d),
        scale,
        terms,
    };
    launch(launcher, &call)?;
    let (loss, counted) = sums(launcher, [&nll, &lse, targets], terms)?;
    Ok((Losses { nll, lse, loss, counted, likeliest: None }, d))
}
