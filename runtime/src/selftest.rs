//! Checks of a machine: published numbers, every kernel against its reference, and the time and memory of steps.
//!
//! The checks are the same on the CPU and on a GPU, except for the sizes. Results are values; nothing here prints or
//! decides an exit code.

pub mod goldens;
pub mod models;

use std::collections::BTreeMap;

use compiler::graph::{Graph, Param};
use compiler::kernel::{HeadLoss, HeadLossGrad, Kernel};
use compiler::plan::{Allocation, Bf16, Input, Output, Sizes, TrainOptions, ValId};
use compiler::plans;
use gpu::{Allocator, Held};
use tch::{Device, Kind, Tensor};

use crate::execute::{Compared, ExecuteError, Machine, compare};
use crate::kernels;
use crate::weights::Weights;

/// The shape of the batch on which kernels are compared: ragged for every tile.
const SIZES: Sizes = Sizes { batch: 2, time: 70, past: 0 };

/// Tokens of a chunk of the head.
const HEAD_ROWS: i64 = 64;

/// Every kernel of a model's training and evaluation plans against its reference.
pub fn kernels_of(
    graph: &Graph,
    options: &TrainOptions,
    machine: Machine,
) -> Result<Vec<Compared>, ExecuteError> {
    let inputs = RandomInputs::new(graph)?;
    let mut train = plans::train(graph, options);
    let mut evaluate = plans::evaluate(graph, options.loss, options.common);
    for step in train.micro.steps.iter_mut().chain(&mut evaluate.steps) {
        // Several chunks, so that their sums are checked too.
        if let Kernel::HeadLoss(HeadLoss { rows, .. })
        | Kernel::HeadLossGrad(HeadLossGrad { rows, .. }) = &mut step.kernel
        {
            *rows = HEAD_ROWS;
        }
    }
    let mut compared_paths: BTreeMap<(&'static str, String, bool), Compared> = BTreeMap::new();
    for plan in [&train.micro, &evaluate, &train.combine, &train.update] {
        for compared in compare(plan, machine, SIZES, |input| inputs.give(input))? {
            let key = (compared.kernel, compared.path.clone(), compared.bf16);
            match compared_paths.get_mut(&key) {
                None => {
                    compared_paths.insert(key, compared);
                }
                Some(known) => {
                    known.steps += compared.steps;
                    let off = compared.largest;
                    if off > known.largest || off.is_nan() {
                        known.largest = off;
                    }
                }
            }
        }
    }
    Ok(compared_paths.into_values().collect())
}

/// Inputs of a plan on the CPU.
struct RandomInputs {
    weights: Weights,
    tokens: Tensor,
    targets: Tensor,
}

impl RandomInputs {
    fn new(graph: &Graph) -> Result<Self, ExecuteError> {
        let cpu = (Kind::Int64, Device::Cpu);
        let weights = Weights::init(graph, 1)?;
        let Sizes { batch, time, past: _ } = SIZES;
        tch::manual_seed(1);
        let tokens = Tensor::f_randint(graph.vocab, [batch, time], cpu)?;
        let targets = Tensor::f_randint(graph.vocab, [batch, time], cpu)?;
        Ok(Self { weights, tokens, targets })
    }

    fn parameter(&self, index: u32) -> Result<Tensor, ExecuteError> {
        let tensor = self.weights.tensors.get(index as usize);
        tensor.map(Tensor::shallow_clone).ok_or_else(|| ExecuteError::new("no such parameter"))
    }

    /// Numbers from 0 to `most`, which serve as gradients and moments.
    fn noise(&self, index: u32, most: f64) -> Result<Tensor, ExecuteError> {
        Ok(self.parameter(index)?.f_rand_like()?.f_mul_scalar(most)?)
    }

    fn give(&self, input: Input) -> Result<Tensor, ExecuteError> {
        let Sizes { batch, time, past: _ } = SIZES;
        Ok(match input {
            Input::Tokens => self.tokens.shallow_clone(),
            Input::Targets => self.targets.shallow_clone(),
            Input::Position => Tensor::from(0i64),
            Input::GradScale => Tensor::from(1.0 / (batch * time) as f64),
            Input::DropoutKey | Input::Window => Tensor::from(5i64),
            Input::LearningRate => Tensor::from(1e-3),
            Input::StepNumber => Tensor::from(3i64),
            Input::Param(id) => self.parameter(id.0)?,
            Input::Rounded(id) => self.weights.rounded(id.0 as usize)?,
            Input::Gradient(id)
            | Input::FirstMoment(id)
            | Input::Left(Output::Gradient(id))
            | Input::Right(Output::Gradient(id)) => self.noise(id.0, 1e-2)?,
            Input::SecondMoment(id) => self.noise(id.0, 1e-4)?,
            Input::Left(Output::Counted) | Input::Right(Output::Counted) => Tensor::from(3i64),
            Input::Left(_) | Input::Right(_) => Tensor::from(0.25f64),
            Input::State(..) => return Err(ExecuteError::new("a training plan has no state")),
        })
    }
}

/// cuBLAS's workspace under `CUBLAS_WORKSPACE_CONFIG=:4096:8`, which libtorch takes from its allocator.
const CUBLAS: u64 = 8 * (4096 << 10);

/// Bytes that libtorch's allocator of a GPU reserves for a training step, by the plan: parameters and their rounded
/// copies, moments, a batch; then what the steps of a micro-batch allocate and free, in order.
pub fn predicted_bytes(graph: &Graph, options: &TrainOptions, sizes: Sizes) -> u64 {
    let bytes = |count: i128| u64::try_from(count).unwrap_or(0);
    let mut allocator = Allocator::default();
    let mut kept = vec![allocator.allocate(CUBLAS)];
    let elements = |param: &Param| param.shape.iter().product::<i64>();
    // Weights and both moments, in f32.
    for _ in 0..3 {
        for param in graph.params() {
            kept.push(allocator.allocate(bytes(4 * i128::from(elements(param)))));
        }
    }
    let plan = plans::train(graph, options).micro;
    for (input, id) in &plan.inputs {
        let count = match input {
            Input::Tokens | Input::Targets | Input::Rounded(_) => plan.bytes(*id, sizes),
            Input::Position
            | Input::GradScale
            | Input::DropoutKey
            | Input::Window
            | Input::LearningRate
            | Input::StepNumber
            | Input::Param(_)
            | Input::State(..)
            | Input::Left(_)
            | Input::Right(_)
            | Input::Gradient(_)
            | Input::FirstMoment(_)
            | Input::SecondMoment(_) => continue,
        };
        kept.push(allocator.allocate(bytes(count)));
    }
    let mut held: BTreeMap<ValId, Held> = BTreeMap::new();
    for allocation in plan.allocations(sizes, Bf16::Most) {
        match allocation {
            Allocation::Take(id, count) => {
                held.insert(id, allocator.allocate(bytes(count)));
            }
            Allocation::Scratch(count) => {
                let scratch = allocator.allocate(bytes(count));
                allocator.release(scratch);
            }
            Allocation::GiveBack(id) => {
                if let Some(block) = held.remove(&id) {
                    allocator.release(block);
                }
            }
        }
    }
    allocator.reserved()
}

/// What libtorch's allocator held at most, on a GPU.
pub fn measured_bytes() -> Option<u64> {
    kernels::cuda::reserved().map(|(_, most)| most)
}
