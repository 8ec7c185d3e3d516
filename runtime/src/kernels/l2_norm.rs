//! L2 norm over the last axis, for queries and keys of the delta rule (Yang et al. 2024). Statistics are in f32.
//!
//! ```text
//! x […, c] -> y = x · rnorm, rnorm […] = 1/sqrt(Σ x² + eps)
//! ```
//!
//! Rows are independent, so the bits do not depend on threads or register width.

use tch::{Kind, Tensor};

use super::ffi::{self, Cut, Vectorised};
use super::lanes::{dot, mul_add, sum_squares};
use super::linear::grain;
use super::path::Path;
use super::{KernelError, cuda};

/// Rows per unit of work.
const ROWS: usize = 64;

/// y […, c] and rnorm […].
pub fn forward(path: Path, x: &Tensor, eps: f64) -> Result<(Tensor, Tensor), KernelError> {
    if let Path::Cuda(_) = path {
        return cuda::norm::l2_forward(cuda::launcher(x.device())?, x, eps);
    }
    let Path::Fused(isa) = path else {
        let sum = x.f_square()?.f_sum_dim_intlist([-1i64].as_slice(), true, None::<Kind>)?;
        let rnorm = sum.f_add_scalar(eps)?.f_rsqrt()?; // […, 1]
        return Ok((x.f_mul(&rnorm)?, rnorm.f_squeeze_dim(-1)?));
    };
    let x = x.f_contiguous()?;
    let (size, options) = (x.size(), (Kind::Float, x.device()));
    let mut y = Tensor::f_empty(&size, options)?;
    let mut rnorm = Tensor::f_empty(size.split_last().map_or(&[][..], |(_, rest)| rest), options)?;
    let (xs, width) = (ffi::slice(&x)?, width(&x)?);
    let rows = xs.len() / width;
    let outs = [
        Cut { data: ffi::slice_mut(&mut y, &[&x])?, chunk: ROWS * width },
        Cut { data: ffi::slice_mut(&mut rnorm, &[&x])?, chunk: ROWS },
    ];
    let count = rows.div_ceil(ROWS);
    ffi::parallel_cuts(count, grain(ROWS * width), outs, |chunk, [y, rnorm]| {
        let x = &xs[chunk * ROWS * width..][..y.len()];
        ffi::run_on(isa, L2NormForward { x, width, eps: eps as f32, y, rnorm });
    });
    Ok((y, rnorm))
}

/// dx = rnorm (dy − y Σ(dy ⊙ y)), with y = x · rnorm computed again: a rounded y is not orthogonal to dx.
pub fn backward(
    path: Path,
    dy: &Tensor,
    x: &Tensor,
    rnorm: &Tensor,
) -> Result<Tensor, KernelError> {
    if let Path::Cuda(_) = path {
        return cuda::norm::l2_backward(cuda::launcher(x.device())?, dy, x, rnorm);
    }
    let Path::Fused(isa) = path else {
        let y = x.f_mul(&rnorm.f_unsqueeze(-1)?)?;
        let along = dy.f_mul(&y)?.f_sum_dim_intlist([-1i64].as_slice(), true, None::<Kind>)?;
        return Ok(dy.f_sub(&y.f_mul(&along)?)?.f_mul(&rnorm.f_unsqueeze(-1)?)?);
    };
    let (dy, x, rnorm) = (dy.f_contiguous()?, x.f_contiguous()?, rnorm.f_contiguous()?);
    let mut dx = Tensor::f_empty(x.size(), (Kind::Float, x.device()))?;
    let (dys, xs, rnorms, width) =
        (ffi::slice(&dy)?, ffi::slice(&x)?, ffi::slice(&rnorm)?, width(&x)?);
    let rows = xs.len() / width;
    if dys.len() != xs.len() || rnorms.len() != rows {
        return Err(KernelError::new(format!(
            "an L2 norm's gradient of {rows} rows got dy of {} elements and {} statistics",
            dys.len(),
            rnorms.len()
        )));
    }
    let out = ffi::slice_mut(&mut dx, &[&dy, &x, &rnorm])?;
    let outs = [Cut { data: out, chunk: ROWS * width }];
    ffi::parallel_cuts(rows.div_ceil(ROWS), grain(ROWS * width), outs, |chunk, [dx]| {
        let at = chunk * ROWS * width;
        let (dy, x) = (&dys[at..][..dx.len()], &xs[at..][..dx.len()]);
        let rnorm = &rnorms[chunk * ROWS..][..dx.len() / width];
        ffi::run_on(isa, L2NormBackward { dy, x, rnorm, width, dx });
    });
    Ok(dx)
}

fn width(x: &Tensor) -> Result<usize, KernelError> {
    match x.size().last() {
        Some(width) if *width > 0 => Ok(*width as usize),
        Some(_) | None => Err(KernelError::new(format!("an L2 norm of shape {:?}", x.size()))),
    }
}

struct L2NormForward<'a> {
    x: &'a [f32],
    width: usize,
    eps: f32,
    y: &'a mut [f32],
    rnorm: &'a mut [f32],
}

impl Vectorised for L2NormForward<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let L2NormForward { x, width, eps, y, rnorm } = self;
        for ((x, y), rnorm) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)).zip(rnorm) {
            *rnorm = 1.0 / (sum_squares::<FMA>(x) + eps).sqrt();
            y.iter_mut().zip(x).for_each(|(y, x)| *y = x * *rnorm);
        }
    }
}

struct L2NormBackward<'a> {
    dy: &'a [f32],
    x: &'a [f32],
    rnorm: &'a [f32],
    width: usize,
    dx: &'a mut [f32],
}

impl Vectorised for L2NormBackward<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let L2NormBackward { dy, x, rnorm, width, dx } = self;
        let rows = dy.chunks_exact(width).zip(x.chunks_exact(width));
        for (((dy, x), dx), rnorm) in rows.zip(dx.chunks_exact_mut(width)).zip(rnorm) {
            dx.iter_mut().zip(x).for_each(|(y, x)| *y = x * rnorm);
            let along = dot::<FMA>(dy, dx);
            for (dx, dy) in dx.iter_mut().zip(dy) {
                *dx = rnorm * mul_add::<FMA>(-along, *dx, *dy);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::super::path::{self, Reason};
    use super::*;

    #[test]
    fn fused_is_the_reference() {
        let (fused, plain) =
            (path::choose(Kind::Float, Device::Cpu), Path::Reference(Reason::Asked));
        for size in [[1i64, 1, 1, 1], [2, 70, 3, 17], [1, 3, 2, 64], [2, 0, 3, 8]] {
            let count: i64 = size.iter().product();
            let x = (Tensor::arange(count, (Kind::Float, Device::Cpu)) * 0.7).sin().reshape(size);
            let dy = (Tensor::arange(count, (Kind::Float, Device::Cpu)) * 1.3).cos().reshape(size);
            let double = |x: &Tensor| x.to_kind(Kind::Double);
            let (y, rnorm) = forward(fused, &x, 1e-6).unwrap();
            let (want_y, want_rnorm) = forward(plain, &double(&x), 1e-6).unwrap();
            let dx = backward(fused, &dy, &x, &rnorm).unwrap();
            let want_dx = backward(plain, &double(&dy), &double(&x), &want_rnorm).unwrap();
            for (got, want) in [(y, want_y), (rnorm, want_rnorm), (dx, want_dx)] {
                assert_eq!(got.size(), want.size());
                assert!(double(&got).allclose(&want, 1e-4, 1e-5, false), "{size:?}");
            }
        }
    }

    #[test]
    fn threads_change_no_bit() {
        let path = path::choose(Kind::Float, Device::Cpu);
        let x = Tensor::arange(40_000, (Kind::Float, Device::Cpu)).sin().reshape([2, 250, 4, 20]);
        let before = tch::get_num_threads();
        let runs = [1, 3].map(|threads| {
            tch::set_num_threads(threads);
            let (_, rnorm) = forward(path, &x, 1e-6).unwrap();
            backward(path, &x.cos(), &x, &rnorm).unwrap()
        });
        tch::set_num_threads(before);
        assert!(runs[0].equal(&runs[1]));
    }
}
