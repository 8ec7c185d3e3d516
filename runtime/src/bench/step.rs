//! Speed of one training step, and the breakdown of its time.
//! In: a graph, a batch shape, a number of rounds. Out: milliseconds of forward and backward, of the update, and of
//! each kernel. Must stay true: it times exactly the code of a run, on random tokens; medians over rounds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use compiler::graph::Graph;
use compiler::plan::{Step, TrainOptions};
use compiler::plans;
use tch::{Kind, Tensor};

use super::Timing;
use crate::execute::{ExecuteError, Machine, Moments, Paths, StepObserver, Trainer};
use crate::weights::Weights;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepShape {
    pub batch: i64,
    pub seq_len: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StepBench {
    pub shape: StepShape,
    pub threads: i32,
    pub rounds: usize,
    /// Forward and backward of one micro-batch.
    pub micro: Timing,
    /// Norm, clipping, AdamW.
    pub update: Timing,
    /// Mean milliseconds of a micro-batch by kernel, the costliest first.
    pub kernels: Vec<(&'static str, f64)>,
    pub paths: Paths,
    /// The machine's peak speed in operations per second, from one product of two 2048 × 2048 matrices measured now.
    pub ceiling: f64,
}

/// Times steps after `warm_up` untimed ones. `rounds` must be at least 1.
pub fn step(
    graph: &Graph,
    options: &TrainOptions,
    shape: StepShape,
    machine: Machine,
    (warm_up, rounds): (usize, usize),
) -> Result<StepBench, ExecuteError> {
    let StepShape { batch, seq_len } = shape;
    let trainer = Trainer::new(plans::train(graph, options), machine)?;
    let mut weights = Weights::init(graph, 1)?.to(machine.device, machine.kind)?;
    let mut moments = Moments::zeros(&weights)?;
    let ids = (Kind::Int64, machine.device);
    let tokens = Tensor::f_randint(graph.vocab, [batch, seq_len], ids)?;
    let targets = Tensor::f_randint(graph.vocab, [batch, seq_len], ids)?;
    let scale = 1.0 / (batch * seq_len) as f64;
    let mut spent: BTreeMap<&'static str, Duration> = BTreeMap::new();
    let (mut micros, mut updates) = (Vec::new(), Vec::new());
    for round in 0..warm_up + rounds.max(1) {
        let timed = round >= warm_up;
        let mut observer = |step: &Step, took: Duration| {
            *spent.entry(step.kernel.name()).or_default() += took;
        };
        let began = Instant::now();
        let observer: Option<StepObserver<'_>> = if timed { Some(&mut observer) } else { None };
        let sums = trainer.micro_batch_timed(&weights, &tokens, &targets, scale, observer)?;
        let _ = sums.loss_sum()?; // a GPU is done when its number is here
        let micro = began.elapsed();
        let began = Instant::now();
        let _ =
            trainer.update(&mut weights, &mut moments, &sums.gradients, 1e-4, round as i64 + 1)?;
        if timed {
            micros.push(micro.as_secs_f64() * 1e3);
            updates.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    let mut kernels: Vec<(&'static str, f64)> = spent
        .into_iter()
        .map(|(kernel, spent)| (kernel, spent.as_secs_f64() * 1e3 / micros.len() as f64))
        .collect();
    kernels.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(StepBench {
        shape,
        threads: tch::get_num_threads(),
        rounds: micros.len(),
        micro: Timing::from_times(&micros),
        update: Timing::from_times(&updates),
        kernels,
        paths: trainer.paths(),
        ceiling: ceiling(machine)?,
    })
}

/// Operations per second of the fastest of a few matrix products.
fn ceiling(machine: Machine) -> Result<f64, ExecuteError> {
    const SIDE: i64 = 2048;
    let m = Tensor::f_randn([SIDE, SIDE], (machine.kind, machine.device))?;
    let mut best = f64::INFINITY;
    for _ in 0..6 {
        let began = Instant::now();
        let product = m.f_mm(&m)?;
        let _ = product.f_double_value(&[0, 0])?;
        best = best.min(began.elapsed().as_secs_f64());
    }
    Ok(2.0 * (SIDE as f64).powi(3) / best)
}
