//! Muon (Jordan 2024): updates a matrix by its momentum, orthogonalised with the Newton-Schulz iteration
//! (docs/numerics.md). A parameter is [rows, columns], or several matrices of that shape; parameter and momentum change
//! in place.
//!
//! Everything is in the parameter's dtype, except sums of squares, which run in f64 by chunks, in order. Products are
//! those of projections. So threads change no bit of f32 on the CPU.

use compiler::plan::MuonScale;
use tch::{Kind, Tensor};

use super::KernelError;
use super::linear::{Product, linear};
use super::path::Path;
use super::update::{block_sums, norm_of_blocks};

/// Coefficients of an iteration: X ← a X + (b A + c A²) X, with A = X Xᵀ.
const STEP: [f64; 3] = [3.4445, -4.775, 2.0315];
/// Number of iterations.
const STEPS: usize = 5;
/// Added to the norm.
const EPS: f64 = 1e-7;

/// Settings of an update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Muon {
    pub momentum: f64,
    pub nesterov: bool,
    pub scale: MuonScale,
    pub decay: f64,
    pub lr: f64,
}

/// A parameter with its gradient, momentum and the clipping coefficient [] f64.
#[derive(Debug, Clone, Copy)]
pub struct Update<'a> {
    pub p: &'a Tensor,
    pub g: &'a Tensor,
    pub m: &'a Tensor,
    pub coefficient: &'a Tensor,
}

/// Updates p and m in place.
pub fn muon(
    path: Path,
    update: Update<'_>,
    options: Muon,
) -> Result<(Tensor, Tensor), KernelError> {
    let Muon { momentum, nesterov, scale, decay, lr } = options;
    let Update { p, g, m, coefficient } = update;
    let (mut p, mut m) = (p.shallow_clone(), m.shallow_clone());
    let size = p.size();
    let [.., rows, columns] = size[..] else {
        return Err(KernelError::new(format!("Muon with a parameter of shape {size:?}")));
    };
    let g = g.f_mul(&coefficient.f_to_kind(g.kind())?)?.f_mul_scalar(1.0 - momentum)?;
    let _ = m.f_mul_scalar_(momentum)?;
    let _ = m.f_add_(&g)?;
    let u = match nesterov {
        true => g.f_add(&m.f_mul_scalar(momentum)?)?,
        false => m.shallow_clone(),
    };
    let _ = p.f_mul_scalar_(1.0 - lr * decay)?;
    let step = lr * scale.factor(rows, columns);
    let matrices = [-1, rows, columns];
    let (all, u) = (p.f_view(matrices)?, u.f_reshape(matrices)?);
    for n in 0..all.size()[0] {
        let x = orthogonal(path, &u.f_get(n)?)?;
        let _ = all.f_get(n)?.f_sub_(&x.f_mul_scalar(step)?)?;
    }
    Ok((p, m))
}

/// The nearly orthogonal matrix of a matrix [rows, columns].
fn orthogonal(path: Path, u: &Tensor) -> Result<Tensor, KernelError> {
    let size = u.size();
    let tall = size[0] > size[1];
    let u = if tall { u.f_transpose(0, 1)? } else { u.shallow_clone() };
    let [a, b, c] = STEP;
    let product = Product::by(path);
    let times =
        |x: &Tensor, y: &Tensor| linear(product, x, &y.f_transpose(0, 1)?.f_contiguous()?, None);
    // On a device the norm stays there.
    let norm = match path {
        Path::Fused(isa) => Tensor::from(norm_of_blocks(&[block_sums(isa, &u)?])),
        Path::Cuda(_) | Path::Reference(_) => {
            u.f_to_kind(Kind::Double)?.f_square()?.f_sum(None::<Kind>)?.f_sqrt()?
        }
    };
    let mut x = u.f_div(&norm.f_add_scalar(EPS)?.f_to_kind(u.kind())?)?.f_contiguous()?;
    for _ in 0..STEPS {
        let gram = linear(product, &x, &x, None)?; // [short, short]
        let mut factor = times(&gram, &gram)?.f_mul_scalar(c)?;
        let _ = factor.f_add_(&gram.f_mul_scalar(b)?)?;
        x = x.f_mul_scalar(a)?.f_add(&times(&factor, &x)?)?;
    }
    Ok(if tall { x.f_transpose(0, 1)? } else { x })
}
