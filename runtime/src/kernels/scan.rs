//! Linear recurrences with a matrix per head: one token at a time in plain tch, which defines each scan, and in Rust in
//! chunks, or for as few tokens as decoding has, one after another.
//!
//! Operands are [b, t, h, …]; gradients are from zero state. bf16 operands give bf16 results; sums and states are always
//! f32 (docs/numerics.md). All forms compute one function, and forward(a ++ b, s) = forward(a, s) ++ forward(b, state
//! after a). The references' gradients keep every token's state, so their memory grows with time.

pub(crate) mod results;
mod operands;
mod chunk;
mod channel;
pub mod delta;
pub mod dplr;
mod fused;
pub mod gla;
mod low_rank;
pub mod rwkv6;
mod scalar;
pub mod ssd;
mod token;
#[cfg(test)]
mod tests;

use compiler::op::ScanKind;
pub use results::Scanned;
use tch::{Kind, Tensor};

use super::path::Path;
use super::{KernelError, cuda};

/// Tokens per chunk where one gate decays the whole state.
const SCALAR_CHUNK: usize = 64;
/// Tokens per chunk where each channel has its own gate, and pairs of tokens cost more.
const CHANNEL_CHUNK: usize = 16;

/// What may differ from a scan's usual form.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The factor of queries; none for the inverse root of their width.
    pub scale: Option<f64>,
    /// Updates of the state for each token.
    pub steps: i64,
}

impl Settings {
    /// One update a token, and the usual factor.
    pub const USUAL: Settings = Settings { scale: None, steps: 1 };

    fn is_usual(self) -> bool {
        self == Self::USUAL
    }
}

type Result<T> = std::result::Result<T, KernelError>;

/// y and the state after, from the operands in the order of the scan's definition.
pub fn forward(
    scan: ScanKind,
    path: Path,
    x: &[&Tensor],
    state: Option<&Tensor>,
    settings: Settings,
) -> Result<Scanned> {
    let Settings { scale, steps } = known(scan, settings)?;
    if steps > 1 {
        let spread = delta::Spread::new(x, steps)?;
        let once = Settings { steps: 1, ..settings };
        let Scanned { y, state } = forward(scan, path, &spread.operands(), state, once)?;
        return Ok(Scanned { y: spread.last(&y)?, state });
    }
    if let (Path::Cuda(_), Some(first)) = (path, x.first()) {
        return cuda::scan::forward(cuda::launcher(first.device())?, scan, x, state, scale);
    }
    match scan {
        ScanKind::Delta => {
            delta::forward(path, delta::DeltaOperands::from_inputs(x, scale)?, state)
        }
        ScanKind::Dplr => dplr::forward(path, dplr::DplrOperands::from_inputs(x, scale)?, state),
        ScanKind::Gla => gla::forward(path, gla::GlaOperands::from_inputs(x, scale)?, state),
        ScanKind::Rwkv6 => rwkv6::forward(path, rwkv6::Rwkv6Operands::from_inputs(x)?, state),
        ScanKind::Ssd => ssd::forward(path, ssd::SsdOperands::from_inputs(x)?, state),
    }
}

/// From zero state: the gradient of each operand.
pub fn backward(
    scan: ScanKind,
    path: Path,
    dy: &Tensor,
    x: &[&Tensor],
    settings: Settings,
) -> Result<Vec<Tensor>> {
    let Settings { scale, steps } = known(scan, settings)?;
    if steps > 1 {
        let spread = delta::Spread::new(x, steps)?;
        let once = Settings { steps: 1, ..settings };
        let gradients = backward(scan, path, &spread.at_last(dy)?, &spread.operands(), once)?;
        return spread.gradients(gradients);
    }
    if let Path::Cuda(_) = path {
        return cuda::scan::backward(cuda::launcher(dy.device())?, scan, dy, x, scale);
    }
    Ok(match scan {
        ScanKind::Delta => {
            delta::backward(path, dy, delta::DeltaOperands::from_inputs(x, scale)?)?.into()
        }
        ScanKind::Dplr => {
            dplr::backward(path, dy, dplr::DplrOperands::from_inputs(x, scale)?)?.into()
        }
        ScanKind::Gla => gla::backward(path, dy, gla::GlaOperands::from_inputs(x, scale)?)?.into(),
        ScanKind::Rwkv6 => rwkv6::backward(path, dy, rwkv6::Rwkv6Operands::from_inputs(x)?)?.into(),
        ScanKind::Ssd => ssd::backward(path, dy, ssd::SsdOperands::from_inputs(x)?)?.into(),
    })
}

/// The settings, if the scan has such.
fn known(scan: ScanKind, settings: Settings) -> Result<Settings> {
    let has = match scan {
        ScanKind::Delta => settings.steps >= 1,
        ScanKind::Dplr | ScanKind::Gla => settings.steps == 1,
        ScanKind::Rwkv6 | ScanKind::Ssd => settings.is_usual(),
    };
    if has {
        Ok(settings)
    } else {
        Err(KernelError::new(format!("{scan:?} has no form with {settings:?}")))
    }
}

/// Compiled CUDA kernels are called before a scan's own file is asked.
fn not_here() -> KernelError {
    KernelError::new(
        "a scan on CUDA was given to the CPU's\nhelp: this is a bug in canonc".to_owned(),
    )
}

/// As many operands as a scan takes.
pub(super) fn exactly<'a, const N: usize>(x: &[&'a Tensor]) -> Result<[&'a Tensor; N]> {
    x.try_into().map_err(|_| {
        KernelError::new(format!("a scan takes {N} operands, and these are {}", x.len()))
    })
}

/// Step t of [b, t, …].
fn at(x: &Tensor, t: i64) -> Result<Tensor> {
    Ok(x.f_select(1, t)?)
}

/// a bᵀ: [b, h, d] and [b, h, e] -> [b, h, d, e].
fn outer(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    Ok(a.f_unsqueeze(-1)?.f_mul(&b.f_unsqueeze(-2)?)?)
}

/// S x: [b, h, d, e] and [b, h, e] -> [b, h, d].
fn apply(state: &Tensor, x: &Tensor) -> Result<Tensor> {
    Ok(state.f_matmul(&x.f_unsqueeze(-1)?)?.f_squeeze_dim(-1)?)
}

/// Sᵀ x: [b, h, d, e] and [b, h, d] -> [b, h, e].
fn apply_t(state: &Tensor, x: &Tensor) -> Result<Tensor> {
    Ok(x.f_unsqueeze(-2)?.f_matmul(state)?.f_squeeze_dim(-2)?)
}

/// Sum over the last `axes` axes.
fn sum_last(x: &Tensor, axes: i64) -> Result<Tensor> {
    let axes: Vec<i64> = (1..=axes).map(|axis| -axis).collect();
    Ok(x.f_sum_dim_intlist(axes.as_slice(), false, None::<Kind>)?)
}

/// Broadcasts a number per head over the matrix: [b, h] -> [b, h, 1, 1].
fn over_matrix(x: &Tensor) -> Result<Tensor> {
    Ok(x.f_unsqueeze(-1)?.f_unsqueeze(-1)?)
}

/// Joins pieces made from the last token to the first into [b, t, …].
fn reversed(mut pieces: Vec<Tensor>) -> Result<Tensor> {
    pieces.reverse();
    Ok(Tensor::f_stack(&pieces, 1)?)
}

/// Operands in the state's dtype: f32, or f64 for f64 operands.
fn wide<const N: usize>(operands: [&Tensor; N]) -> Result<[Tensor; N]> {
    let is_half = |x: &Tensor| matches!(x.kind(), Kind::BFloat16 | Kind::Half);
    cast(operands, operands.map(|x| if is_half(x) { Kind::Float } else { x.kind() }))
}

/// Results in the dtype of their operands.
fn narrow<const N: usize>(results: &[Tensor; N], like: [&Tensor; N]) -> Result<[Tensor; N]> {
    cast(results.each_ref(), like.map(Tensor::kind))
}

/// Casts tensors; those that already have their kind are returned unchanged.
fn cast<const N: usize>(tensors: [&Tensor; N], kinds: [Kind; N]) -> Result<[Tensor; N]> {
    let cast = tensors.iter().zip(kinds).map(|(x, kind)| Ok(x.f_to_kind(kind)?));
    let cast = cast.collect::<Result<Vec<Tensor>>>()?;
    cast.try_into().map_err(|_| KernelError::new("a scan lost an operand".to_owned()))
}

/// The given state, or zeros.
fn start(state: Option<&Tensor>, size: [i64; 4], like: &Tensor) -> Result<Tensor> {
    match state {
        Some(state) if state.size() == size => Ok(state.shallow_clone()),
        Some(state) => Err(KernelError::new(format!(
            "a scan's state of shape {:?}, expected {size:?}",
            state.size()
        ))),
        None => Ok(Tensor::f_zeros(size, (like.kind(), like.device()))?),
    }
}

/// The sizes [b, t, h, d], or why the shape is wrong.
pub(super) fn four(what: &str, x: &Tensor) -> Result<[i64; 4]> {
    match x.size().as_slice() {
        [b, t, h, d] => Ok([*b, *t, *h, *d]),
        size => Err(KernelError::new(format!("a scan takes {what} as [b, t, h, d], got {size:?}"))),
    }
}

/// The factor of queries of width d: the given one, or 1/sqrt(d).
pub(super) fn scale(given: Option<f64>, d: i64) -> f64 {
    given.unwrap_or(1.0 / (d as f64).sqrt())
}
