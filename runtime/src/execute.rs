//! Runs plans on libtorch.
//!
//! [`Trainer`], [`Evaluator`] and [`Streamer`] are the three ways to use a plan; each binds it to a machine (device,
//! dtype, kernels).
//!
//! The path of every kernel is chosen and recorded when the plan is bound, before anything runs. Nothing is tracked for
//! autograd, and memory is freed where the plan says. Numbers (losses, rates, positions given by the caller) stay on
//! the CPU.

mod choose;
mod compare;
mod dispatch;
mod divided;
mod laps;
mod moments;
#[cfg(test)]
mod orders;
#[cfg(test)]
mod recorded;
mod running;
mod sharing;
mod stream;
mod several_sequences;
mod trace;
mod train;
mod widen;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use compiler::plan::{DType, Input, Kernel, Output, Plan, Sizes, Step, ValId, Value};
use dsl::Problem;
use tch::{Device, Kind, Tensor};

use crate::kernels::{CudaLibrary, KernelError, cuda, cuda_devices, cuda_library, rope};

use records::progress::bytes;

pub use crate::error::ExecuteError;
pub use choose::{Choice, Paths, choose};
pub use compare::{Compared, compare};
pub use moments::Moments;
pub(crate) use running::Running;
pub use several_sequences::Piece;
pub use stream::{Carried, Streamer};
pub use trace::Traced;
pub use train::{Draws, Evaluation, Evaluator, StepTrace, Sums, Trainer, check_ids};

/// The machine that plans run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    pub device: Device,
    /// The dtype for a plan's `f32`: `Float`, or `Double` to check results.
    pub kind: Kind,
    pub kernels: KernelRequest,
}

impl Machine {
    /// The CPU, or the first GPU if this machine has one that libtorch can use.
    pub fn new(cuda: bool, double: bool, kernels: KernelRequest) -> Result<Self, Problem> {
        let kind = if double { Kind::Double } else { Kind::Float };
        let device = if cuda { gpu(0, 1)? } else { Device::Cpu };
        Ok(Self { device, kind, kernels })
    }

    /// The dtype of a plan's values here. An f64 machine, which checks results, rounds nothing.
    pub(crate) fn kind_of(self, dtype: DType) -> Kind {
        match dtype {
            DType::Bf16 if self.kind == Kind::Float => Kind::BFloat16,
            DType::F32 | DType::Bf16 => self.kind,
            DType::F64 => Kind::Double,
            DType::I64 => Kind::Int64,
        }
    }
}

/// The GPU of a process, ready for training. `place` is its rank's index among the `local` ones on its computer.
pub(crate) fn gpu(local_rank: u32, local: u32) -> Result<Device, Problem> {
    let devices = cuda_devices();
    if devices == 0 {
        let reason = match cuda_library() {
            CudaLibrary::Absent => "its libtorch supports only CPUs".to_owned(),
            CudaLibrary::Loaded => "no NVIDIA GPU responds".to_owned(),
            CudaLibrary::Failed(reason) => format!("libtorch_cuda cannot be loaded: {reason}"),
        };
        return Err(Problem::machine(
            format!("this machine cannot use CUDA: {reason}"),
            "run on the CPU; `canonc doctor` shows what is available",
        ));
    }
    let index = gpu_of(local_rank, local, devices)?;
    cuda::prepare(index).map_err(|error| {
        Problem::machine(
            format!("GPU {index} cannot be used: {error}"),
            "unset the variable that it names, or use a GPU of compute capability 8.0 or later",
        )
    })?;
    Ok(Device::Cuda(index))
}

/// The index of a rank's GPU among the `devices` that the process sees. `local_rank` is the rank's index among the `local`
/// ones on its computer. A launcher may make only its own GPU visible to each rank.
fn gpu_of(local_rank: u32, local: u32, devices: usize) -> Result<usize, Problem> {
    match (local_rank as usize, local as usize) {
        (_, local) if local > devices && devices != 1 => Err(too_many(local, devices)),
        // If several ranks have the same one, they detect that when they connect.
        (_, local) if local > devices => Ok(0),
        (local_rank, _) => Ok(local_rank),
    }
}

/// The error for ranks that would have to share GPUs.
pub fn too_many(ranks: usize, devices: usize) -> Problem {
    Problem::machine(
        format!(
            "{} on this machine need a GPU each, but it has {}",
            dsl::counted(ranks, "rank"),
            dsl::counted(devices, "GPU")
        ),
        format!(
            "start {devices} here, as with `--ranks {devices}`: any number of ranks gives the same result; or check \
             CUDA_VISIBLE_DEVICES"
        ),
    )
}

/// Which kernels run their plain implementation. The others run the fastest one for the device and dtype.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelRequest {
    /// Use plain tch for all kernels, as a reference.
    pub all: bool,
    /// Use plain tch for Canon layers and short convolutions.
    pub canon: bool,
    /// Use plain tch for gated norms.
    pub gated_norm: bool,
}

impl KernelRequest {
    pub const FASTEST: Self = Self { all: false, canon: false, gated_norm: false };
    pub const REFERENCE: Self = Self { all: true, ..Self::FASTEST };
}

/// Runs one kernel alone, as a plan on `machine` would. `operands` have the values' types in that plan. libtorch may
/// track it, so tests can differentiate a plan's forward steps with autograd.
pub fn compute(
    kernel: &Kernel,
    values: &[&Value],
    operands: &[&Tensor],
    machine: Machine,
    sizes: Sizes,
) -> Result<Vec<Tensor>, KernelError> {
    let context = dispatch::Context {
        machine,
        sizes,
        consumes_first: false,
        copy: None,
        tables: &RefCell::default(),
        each: None,
    };
    dispatch::run(kernel, choose(kernel, values, machine, false), operands, &context)
}

/// A callback that gets each step and how long it took on its device.
pub type StepObserver<'a> = &'a mut dyn FnMut(&Step, Duration);

/// One plan bound to a machine.
#[derive(Debug)]
pub struct Executor {
    plan: Plan,
    machine: Machine,
    /// How each step is computed.
    choices: Vec<Choice>,
    /// The dtypes of each step's results.
    kinds: Vec<Vec<Kind>>,
    /// Whether a step may overwrite its first operand.
    consumes: Vec<bool>,
    /// Whether an output must be copied for the caller.
    copies: Vec<bool>,
    runs: Cell<u64>,
    /// By step, the runs in which it launched a plain image of our CUDA kernels.
    plain: RefCell<Vec<u64>>,
    tables: RefCell<rope::Tables>,
    /// Digests of every step's results, while tracing.
    trace: RefCell<Option<trace::Trace>>,
}

impl Executor {
    pub fn new(plan: Plan, machine: Machine) -> Result<Self, ExecuteError> {
        if !matches!(machine.kind, Kind::Float | Kind::Double) {
            return Err(ExecuteError::new(format!(
                "plans run in f32 or f64, not {:?}\nhelp: use --dtype f32",
                machine.kind
            )));
        }
        let pieces = plan.inputs.iter().any(|(input, _)| matches!(input, Input::State(_, _)));
        let (mut choices, mut kinds) = (Vec::new(), Vec::new());
        for step in &plan.steps {
            let operands: Vec<_> = step.inputs.iter().filter_map(|id| plan.value(*id)).collect();
            choices.push(choose(&step.kernel, &operands, machine, pieces));
            let results = step.outputs.iter().filter_map(|id| plan.value(*id));
            kinds.push(results.map(|value| machine.kind_of(value.dtype)).collect());
        }
        let (consumes, copies) = (sharing::consumable(&plan), sharing::copied(&plan));
        let plain = RefCell::new(vec![0; plan.steps.len()]);
        Ok(Self {
            plan,
            machine,
            choices,
            kinds,
            consumes,
            copies,
            runs: Cell::new(0),
            plain,
            tables: RefCell::default(),
            trace: RefCell::default(),
        })
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Starts to digest every step's results.
    pub fn begin_trace(&self) {
        *self.trace.borrow_mut() = Some(trace::Trace::default());
    }

    /// Stops tracing and returns the digests in order of execution.
    pub fn end_trace(&self) -> Vec<Traced> {
        self.trace.borrow_mut().take().unwrap_or_default().lines
    }

    /// A description of a step of the plan.
    pub fn location(&self, step: u32) -> String {
        trace::location(&self.plan, step as usize)
    }

    /// The kernels and paths that have run so far.
    pub fn paths(&self) -> Paths {
        let mut paths = Paths::default();
        let plain = self.plain.borrow();
        for ((step, choice), plain) in self.plan.steps.iter().zip(&self.choices).zip(&*plain) {
            paths.add(step.kernel.name(), *choice, self.runs.get(), *plain);
        }
        paths
    }

    /// The results of step `n`, whose kernel this is.
    fn compute(
        &self,
        n: usize,
        kernel: &Kernel,
        choice: Choice,
        operands: &[&Tensor],
        context: &dispatch::Context<'_>,
    ) -> Result<Vec<Tensor>, ExecuteError> {
        let kinds = self.kinds.get(n).map_or(&[][..], Vec::as_slice);
        let before = gpu::plain_launches();
        let results = widen::run(kernel, choice, operands, context, kinds)
            .map_err(|error| self.broken(n, &error.to_string()))?;
        if gpu::plain_launches() > before
            && let Some(count) = self.plain.borrow_mut().get_mut(n)
        {
            *count += 1;
        }
        Ok(results)
    }

    /// Runs every step. `give` supplies each input of the plan; results are in the order of the plan's outputs. An
    /// input that the plan overwrites is changed in place.
    pub fn run(
        &self,
        give: impl FnMut(Input) -> Result<Tensor, ExecuteError>,
    ) -> Result<Vec<(Output, Tensor)>, ExecuteError> {
        self.run_observed(give, None)
    }

    /// Like [`Executor::run`], and reports each step's time when all are done: on a GPU the device's own, by events.
    pub fn run_timed(
        &self,
        give: impl FnMut(Input) -> Result<Tensor, ExecuteError>,
        observer: Option<StepObserver<'_>>,
    ) -> Result<Vec<(Output, Tensor)>, ExecuteError> {
        self.run_observed(give, observer)
    }

    fn run_observed(
        &self,
        mut give: impl FnMut(Input) -> Result<Tensor, ExecuteError>,
        observer: Option<StepObserver<'_>>,
    ) -> Result<Vec<(Output, Tensor)>, ExecuteError> {
        let mut running = self.begin(|input| give(input).map(Some), None)?;
        running.advance(self.plan.steps.len(), observer)?;
        let outputs = self.plan.outputs.iter();
        let outputs = outputs.map(|(output, _)| Ok((*output, running.take(*output)?)));
        let outputs = outputs.collect::<Result<_, ExecuteError>>()?;
        running.end();
        Ok(outputs)
    }

    /// An input in the form that the plan expects: shape and dtype checked, on the machine's device.
    fn fitted(
        &self,
        input: Input,
        id: ValId,
        tensor: Tensor,
        sizes: Sizes,
    ) -> Result<Tensor, ExecuteError> {
        let Some(value) = self.plan.value(id) else {
            return Err(ExecuteError::new(format!("the plan has no value for {input}")));
        };
        let dims: Vec<i64> = value.dims.iter().map(|d| d.at(sizes)).collect();
        if tensor.size() != dims {
            return Err(ExecuteError::new(format!(
                "{input} ({}) has shape {:?}, but the plan needs {dims:?}",
                value.name,
                tensor.size()
            )));
        }
        let kind = self.machine.kind_of(value.dtype);
        if tensor.kind() != kind {
            return Err(ExecuteError::new(format!(
                "{input} ({}) is {:?}, but the plan needs {kind:?}",
                value.name,
                tensor.kind()
            )));
        }
        // A number works with tensors on any device, and some are read on the CPU.
        let device = if dims.is_empty() { tensor.device() } else { self.machine.device };
        if tensor.device() == device { Ok(tensor) } else { Ok(tensor.f_to_device(device)?) }
    }

    fn has_shape(&self, id: ValId, tensor: &Tensor, sizes: Sizes) -> bool {
        self.plan.value(id).is_some_and(|value| {
            tensor.kind() == self.machine.kind_of(value.dtype)
                && tensor.size() == value.dims.iter().map(|d| d.at(sizes)).collect::<Vec<_>>()
        })
    }

    fn broken(&self, n: usize, reason: &str) -> ExecuteError {
        let location = self.plan.steps.get(n).map_or_else(String::new, |step| {
            let layer = step.source.as_ref().and_then(|s| s.layer);
            let layer = layer.map_or_else(String::new, |l| format!(" of layer {l}"));
            format!("{}, {}{layer}", step.phase, step.kernel.name())
        });
        let reason = out_of_memory(reason).unwrap_or_else(|| reason.to_owned());
        ExecuteError::new(format!("step {n} ({location}): {reason}"))
    }
}

/// The error and its help, if libtorch's message says that memory ran out.
pub(crate) fn out_of_memory(message: &str) -> Option<String> {
    let asked = memory_asked_for(message)?;
    Some(format!(
        "memory ran out when it asked for {asked}\nhelp: use platform.recompute = \"selective\" or \"layers\", fewer \
         batch.sequences, batch.in_sequence for several micro-batches, or more ranks with platform.shard = \"full\"; \
         `canonc run --dry-run` says what a step needs"
    ))
}

/// The size that libtorch could not allocate, if its message says that memory ran out.
fn memory_asked_for(message: &str) -> Option<String> {
    let ran_out =
        ["can't allocate memory", "out of memory"].iter().any(|words| message.contains(words));
    let (_, asked) = message.split_once("ried to allocate ").filter(|_| ran_out)?;
    let number: String = asked.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    Some(match number.parse::<u64>() {
        Ok(count) => bytes(count),
        // libtorch for CUDA writes `2.00 GiB`.
        Err(_) => asked.split_inclusive("iB").next().unwrap_or(asked).to_owned(),
    })
}

fn put(values: &mut [Option<Tensor>], id: ValId, tensor: Tensor) {
    if let Some(slot) = values.get_mut(id.0 as usize) {
        *slot = Some(tensor);
    }
}

/// The sizes that the plan leaves open, from the given tensors: tokens or targets are [batch, time], keys [batch, past,
/// …].
fn sizes_of(given: &[(Input, ValId, Tensor)]) -> Sizes {
    let mut sizes = Sizes { batch: 0, time: 0, past: 0 };
    for (input, _, tensor) in given {
        match (input, tensor.size().as_slice()) {
            (Input::Tokens | Input::Targets, [batch, time]) => {
                (sizes.batch, sizes.time) = (*batch, *time);
            }
            (Input::State(_, compiler::plan::StatePart::Keys), [_, past, ..]) => {
                // A windowed state holds fewer rows than there were tokens; a growing one holds them all.
                sizes.past = sizes.past.max(*past);
            }
            _ => {}
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_has_a_gpu_of_its_own() {
        let rows = [
            // local rank, ranks on this computer, GPUs that the process sees
            ((0, 1, 1), Ok(0)),
            ((0, 1, 8), Ok(0)),
            ((3, 4, 4), Ok(3)),
            ((3, 4, 8), Ok(3)),
            // CUDA_VISIBLE_DEVICES shows each rank its own.
            ((3, 4, 1), Ok(0)),
            ((0, 3, 2), Err("3 ranks on this machine need a GPU each, but it has 2 GPUs")),
            ((9, 16, 8), Err("16 ranks on this machine need a GPU each, but it has 8 GPUs")),
        ];
        for ((local_rank, local, devices), wanted) in rows {
            let index = gpu_of(local_rank, local, devices).map_err(|error| error.message);
            assert_eq!(
                index,
                wanted.map_err(str::to_owned),
                "{local_rank} of {local} on {devices}"
            );
        }
        let help = too_many(3, 2).help;
        assert!(help.contains("`--ranks 2`"), "{help}");
    }
}
