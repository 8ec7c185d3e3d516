//! Times a training step as a run executes it, on random tokens, and the part of each kernel.
//!
//! A clock is read only when a GPU has done its work; its kernels are timed by events.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use compiler::analyse::analyse;
use compiler::graph::Graph;
use compiler::plan::{Precision, Sizes, Step, TrainOptions, Work};
use compiler::plans;
use records::platform::memory_limit;
use records::progress::bytes;
use report::statistics::median;
use runtime::execute::{ExecuteError, Machine, Moments, Paths, StepObserver, Trainer};
use runtime::kernels::transfer::wait_for;
use runtime::observe::observe;
use runtime::weights::Weights;
use runtime::{Device, Kind, Tensor};

use crate::turns::fastest;

/// The sizes of a step's batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepShape {
    /// Sequences.
    pub batch: i64,
    /// Tokens per sequence.
    pub seq_len: i64,
}

/// The times of a training step and their breakdown.
#[derive(Debug, Clone, PartialEq)]
pub struct StepBench {
    /// The batch.
    pub shape: StepShape,
    /// Threads of libtorch and of our kernels.
    pub threads: usize,
    /// Median milliseconds of forward and backward of one micro-batch.
    pub micro: f64,
    /// Median milliseconds of norm, clipping and AdamW.
    pub update: f64,
    /// The kernels of a micro-batch, the costliest first.
    pub kernels: Vec<KernelTime>,
    /// The work of the update.
    pub update_work: Work,
    /// The path of each kernel.
    pub paths: Paths,
    /// What the machine does at most.
    pub ceilings: Ceilings,
}

/// The time and work of all steps of one kernel in a micro-batch.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTime {
    /// Its name in plans.
    pub kernel: &'static str,
    /// Median milliseconds.
    pub ms: f64,
    /// Operations, and bytes of operands and results.
    pub work: Work,
}

/// The machine's speed at two simple things, measured now with all threads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceilings {
    /// Operations per second of a product of two 2048 × 2048 matrices.
    pub flops: f64,
    /// Bytes per second, read and written, of a copy of 256 MiB.
    pub bytes: f64,
}

/// A model and its optimizer, ready for training steps on random tokens.
#[derive(Debug)]
pub struct Stepper {
    trainer: Trainer,
    weights: Weights,
    moments: Moments,
    tokens: Tensor,
    targets: Tensor,
    scale: f64,
    steps: i64,
}

impl Stepper {
    /// Initial weights and one random batch.
    pub fn new(
        graph: &Graph,
        options: &TrainOptions,
        StepShape { batch, seq_len }: StepShape,
        machine: Machine,
    ) -> Result<Self, ExecuteError> {
        let plans = plans::train(graph, options);
        let sizes = Sizes { batch, time: seq_len, past: 0 };
        let (step, moments) =
            (plans.micro.memory(sizes), 8 * i128::from(analyse(graph, seq_len).parameters));
        let needed = step.inputs + step.peak + moments;
        if let (Device::Cpu, Some(limit)) = (machine.device, memory_limit())
            && needed > i128::from(limit.bytes)
        {
            return Err(ExecuteError::new(format!(
                "{batch} sequences of {seq_len} tokens need {} of memory, but {} {}\nhelp: give smaller numbers, or a \
                 smaller arch",
                bytes(u64::try_from(needed).unwrap_or(u64::MAX)),
                limit.by,
                bytes(limit.bytes)
            )));
        }
        let trainer = Trainer::new(plans, machine)?;
        let weights = weights(graph, machine)?;
        let moments = Moments::zeros(&weights, &options.updates)?;
        let ids = (Kind::Int64, machine.device);
        let tokens = Tensor::f_randint(graph.vocab, [batch, seq_len], ids)?;
        let targets = Tensor::f_randint(graph.vocab, [batch, seq_len], ids)?;
        let scale = 1.0 / (batch * seq_len) as f64;
        Ok(Self { trainer, weights, moments, tokens, targets, scale, steps: 0 })
    }

    /// One training step. Returns the times of forward and backward, and of the update.
    pub fn advance(
        &mut self,
        observer: Option<StepObserver<'_>>,
    ) -> Result<(Duration, Duration), ExecuteError> {
        let Self { trainer, weights, moments, tokens, targets, scale, steps } = self;
        *steps += 1;
        let began = Instant::now();
        let sums = trainer.micro_batch_timed(weights, tokens, targets, *scale, observer)?;
        let _ = sums.loss_sum()?;
        wait_for(trainer.machine().device)?;
        let micro = began.elapsed();
        let began = Instant::now();
        // It returns when the norm is known, while a GPU still updates.
        let _ = trainer.update(weights, moments, &sums.gradients, 1e-4, *steps)?;
        wait_for(trainer.machine().device)?;
        Ok((micro, began.elapsed()))
    }
}

/// Initial weights on a CPU. On a GPU any numbers of that size do, drawn where they are needed: those of a run would take
/// longer than its steps.
fn weights(graph: &Graph, machine: Machine) -> Result<Weights, ExecuteError> {
    match machine.device {
        Device::Cpu | Device::Mps | Device::Vulkan => {
            Weights::init(graph, 1)?.to(machine.device, machine.kind)
        }
        Device::Cuda(_) => {
            let drawn = graph.params().iter().map(|param| {
                let kind = (machine.kind, machine.device);
                Ok(Tensor::f_randn(param.shape.as_slice(), kind)?.f_mul_scalar(0.02)?)
            });
            let tensors = drawn.collect::<Result<_, ExecuteError>>()?;
            let paths = graph.params().iter().map(|param| param.path.clone()).collect();
            Ok(Weights::new(paths, tensors))
        }
    }
}

/// Times steps after `warm_up` untimed ones. `rounds` must be at least 1.
pub fn step(
    graph: &Graph,
    options: &TrainOptions,
    shape: StepShape,
    machine: Machine,
    (warm_up, rounds): (usize, usize),
) -> Result<StepBench, ExecuteError> {
    let mut stepper = Stepper::new(graph, options, shape, machine)?;
    for _ in 0..warm_up {
        stepper.advance(None)?;
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mut by_kernel: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    let (mut micros, mut updates) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        let mut round: BTreeMap<&'static str, Duration> = BTreeMap::new();
        let mut observer = |step: &Step, took: Duration| {
            *round.entry(step.kernel.name()).or_default() += took;
        };
        let (micro, update) = stepper.advance(Some(&mut observer))?;
        micros.push(ms(micro));
        updates.push(ms(update));
        for (kernel, took) in round {
            by_kernel.entry(kernel).or_default().push(ms(took));
        }
    }
    let paths = stepper.trainer.paths();
    // Its memory would be in the way of what follows.
    drop(stepper);
    let sizes = Sizes { batch: shape.batch, time: shape.seq_len, past: 0 };
    let plans = plans::train(graph, options);
    let work = plans.micro.work_by_kernel(sizes);
    let mut kernels: Vec<KernelTime> = by_kernel
        .into_iter()
        .map(|(kernel, times)| KernelTime {
            kernel,
            ms: median(&times),
            work: work.get(kernel).copied().unwrap_or_default(),
        })
        .collect();
    kernels.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    Ok(StepBench {
        shape,
        threads: observe().torch.threads,
        micro: median(&micros),
        update: median(&updates),
        kernels,
        update_work: plans.update.total_work(sizes),
        paths,
        ceilings: ceilings(machine, options.common.precision)?,
    })
}

/// Measures the machine: the fastest of a few matrix products and copies. Under bf16, the product is of the dtype that
/// the machine multiplies faster.
pub fn ceilings(machine: Machine, precision: Precision) -> Result<Ceilings, ExecuteError> {
    let flops = product(machine, machine.kind)?;
    let flops = match precision {
        Precision::F32 => flops,
        Precision::Bf16 => flops.max(product(machine, Kind::BFloat16)?),
    };
    Ok(Ceilings { flops, bytes: copy(machine)? })
}

fn product(machine: Machine, kind: Kind) -> Result<f64, ExecuteError> {
    const SIDE: i64 = 2048;
    let m = Tensor::f_randn([SIDE, SIDE], (Kind::Float, machine.device))?.f_to_kind(kind)?;
    let best = fastest(|| Ok::<_, ExecuteError>(m.f_mm(&m)?.f_double_value(&[0, 0])?))?;
    Ok(2.0 * (SIDE as f64).powi(3) / best)
}

fn copy(machine: Machine) -> Result<f64, ExecuteError> {
    const ELEMENTS: i64 = 1 << 26;
    let from = Tensor::f_ones([ELEMENTS], (Kind::Float, machine.device))?;
    let mut to = from.f_zeros_like()?;
    let best = fastest(|| {
        to.f_copy_(&from)?;
        Ok::<_, ExecuteError>(to.f_double_value(&[0])?)
    })?;
    Ok(2.0 * 4.0 * ELEMENTS as f64 / best)
}
