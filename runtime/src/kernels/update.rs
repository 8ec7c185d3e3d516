//! The end of a step: sums of gradients, their norm, clipping, and AdamW (Loshchilov and Hutter 2019, algorithm 2;
//! docs/numerics.md).
//!
//! Sums of squares run in f64, by chunks of CHUNK in order, tensor after tensor, and AdamW is elementwise; so threads
//! change no bit.

pub(crate) mod operands;

use operands::Factors;
pub use operands::Update;
use tch::{Device, Kind, Tensor};

use super::ffi::{self, Cut, Vectorised};
use super::lanes::mul_add;
use super::linear::grain;
use super::path::Path;
use super::{Isa, KernelError, cuda};
use scale::shard::BLOCK;

/// Elements per chunk. Ranks own whole chunks, so that this sum does not depend on their number.
const CHUNK: usize = BLOCK as usize;

/// a + b, stored in a.
pub fn accumulate(a: &Tensor, b: &Tensor) -> Result<Tensor, KernelError> {
    Ok(a.shallow_clone().f_add_(b)?)
}

/// sqrt Σ g², [] f64.
pub fn grad_norm(path: Path, gradients: &[&Tensor]) -> Result<Tensor, KernelError> {
    let isa = match path {
        Path::Fused(isa) => isa,
        Path::Cuda(_) => {
            let device = gradients.first().map_or(Device::Cpu, |g| g.device());
            return cuda::update::grad_norm(cuda::launcher(device)?, gradients);
        }
        Path::Reference(_) => {
            let device = gradients.first().map_or(Device::Cpu, |g| g.device());
            let mut sum = Tensor::f_zeros([0i64; 0].as_slice(), (Kind::Double, device))?;
            for g in gradients {
                sum = sum.f_add(&g.f_to_kind(Kind::Double)?.f_square()?.f_sum(None::<Kind>)?)?;
            }
            return Ok(sum.f_sqrt()?);
        }
    };
    let mut sums = Vec::with_capacity(gradients.len());
    for g in gradients {
        sums.push(block_sums(isa, g)?);
    }
    Ok(Tensor::from(norm_of_blocks(&sums)))
}

/// Σ g² over each chunk of a gradient, in order.
pub(crate) fn block_sums(isa: Isa, g: &Tensor) -> Result<Vec<f64>, KernelError> {
    let g = g.f_contiguous()?;
    let g = ffi::slice(&g)?;
    let mut sums = vec![0.0f64; g.len().div_ceil(CHUNK)];
    ffi::parallel_cuts(
        sums.len(),
        grain(CHUNK),
        [Cut { data: &mut sums, chunk: 1 }],
        |chunk, [sum]| {
            let last = g.len().min((chunk + 1) * CHUNK);
            ffi::run_on(isa, Squares { g: &g[chunk * CHUNK..last], into: &mut sum[0] });
        },
    );
    Ok(sums)
}

/// The norm from each gradient's sums over chunks.
pub(crate) fn norm_of_blocks(sums: &[Vec<f64>]) -> f64 {
    let mut total = 0.0f64;
    for sums in sums {
        total += sums.iter().sum::<f64>();
    }
    total.sqrt()
}

/// Σ g² over the blocks of each gradient, in order, for ranks that each have some of the blocks. From a GPU all of them
/// come in one copy.
pub(crate) fn sums_by_block(gradients: &[Tensor]) -> Result<Vec<Vec<f64>>, KernelError> {
    let device = gradients.first().map_or(Device::Cpu, Tensor::device);
    let Some(launcher) = on_gpu(device)? else {
        return gradients.iter().map(|g| block_sums(Isa::of_process(), g)).collect();
    };
    let sums = cuda::update::square_sums(launcher, &gradients.iter().collect::<Vec<_>>())?;
    let sums: Vec<f64> = Vec::try_from(&sums.f_to_device(Device::Cpu)?)?;
    let mut rest = sums.as_slice();
    let mut blocks_of = |g: &Tensor| {
        let count = g.numel().div_ceil(CHUNK);
        let (blocks, others) = rest.split_at_checked(count).ok_or_else(|| {
            KernelError::new(format!("{} sums of squares for {count} blocks", rest.len()))
        })?;
        rest = others;
        Ok(blocks.to_vec())
    };
    gradients.iter().map(&mut blocks_of).collect()
}

/// The norm from all blocks' sums, with the bits that [`grad_norm`] of whole gradients has on this device.
pub(crate) fn norm_by_block(sums: &[Vec<f64>], device: Device) -> Result<f64, KernelError> {
    let Some(launcher) = on_gpu(device)? else { return Ok(norm_of_blocks(sums)) };
    let sums = Tensor::f_from_slice(&sums.concat())?.f_to_device(device)?; // [blocks]
    Ok(cuda::update::norm_of_sums(launcher, &sums)?.f_double_value(&[])?)
}

/// The launcher of our kernels if this device has them. The CPU has kernels of its own.
fn on_gpu(device: Device) -> Result<Option<&'static gpu::Launcher>, KernelError> {
    match (device, cuda::launcher(device)) {
        (_, Ok(launcher)) => Ok(Some(launcher)),
        (Device::Cpu, Err(_)) => Ok(None),
        (Device::Cuda(_) | Device::Mps | Device::Vulkan, Err(why)) => Err(why),
    }
}

/// min(1, max / (norm + 1e-6)), or 1; [] f64.
pub fn clip(norm: &Tensor, max: Option<f64>) -> Result<Tensor, KernelError> {
    Ok(match max {
        Some(max) => {
            norm.f_add_scalar(1e-6)?.f_reciprocal()?.f_mul_scalar(max)?.f_clamp_max(1.0)?
        }
        None => norm.f_ones_like()?,
    })
}

/// Settings of an AdamW update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub decay: f64,
    pub lr: f64,
    /// 1 for the first update.
    pub step: i64,
}

impl AdamW {
    /// The numbers of an update, each computed in f64 and rounded once.
    fn factors(&self, coefficient: f32) -> Factors {
        let AdamW { beta1, beta2, eps, decay, lr, step: _ } = *self;
        let (first, second) = self.corrections();
        Factors {
            coefficient,
            keep: (1.0 - lr * decay) as f32,
            beta1: beta1 as f32,
            rest1: (1.0 - beta1) as f32,
            beta2: beta2 as f32,
            rest2: (1.0 - beta2) as f32,
            root: (1.0 / second.sqrt()) as f32,
            eps: eps as f32,
            rate: (lr / first) as f32,
        }
    }

    /// 1 − βⁿ.
    fn corrections(&self) -> (f64, f64) {
        let n = self.step as f64;
        (1.0 - libm::pow(self.beta1, n), 1.0 - libm::pow(self.beta2, n))
    }
}

/// Updates p, m and v in place, and writes the copy of p.
pub fn adamw(
    path: Path,
    update: Update<'_>,
    options: AdamW,
) -> Result<(Tensor, Tensor, Tensor), KernelError> {
    let AdamW { beta1, beta2, eps, decay, lr, step: _ } = options;
    let Update { p, g, m, v, coefficient, copy } = update;
    let (mut p, mut m, mut v) = (p.shallow_clone(), m.shallow_clone(), v.shallow_clone());
    match path {
        Path::Cuda(_) => {
            // The kernel reads the coefficient where it is, on the device.
            let factors = options.factors(f32::NAN);
            cuda::update::adamw(cuda::launcher(p.device())?, update, factors)?;
            return Ok((p, m, v));
        }
        Path::Reference(_) => {
            let (first, second) = options.corrections();
            let g = g.f_mul(&coefficient.f_to_kind(g.kind())?)?;
            let _ = p.f_mul_scalar_(1.0 - lr * decay)?;
            let _ = m.f_mul_scalar_(beta1)?;
            let _ = m.f_add_(&g.f_mul_scalar(1.0 - beta1)?)?;
            let _ = v.f_mul_scalar_(beta2)?;
            let _ = v.f_add_(&g.f_square()?.f_mul_scalar(1.0 - beta2)?)?;
            let root = v.f_sqrt()?.f_mul_scalar(1.0 / second.sqrt())?.f_add_scalar(eps)?;
            let _ = p.f_sub_(&m.f_div(&root)?.f_mul_scalar(lr / first)?)?;
        }
        Path::Fused(isa) => {
            let g = g.f_contiguous()?;
            let gs = ffi::slice(&g)?;
            let factors = options.factors(coefficient.f_double_value(&[])? as f32);
            let count = gs.len();
            let outs = [
                ffi::slice_mut(&mut p, &[&g])?,
                ffi::slice_mut(&mut m, &[&g])?,
                ffi::slice_mut(&mut v, &[&g])?,
            ];
            if outs.iter().any(|out| out.len() != count) {
                return Err(KernelError::new(format!("AdamW with {count} gradients for others")));
            }
            ffi::parallel_cuts(
                count.div_ceil(CHUNK),
                grain(CHUNK),
                outs.map(|data| Cut { data, chunk: CHUNK }),
                |chunk, [p, m, v]| {
                    let g = &gs[chunk * CHUNK..][..p.len()];
                    ffi::run_on(isa, Step { p, g, m, v, factors });
                },
            );
        }
    }
    if let Some(copy) = copy {
        copy.shallow_clone().f_copy_(&p)?;
    }
    Ok((p, m, v))
}

struct Squares<'a> {
    g: &'a [f32],
    into: &'a mut f64,
}

impl Vectorised for Squares<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        const W: usize = 8;
        let mut sums = [0.0f64; W];
        let bulk = self.g.chunks_exact(W);
        let rest = bulk.remainder();
        for g in bulk {
            for l in 0..W {
                let g = f64::from(g[l]);
                sums[l] += g * g;
            }
        }
        for (sum, g) in sums.iter_mut().zip(rest) {
            *sum += f64::from(*g) * f64::from(*g);
        }
        *self.into = sums.iter().sum();
    }
}

struct Step<'a> {
    p: &'a mut [f32],
    g: &'a [f32],
    m: &'a mut [f32],
    v: &'a mut [f32],
    factors: Factors,
}

impl Vectorised for Step<'_> {
    #[inline(always)]
    fn run<const FMA: bool, const LANES: usize>(self) {
        let Step { p, g, m, v, factors: f } = self;
        let state = p.iter_mut().zip(m.iter_mut()).zip(v.iter_mut());
        for (((p, m), v), g) in state.zip(g) {
            let g = f.coefficient * g;
            *m = mul_add::<FMA>(f.beta1, *m, f.rest1 * g);
            *v = mul_add::<FMA>(f.beta2, *v, f.rest2 * g * g);
            let root = mul_add::<FMA>(v.sqrt(), f.root, f.eps);
            *p = mul_add::<FMA>(f.keep, *p, -(f.rate * (*m / root)));
        }
    }
}
