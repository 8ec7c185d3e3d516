//! Cross-entropy over the vocabulary, its squared terms, and the likeliest token: logits [b, t, v] and targets [b, t]
//! i64 (`IGNORED` does not count) to nll and lse [b, t], the summed loss and the count, or to the gradient of the
//! logits.
//!
//! The loss is Σ nll + a nll² + z lse² over counted targets, summed in f64 in token order. A target outside the
//! vocabulary is an error and never read out of bounds.

pub(crate) mod operands;

use compiler::plan::IGNORED;
pub use operands::{Kept, Losses, Terms};
use tch::{Device, Kind, Tensor};

use super::arrange::copy;
use super::ffi::{self, Cut, Vectorised};
use super::lanes::{exp, max, sum_exp};
use super::linear::grain;
use super::path::Path;
use super::{Isa, KernelError, cuda};

pub fn forward(
    path: Path,
    logits: &Tensor,
    targets: &Tensor,
    terms: Terms,
) -> Result<Losses, KernelError> {
    let Terms { nll_square, z_loss } = terms;
    let (nll, lse) = match path {
        Path::Fused(isa) => fused_forward(isa, logits, targets)?,
        Path::Cuda(_) => {
            return cuda::loss::forward(cuda::launcher(logits.device())?, logits, targets, terms);
        }
        Path::Reference(_) => {
            let lse = logits.f_logsumexp([-1i64].as_slice(), false)?;
            let index = targets.f_clamp_min(0)?.f_unsqueeze(-1)?;
            let picked = logits.f_gather(-1, &index, false)?.f_squeeze_dim(-1)?;
            let ignored = targets.f_eq(IGNORED)?;
            (lse.f_sub(&picked)?.f_masked_fill(&ignored, 0.0)?, lse)
        }
    };
    let counts = targets.f_ne(IGNORED)?;
    let (nll64, lse64) = (nll.f_to_kind(Kind::Double)?, lse.f_to_kind(Kind::Double)?);
    let mut each = nll64.f_add(&nll64.f_square()?.f_mul_scalar(nll_square)?)?;
    if z_loss != 0.0 {
        each = each.f_add(&lse64.f_square()?.f_mul_scalar(z_loss)?)?;
    }
    let each = each.f_masked_fill(&counts.f_logical_not()?, 0.0)?;
    let loss = in_order(&each)?;
    Ok(Losses { nll, lse, loss, counted: counts.f_sum(Kind::Int64)?, likeliest: None })
}

/// The sum of f64 numbers in order. libtorch's sum depends on the number of threads.
fn in_order(each: &Tensor) -> Result<Tensor, KernelError> {
    if each.device() != Device::Cpu {
        return Ok(each.f_sum(None::<Kind>)?);
    }
    let each: Vec<f64> = Vec::try_from(each.f_reshape([-1])?)?;
    Ok(Tensor::from(each.iter().sum::<f64>()))
}

/// scale ((1 + 2 a nll)(p − onehot(target)) + 2 z lse p), p = exp(logits − lse), 0 where ignored. Written over
/// `logits` if that is permitted.
pub fn backward(
    path: Path,
    logits: &Tensor,
    kept: Kept<'_>,
    scale: f64,
    terms: Terms,
    over_logits: bool,
) -> Result<Tensor, KernelError> {
    if let Path::Cuda(_) = path {
        let launcher = cuda::launcher(logits.device())?;
        return cuda::loss::backward(launcher, logits, kept, scale, terms, over_logits);
    }
    let Terms { nll_square, z_loss } = terms;
    let Kept { targets, nll, lse } = kept;
    let counts = targets.f_ne(IGNORED)?;
    // [b, t]: the factor of the target's −1, and the factor of p.
    let down = nll.f_mul_scalar(2.0 * nll_square * scale)?.f_add_scalar(scale)?.f_mul(&counts)?;
    let spread = lse.f_mul_scalar(2.0 * z_loss * scale)?.f_mul(&counts)?.f_add(&down)?;
    if let Path::Fused(isa) = path {
        return fused_backward(isa, logits, kept, &down, &spread, over_logits);
    }
    let mut d = if over_logits { logits.shallow_clone() } else { copy(logits)? };
    let _ = d.f_sub_(&lse.f_unsqueeze(-1)?)?;
    let _ = d.f_exp_()?;
    let _ = d.f_mul_(&spread.f_unsqueeze(-1)?)?;
    let index = targets.f_clamp_min(0)?.f_unsqueeze(-1)?;
    let _ = d.f_scatter_add_(-1, &index, &down.f_neg()?.f_unsqueeze(-1)?)?;
    Ok(d)
}

/// Losses, and the gradient of the logits, which it is written over.
pub fn both(
    path: Path,
    logits: &Tensor,
    targets: &Tensor,
    scale: f64,
    terms: Terms,
) -> Result<(Losses, Tensor), KernelError> {
    if let Path::Cuda(_) = path {
        return cuda::loss::both(cuda::launcher(logits.device())?, logits, targets, scale, terms);
    }
    let losses = forward(path, logits, targets, terms)?;
    let kept = Kept { targets, nll: &losses.nll, lse: &losses.lse };
    let d = backward(path, logits, kept, scale, terms, true)?;
    Ok((losses, d))
}

/// [b, t] i64: the lowest index of the maximum.
pub fn argmax(logits: &Tensor) -> Result<Tensor, KernelError> {
    Ok(logits.f_argmax(-1, false)?)
}

/// Rows per chunk.
const ROWS: usize = 8;

fn fused_forward(
    isa: Isa,
    logits: &Tensor,
    targets: &Tensor,
) -> Result<(Tensor, Tensor), KernelError> {
    let logits = logits.f_contiguous()?;
    let options = (Kind::Float, logits.device());
    let mut nll = Tensor::f_empty(targets.size(), options)?;
    let mut lse = Tensor::f_empty(targets.size(), options)?;
    let rows = Rows::new(&logits, targets)?;
    let reads = [&logits];
    let outs = [ffi::slice_mut(&mut nll, &reads)?, ffi::slice_mut(&mut lse, &reads)?];
    ffi::parallel_cuts(
        rows.targets.len().div_ceil(ROWS),
        grain(ROWS * rows.vocab),
        outs.map(|data| Cut { data, chunk: ROWS }),
        |chunk, [nll, lse]| {
            let first = chunk * ROWS;
            let targets = &rows.targets[first..][..nll.len()];
            let logits = &rows.logits[first * rows.vocab..][..nll.len() * rows.vocab];
            ffi::run_on(isa, LossForward { logits, targets, nll, lse });
        },
    );
    Ok((nll, lse))
}

fn fused_backward(
    isa: Isa,
    logits: &Tensor,
    kept: Kept<'_>,
    down: &Tensor,
    spread: &Tensor,
    over_logits: bool,
) -> Result<Tensor, KernelError> {
    let mut d =
        if over_logits && logits.is_contiguous() { logits.shallow_clone() } else { copy(logits)? };
    let rows = Rows::new(&d, kept.targets)?;
    let (targets, vocab) = (rows.targets, rows.vocab);
    let (lse, down, spread) =
        (kept.lse.f_contiguous()?, down.f_contiguous()?, spread.f_contiguous()?);
    let (lses, downs, spreads) = (ffi::slice(&lse)?, ffi::slice(&down)?, ffi::slice(&spread)?);
    let out = ffi::slice_mut(&mut d, &[&lse, &down, &spread])?;
    ffi::parallel_cuts(
        targets.len().div_ceil(ROWS),
        grain(ROWS * vocab),
        [Cut { data: out, chunk: ROWS * vocab }],
        |chunk, [d]| {
            let first = chunk * ROWS;
            for (row, d) in d.chunks_exact_mut(vocab).enumerate() {
                let n = first + row;
                ffi::run_on(isa, LossBackward { d, lse: lses[n], spread: spreads[n] });
                if let Ok(target) = usize::try_from(targets[n]) {
                    d[target] -= downs[n];
                }
            }
        },
    );
    Ok(d)
}

/// Logits as rows, with targets checked against their width.
struct Rows<'a> {
    logits: &'a [f32],
    targets: Vec<i64>,
    vocab: usize,
}

impl<'a> Rows<'a> {
    fn new(logits: &'a Tensor, targets: &Tensor) -> Result<Self, KernelError> {
        let vocab = logits.size().last().map_or(0, |v| *v as usize);
        let targets: Vec<i64> = Vec::try_from(targets.f_reshape([-1])?)?;
        let logits = ffi::slice(logits)?;
        if vocab == 0 || logits.len() != vocab * targets.len() {
            return Err(KernelError::new(format!(
                "{} logits for {} targets over {vocab}",
                logits.len(),
                targets.len()
            )));
        }
        let fits = |target: &i64| *target == IGNORED || (0..vocab as i64).contains(target);
        if let Some(target) = targets.iter().find(|target| !fits(target)) {
            return Err(KernelError::new(format!(
                "target {target} is outside the vocabulary of {vocab}"
            )));
        }
        Ok(Self { logits, targets, vocab })
    }
}

struct LossForward<'a> {
    logits: &'a [f32],
    targets: &'a [i64],
    nll: &'a mut [f32],
    lse: &'a mut [f32],
}

impl Vectorised for LossForward<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let LossForward { logits, targets, nll, lse } = self;
        let vocab = logits.len() / targets.len().max(1);
        let rows = logits.chunks_exact(vocab).zip(targets);
        for ((row, target), (nll, lse)) in rows.zip(nll.iter_mut().zip(lse)) {
            let most = max(row);
            let sum = sum_exp::<FMA>(row, most);
            let log_sum = f64::from(most) + libm::log(f64::from(sum));
            *lse = log_sum as f32;
            *nll = match usize::try_from(*target) {
                Ok(target) => (log_sum - f64::from(row[target])) as f32,
                Err(_) => 0.0,
            };
        }
    }
}

/// d holds logits, then spread · exp(logits − lse).
struct LossBackward<'a> {
    d: &'a mut [f32],
    lse: f32,
    spread: f32,
}

impl Vectorised for LossBackward<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        for d in self.d.iter_mut() {
            *d = self.spread * exp::<FMA>(*d - self.lse);
        }
    }
}
