//! Estimates the time of a training step by running a few micro-batches and an update.
//!
//! Weights are drawn, also for a run that begins from others, and nothing is written. If a micro-batch would take too
//! long or does not fit in memory, its FLOPs are divided by the speed of a matrix product, and the result says so.

use std::time::Instant;

use dsl::Problem;
use tch::{Kind, Tensor};

use crate::execute::{ExecuteError, Machine, Trainer};
use crate::kernels::transfer::wait_for;
use crate::state::State;
use crate::state::{gradients, tensors};
use records::job::{Job, estimate, fits};
use records::platform::memory_limit;

/// Seconds per step, and how they were found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    pub step_seconds: f64,
    pub how: TimingMethod,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimingMethod {
    /// Micro-batches and an update were run.
    Run,
    /// The run does not fit, or would take too long: FLOPs divided by the measured speed of a matrix product.
    Flops,
}

/// A micro-batch estimated to take longer than this is not run.
const PATIENCE: f64 = 5.0;
const MICRO_BATCHES: usize = 3;

/// `flops` are those of one step, forward and backward.
pub fn time(job: &mut Job, machine: Machine, flops: f64) -> Result<Timing, Problem> {
    let speed = matmul_speed(machine)?;
    let step_seconds = flops / speed;
    // Small products are slower than a large one, so the FLOPs are a lower bound.
    let too_long = step_seconds / job.micro_batches.max(1) as f64 > PATIENCE;
    if too_long || fits(&estimate(job), memory_limit().as_ref()).is_err() {
        return Ok(Timing { step_seconds, how: TimingMethod::Flops });
    }
    let trainer = Trainer::new(job.plans.clone(), machine)?;
    let mut state = State::drawn(job, machine)?;
    let batches = job.batches(0)?;
    let Some(batch) = batches.first() else {
        return Ok(Timing { step_seconds, how: TimingMethod::Flops });
    };
    let (inputs, targets) = tensors(batch, machine.device)?;
    let mut fastest = f64::INFINITY;
    for _ in 0..MICRO_BATCHES {
        let start = Instant::now();
        let sums = trainer.micro_batch(&state.weights, &inputs, &targets, 1.0)?;
        // Read the value, so that work still queued on a device is done.
        sums.loss_sum()?;
        let seconds = start.elapsed().as_secs_f64();
        fastest = fastest.min(seconds);
        if seconds > PATIENCE {
            // An update is short compared with it.
            let step_seconds = fastest * job.micro_batches as f64;
            return Ok(Timing { step_seconds, how: TimingMethod::Run });
        }
    }
    let sums =
        gradients(&trainer, &state.weights, batches.get(..1).unwrap_or_default(), &[0], 1, 1)?;
    let start = Instant::now();
    trainer.update(&mut state.weights, &mut state.moments, &sums.gradients, 0.0, 1)?;
    wait_for(machine.device).map_err(ExecuteError::from)?;
    let update = start.elapsed().as_secs_f64();
    Ok(Timing { step_seconds: fastest * job.micro_batches as f64 + update, how: TimingMethod::Run })
}

/// FLOPs per second of a square product of f32.
fn matmul_speed(machine: Machine) -> Result<f64, ExecuteError> {
    const SIZE: i64 = 768;
    let a = Tensor::f_ones([SIZE, SIZE], (Kind::Float, machine.device))?;
    let mut fastest = f64::INFINITY;
    for _ in 0..3 {
        let start = Instant::now();
        a.f_matmul(&a)?.f_double_value(&[0, 0])?;
        fastest = fastest.min(start.elapsed().as_secs_f64());
    }
    Ok(2.0 * (SIZE as f64).powi(3) / fastest.max(1e-9))
}
