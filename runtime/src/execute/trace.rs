//! Digests of the results of each step of a plan, to find the first step in which two runs differ.
//!
//! Equal bits give equal digests on any device and in any memory layout.

use compiler::plan::{Input, Plan, Step};
use tch::{Device, Tensor};

use super::ExecuteError;

/// One execution of one step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// Index of the plan's run since tracing began, for example the micro-batch.
    pub run: u32,
    /// Index into the plan's steps.
    pub step: u32,
    /// Digest of the step's results.
    pub digest: blake3::Hash,
}

/// Digests of a plan's runs so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace {
    runs: u32,
    pub(super) lines: Vec<Traced>,
}

impl Trace {
    pub(super) fn add(&mut self, step: usize, results: &[Tensor]) -> Result<(), ExecuteError> {
        let mut hasher = blake3::Hasher::new();
        for result in results {
            hasher.update(format!("{:?} {:?}\n", result.kind(), result.size()).as_bytes());
            hasher.update(&bytes(result)?);
        }
        let step = u32::try_from(step).unwrap_or(u32::MAX);
        self.lines.push(Traced { run: self.runs, step, digest: hasher.finalize() });
        Ok(())
    }

    pub(super) fn end_run(&mut self) {
        self.runs += 1;
    }
}

/// A tensor's elements as raw bytes, in row-major order.
fn bytes(tensor: &Tensor) -> Result<Vec<u8>, ExecuteError> {
    let tensor = tensor.f_to_device(Device::Cpu)?.f_contiguous()?;
    let count = tensor.numel();
    let mut bytes = vec![0; count * tensor.f_kind()?.elt_size_in_bytes()];
    tensor.f_copy_data_u8(&mut bytes, count)?;
    Ok(bytes)
}

/// A readable description of a step: its phase, layer, kernel, and the parameters it reads.
pub(super) fn location(plan: &Plan, index: usize) -> String {
    let Some(step) = plan.steps.get(index) else { return format!("step {index}") };
    let Step { kernel, inputs, outputs: _, drop_after: _, phase, source } = step;
    let mut location = format!("{phase}");
    if let Some(source) = source {
        match source.layer {
            Some(layer) => location.push_str(&format!(", layer {layer}")),
            None => location.push_str(", embedding and head"),
        }
        if let Some(slot) = &source.slot {
            location.push_str(&format!(", slot {slot}"));
        }
    }
    location.push_str(&format!(", {}", kernel.name()));
    let read: Vec<&str> = plan
        .inputs
        .iter()
        .filter(|(input, id)| is_tensor_of_parameter(*input) && inputs.contains(id))
        .filter_map(|(_, id)| Some(plan.value(*id)?.name.as_ref()))
        .collect();
    // A sum over all parameters names none of them.
    if let [one] | [one, _, _, _] = read.as_slice() {
        location.push_str(&format!(" of {one}"));
    }
    location
}

fn is_tensor_of_parameter(input: Input) -> bool {
    match input {
        Input::Param(_)
        | Input::Rounded(_)
        | Input::Gradient(_)
        | Input::FirstMoment(_)
        | Input::SecondMoment(_) => true,
        Input::Tokens
        | Input::Targets
        | Input::Position
        | Input::GradScale
        | Input::DropoutKey
        | Input::Window
        | Input::LearningRate
        | Input::StepNumber
        | Input::State(..)
        | Input::Left(_)
        | Input::Right(_) => false,
    }
}
