//! ReLU² of an MLP, max(x, 0)² (So et al. 2021), and its gradient.
//!
//! It is elementwise, so the bits do not depend on threads or register width.

use tch::{Kind, Tensor};

use super::KernelError;
use super::ffi::{self, Cut, Vectorised};
use super::lanes::{load, store};
use super::linear::grain;
use super::path::Path;

const CHUNK: usize = 4096;

pub fn forward(path: Path, x: &Tensor) -> Result<Tensor, KernelError> {
    let isa = match path {
        Path::Fused(isa) => isa,
        Path::Reference(_) | Path::Cuda(_) => return Ok(x.f_relu()?.f_square()?),
    };
    let x = x.f_contiguous()?;
    let mut y = Tensor::f_empty(x.size(), (Kind::Float, x.device()))?;
    let xs = ffi::slice(&x)?;
    let out = ffi::slice_mut(&mut y, &[&x])?;
    ffi::parallel_cuts(
        xs.len().div_ceil(CHUNK),
        grain(CHUNK),
        [Cut { data: out, chunk: CHUNK }],
        |chunk, [y]| {
            let x = &xs[chunk * CHUNK..][..y.len()];
            ffi::run_on(isa, Forward { x, y });
        },
    );
    Ok(y)
}

/// dx = 2 dy ⊙ max(x, 0).
pub fn backward(path: Path, dy: &Tensor, x: &Tensor) -> Result<Tensor, KernelError> {
    let isa = match path {
        Path::Fused(isa) => isa,
        Path::Reference(_) | Path::Cuda(_) => {
            return Ok(x.f_relu()?.f_mul(dy)?.f_mul_scalar(2.0)?);
        }
    };
    let (dy, x) = (dy.f_contiguous()?, x.f_contiguous()?);
    let mut dx = Tensor::f_empty(x.size(), (Kind::Float, x.device()))?;
    let (dys, xs) = (ffi::slice(&dy)?, ffi::slice(&x)?);
    if dys.len() != xs.len() {
        let message = format!("gradient of relu_squared of {} and {}", dys.len(), xs.len());
        return Err(KernelError::new(format!("{message} elements")));
    }
    let out = ffi::slice_mut(&mut dx, &[&dy, &x])?;
    ffi::parallel_cuts(
        xs.len().div_ceil(CHUNK),
        grain(CHUNK),
        [Cut { data: out, chunk: CHUNK }],
        |chunk, [dx]| {
            let at = chunk * CHUNK;
            let (dy, x) = (&dys[at..][..dx.len()], &xs[at..][..dx.len()]);
            ffi::run_on(isa, Backward { dy, x, dx });
        },
    );
    Ok(dx)
}

struct Forward<'a> {
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Vectorised for Forward<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        #[inline(always)]
        fn strip<const W: usize>(work: &mut Forward<'_>, at: usize) {
            let x = load::<W>(work.x, at).map(relu);
            store(work.y, at, &x.map(|x| x * x));
        }
        let mut work = self;
        let count = work.y.len();
        let bulk = count - count % LANES;
        (0..bulk).step_by(LANES).for_each(|at| strip::<LANES>(&mut work, at));
        (bulk..count).for_each(|at| strip::<1>(&mut work, at));
    }
}

struct Backward<'a> {
    dy: &'a [f32],
    x: &'a [f32],
    dx: &'a mut [f32],
}

impl Vectorised for Backward<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        #[inline(always)]
        fn strip<const W: usize>(work: &mut Backward<'_>, at: usize) {
            let (dy, x) = (load::<W>(work.dy, at), load::<W>(work.x, at));
            let dx: [f32; W] = std::array::from_fn(|l| relu(x[l]) * dy[l] * 2.0);
            store(work.dx, at, &dx);
        }
        let mut work = self;
        let count = work.dx.len();
        let bulk = count - count % LANES;
        (0..bulk).step_by(LANES).for_each(|at| strip::<LANES>(&mut work, at));
        (bulk..count).for_each(|at| strip::<1>(&mut work, at));
    }
}

/// max(x, 0), and NaN of NaN as in libtorch.
#[inline(always)]
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}
