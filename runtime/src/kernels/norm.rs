//! RMS norm over the last axis (Zhang and Sennrich 2019). Statistics are in f32.
//!
//! ```text
//! x […, c], weight [c] -> y = weight ⊙ x · rstd, rstd […] = 1/sqrt(mean x² + eps)
//! ```
//!
//! The bits of the fused path do not depend on threads or register width: the weight's gradient is summed by chunks of
//! ROWS, in order.

use tch::{Kind, Tensor};

use super::ffi::{self, Cut, Vectorised};
use super::lanes::{dot, mul_add, sum_squares};
use super::linear::{AddRows, grain};
use super::path::Path;
use super::{Isa, KernelError, cuda};

/// y […, c] and rstd […].
pub fn rms_norm(
    path: Path,
    x: &Tensor,
    weight: &Tensor,
    eps: f64,
) -> Result<(Tensor, Tensor), KernelError> {
    match path {
        Path::Fused(isa) => fused_rms_norm(isa, x, weight, eps),
        Path::Cuda(_) => cuda::norm::forward(cuda::launcher(x.device())?, x, None, weight, eps),
        Path::Reference(_) => {
            let mean = x.f_square()?.f_mean_dim([-1i64].as_slice(), true, None::<Kind>)?;
            let rstd = mean.f_add_scalar(eps)?.f_rsqrt()?; // […, 1]
            let y = x.f_mul(&rstd)?.f_mul(weight)?;
            Ok((y, rstd.f_squeeze_dim(-1)?))
        }
    }
}

/// With n = x · rstd, g = dy ⊙ weight: dx = rstd (g − n mean(g ⊙ n)), dweight = Σ dy ⊙ n.
pub fn rms_norm_grad(
    path: Path,
    dy: &Tensor,
    x: &Tensor,
    weight: &Tensor,
    rstd: &Tensor,
) -> Result<(Tensor, Tensor), KernelError> {
    match path {
        Path::Fused(isa) => fused_rms_norm_grad(isa, dy, x, weight, rstd),
        Path::Cuda(_) => {
            let launcher = cuda::launcher(x.device())?;
            let (dx, _, dweight) = cuda::norm::backward(launcher, dy, x, None, weight, rstd)?;
            Ok((dx, dweight))
        }
        Path::Reference(_) => {
            let rstd = rstd.f_unsqueeze(-1)?;
            let n = x.f_mul(&rstd)?;
            let g = dy.f_mul(weight)?;
            let along = g.f_mul(&n)?.f_mean_dim([-1i64].as_slice(), true, None::<Kind>)?;
            let dx = g.f_sub(&n.f_mul(&along)?)?.f_mul(&rstd)?;
            let each = dy.f_mul(&n)?; // […, c]
            let leading: Vec<i64> = (0..each.dim() as i64 - 1).collect();
            let dweight = each.f_sum_dim_intlist(leading.as_slice(), false, None::<Kind>)?;
            Ok((dx, dweight))
        }
    }
}

/// Rows per chunk.
const ROWS: usize = 32;

fn fused_rms_norm(
    isa: Isa,
    x: &Tensor,
    weight: &Tensor,
    eps: f64,
) -> Result<(Tensor, Tensor), KernelError> {
    let size = x.size();
    let x = x.f_contiguous()?;
    let options = (Kind::Float, x.device());
    let mut y = Tensor::f_empty(&size, options)?;
    let mut rstd = Tensor::f_empty(size.split_last().map_or(&[][..], |(_, rest)| rest), options)?;
    let (xs, w) = (ffi::slice(&x)?, ffi::slice(weight)?);
    let width = width_of(xs, w)?;
    let rows = xs.len() / width;
    let (y_out, rstd_out) =
        (ffi::slice_mut(&mut y, &[&x, weight])?, ffi::slice_mut(&mut rstd, &[&x, weight])?);
    ffi::parallel_cuts(
        rows.div_ceil(ROWS),
        grain(ROWS * width),
        [Cut { data: y_out, chunk: ROWS * width }, Cut { data: rstd_out, chunk: ROWS }],
        |chunk, [y, rstd]| {
            let x = &xs[chunk * ROWS * width..][..y.len()];
            ffi::run_on(isa, RmsNormForward { x, w, eps: eps as f32, y, rstd });
        },
    );
    Ok((y, rstd))
}

fn fused_rms_norm_grad(
    isa: Isa,
    dy: &Tensor,
    x: &Tensor,
    weight: &Tensor,
    rstd: &Tensor,
) -> Result<(Tensor, Tensor), KernelError> {
    let (dy, x, rstd) = (dy.f_contiguous()?, x.f_contiguous()?, rstd.f_contiguous()?);
    let mut dx = Tensor::f_empty(x.size(), (Kind::Float, x.device()))?;
    let mut dweight = Tensor::f_empty(weight.size(), (Kind::Float, x.device()))?;
    let (dys, xs, w, rstds) =
        (ffi::slice(&dy)?, ffi::slice(&x)?, ffi::slice(weight)?, ffi::slice(&rstd)?);
    let width = width_of(xs, w)?;
    let rows = xs.len() / width;
    if dys.len() != xs.len() || rstds.len() != rows {
        return Err(KernelError::new(format!(
            "a norm's gradient of {rows} rows got dy of {} elements and {} statistics",
            dys.len(),
            rstds.len()
        )));
    }
    let chunks = rows.div_ceil(ROWS);
    let mut partials = vec![0.0f32; chunks * width];
    let dx_out = ffi::slice_mut(&mut dx, &[&dy, &x, weight, &rstd])?;
    ffi::parallel_cuts(
        chunks,
        grain(ROWS * width),
        [Cut { data: dx_out, chunk: ROWS * width }, Cut { data: &mut partials, chunk: width }],
        |chunk, [dx, dw]| {
            let first = chunk * ROWS;
            let (at, count) = (first * width, dx.len());
            let (dy, x) = (&dys[at..][..count], &xs[at..][..count]);
            let rstd = &rstds[first..][..count / width];
            ffi::run_on(isa, RmsNormBackward { dy, x, w, rstd, dx, dw });
        },
    );
    let out = ffi::slice_mut(&mut dweight, &[])?;
    out.fill(0.0);
    ffi::run_on(isa, AddRows { x: &partials, into: out });
    Ok((dx, dweight))
}

fn width_of(x: &[f32], weight: &[f32]) -> Result<usize, KernelError> {
    let width = weight.len();
    if width == 0 || !x.len().is_multiple_of(width) {
        return Err(KernelError::new(format!("a norm over {width} of {} elements", x.len())));
    }
    Ok(width)
}

struct RmsNormForward<'a> {
    x: &'a [f32],
    w: &'a [f32],
    eps: f32,
    y: &'a mut [f32],
    rstd: &'a mut [f32],
}

impl Vectorised for RmsNormForward<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let RmsNormForward { x, w, eps, y, rstd } = self;
        let width = w.len();
        let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width)).zip(rstd);
        for ((x, y), rstd) in rows {
            *rstd = 1.0 / (sum_squares::<FMA>(x) / width as f32 + eps).sqrt();
            for ((y, x), w) in y.iter_mut().zip(x).zip(w) {
                *y = x * *rstd * w;
            }
        }
    }
}

struct RmsNormBackward<'a> {
    dy: &'a [f32],
    x: &'a [f32],
    w: &'a [f32],
    rstd: &'a [f32],
    dx: &'a mut [f32],
    /// This chunk's share is added to it.
    dw: &'a mut [f32],
}

impl Vectorised for RmsNormBackward<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let RmsNormBackward { dy, x, w, rstd, dx, dw } = self;
        let width = w.len();
        let rows = dy.chunks_exact(width).zip(x.chunks_exact(width));
        for (((dy, x), dx), rstd) in rows.zip(dx.chunks_exact_mut(width)).zip(rstd) {
            // dx temporarily holds g.
            for ((g, dy), w) in dx.iter_mut().zip(dy).zip(w) {
                *g = dy * w;
            }
            let along = dot::<FMA>(dx, x) * rstd * rstd / width as f32; // mean(g ⊙ n) rstd
            for (((dx, x), dy), dw) in dx.iter_mut().zip(x).zip(dy).zip(dw.iter_mut()) {
                *dx = rstd * mul_add::<FMA>(-along, *x, *dx);
                *dw = mul_add::<FMA>(dy * rstd, *x, *dw);
            }
        }
    }
}
