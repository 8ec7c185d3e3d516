//! Speed of the Canon layer compared with the code it replaces, forward and backward, in one process.
//! In: a shape and a number of rounds. Out: the times of libtorch's grouped conv1d and of shifted products in tch (both
//! with libtorch's autograd, as in PyTorch code) and of our kernel. Must stay true: all compute the same layer
//! (residual, no activation); a round times each once, in turn, so a busy moment affects all; results are medians. The
//! caller prints.

pub mod data;
pub mod decode;
pub mod scan;
pub mod step;

use std::hint::black_box;
use std::time::Instant;

use tch::{Device, Kind, Tensor};

use crate::kernels::KernelError;
use crate::kernels::canon::{self, Activation, Operands, Options, Path};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CanonShape {
    pub batch: i64,
    pub time: i64,
    pub channels: i64,
    pub kernel: i64,
}

/// The two shapes of the project's claim about speed.
pub const CANON_SHAPES: [CanonShape; 2] = [
    CanonShape { batch: 4, time: 1024, channels: 768, kernel: 4 },
    CanonShape { batch: 8, time: 512, channels: 256, kernel: 4 },
];

/// Milliseconds of a forward and a backward pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    pub median: f64,
    pub fastest: f64,
    pub slowest: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CanonBench {
    pub shape: CanonShape,
    pub threads: i32,
    pub rounds: usize,
    /// The path of our kernel.
    pub path: Path,
    pub conv1d: Timing,
    pub shifted: Timing,
    pub ours: Timing,
    /// Median over rounds of conv1d's time divided by ours in that round.
    pub speedup: f64,
    /// Largest difference of y, dx and dw from conv1d's, relative to the largest magnitude in each.
    pub largest_difference: f64,
}

const OPTIONS: Options = Options { residual: true, activation: Activation::Identity };
const WARM_UP: usize = 3;

/// Times the three on random f32 data on the CPU. `rounds` must be at least 1.
pub fn canon(shape: CanonShape, rounds: usize) -> Result<CanonBench, KernelError> {
    let CanonShape { batch, time, channels, kernel } = shape;
    let cpu = (Kind::Float, Device::Cpu);
    let x = Tensor::f_randn([batch, time, channels], cpu)?;
    let dy = Tensor::f_randn([batch, time, channels], cpu)?;
    let weight = Tensor::f_randn([channels, kernel], cpu)?;
    let path = canon::choose(kernel, Kind::Float, Device::Cpu);

    let by_conv1d = |x: &Tensor, w: &Tensor| {
        let y = x
            .f_transpose(1, 2)?
            .f_conv1d(&w.f_unsqueeze(1)?, None::<Tensor>, 1, kernel - 1, 1, channels)?
            .f_narrow(2, 0, time)?
            .f_transpose(1, 2)?;
        Ok(y.f_add(x)?)
    };
    let by_shifts = |x: &Tensor, w: &Tensor| {
        let padded = x.f_constant_pad_nd([0, 0, kernel - 1, 0])?;
        let mut y = x.shallow_clone();
        for tap in 0..kernel {
            y = y.f_add(&padded.f_narrow(1, tap, time)?.f_mul(&w.f_select(1, tap)?)?)?;
        }
        Ok(y)
    };
    let ours = || {
        let operands = Operands { inputs: &[&x], weight: &weight, bias: None, state: None };
        let y = canon::forward(path, operands, OPTIONS)?;
        let gradients = canon::backward(path, &[&dy], operands, OPTIONS)?;
        Ok((y, gradients))
    };

    let theirs = autograd(by_conv1d, &x, &weight, &dy)?;
    let (y, gradients) = ours()?;
    let mine = [&y[0], &gradients.inputs[0], &gradients.weight];
    let mut largest_difference = 0.0f64;
    for (theirs, mine) in theirs.iter().zip(mine) {
        largest_difference = largest_difference.max(relative_difference(theirs, mine)?);
    }

    let mut times = [const { Vec::new() }; 4];
    for round in 0..WARM_UP + rounds.max(1) {
        let round_times = [
            clock(|| autograd(by_conv1d, &x, &weight, &dy))?,
            clock(|| autograd(by_shifts, &x, &weight, &dy))?,
            clock(|| autograd(|x, _| Ok(x.f_mul_scalar(1.0)?), &x, &weight, &dy))?,
            clock(ours)?,
        ];
        if round >= WARM_UP {
            times.iter_mut().zip(round_times).for_each(|(all, one)| all.push(one));
        }
    }
    // Subtract the cost of reducing to a loss, which is not the layer's: the time of the same code without the layer.
    let [conv1d, shifted, loss, ours] = times;
    let loss = Timing::from_times(&loss).median;
    let conv1d: Vec<f64> = conv1d.iter().map(|t| t - loss).collect();
    let shifted: Vec<f64> = shifted.iter().map(|t| t - loss).collect();
    let ratios: Vec<f64> = conv1d.iter().zip(&ours).map(|(theirs, ours)| theirs / ours).collect();
    Ok(CanonBench {
        shape,
        threads: tch::get_num_threads(),
        rounds: ours.len(),
        path,
        conv1d: Timing::from_times(&conv1d),
        shifted: Timing::from_times(&shifted),
        ours: Timing::from_times(&ours),
        speedup: Timing::from_times(&ratios).median,
        largest_difference,
    })
}

/// y and the gradients of x and weight, through libtorch's autograd.
fn autograd(
    layer: impl Fn(&Tensor, &Tensor) -> Result<Tensor, KernelError>,
    x: &Tensor,
    weight: &Tensor,
    dy: &Tensor,
) -> Result<Vec<Tensor>, KernelError> {
    let x = x.f_detach()?.f_set_requires_grad(true)?;
    let weight = weight.f_detach()?.f_set_requires_grad(true)?;
    let y = layer(&x, &weight)?;
    // The unused term keeps `weight` in the graph of a layer that does not use it.
    let loss =
        y.f_mul(dy)?.f_sum(None::<Kind>)?.f_add(&weight.f_sum(None::<Kind>)?.f_mul_scalar(0.0)?)?;
    let mut results = vec![y.f_detach()?];
    results.extend(Tensor::f_run_backward(&[loss], &[x, weight], false, false)?);
    Ok(results)
}

fn relative_difference(a: &Tensor, b: &Tensor) -> Result<f64, KernelError> {
    let largest = a.f_abs()?.f_max()?.f_double_value(&[])?;
    Ok(a.f_sub(b)?.f_abs()?.f_max()?.f_double_value(&[])? / largest.max(f64::MIN_POSITIVE))
}

fn clock<T>(work: impl Fn() -> Result<T, KernelError>) -> Result<f64, KernelError> {
    let start = Instant::now();
    let result = work()?;
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    drop(black_box(result));
    Ok(milliseconds)
}

impl Timing {
    fn from_times(times: &[f64]) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |i: usize| sorted.get(i).copied().unwrap_or(f64::NAN);
        Self {
            median: (at((sorted.len().max(1) - 1) / 2) + at(sorted.len() / 2)) / 2.0,
            fastest: at(0),
            slowest: at(sorted.len().max(1) - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contenders_compute_the_same_layer() {
        let shape = CanonShape { batch: 2, time: 70, channels: 19, kernel: 4 };
        let bench = canon(shape, 1).unwrap();
        assert!(bench.largest_difference < 1e-5, "{bench:?}");
        assert!(matches!(bench.path, Path::Fused(_)));
        assert_eq!(bench.rounds, 1);
    }

    #[test]
    fn a_median_of_an_even_number_is_between() {
        let Timing { median, fastest, slowest } = Timing::from_times(&[4.0, 1.0, 2.0, 8.0]);
        assert_eq!((median, fastest, slowest), (3.0, 1.0, 8.0));
    }
}
