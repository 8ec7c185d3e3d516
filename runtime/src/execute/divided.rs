//! Plans of sums and updates for one rank's share of the parameters.
//!
//! Each element is added and updated by the same steps as in the plan for all parameters.

use std::collections::BTreeMap;

use compiler::plan::{Extent, Input, Kernel, Output, Plan};

/// The plan for flat pieces of the parameters with these lengths.
pub(super) fn divided(mut plan: Plan, lengths: &[i64]) -> Plan {
    let length_of = |id: u32| lengths.get(id as usize).copied();
    let mut known = BTreeMap::new();
    for (input, id) in &plan.inputs {
        let length = match input {
            Input::Param(param)
            | Input::Gradient(param)
            | Input::FirstMoment(param)
            | Input::SecondMoment(param)
            | Input::Left(Output::Gradient(param))
            | Input::Right(Output::Gradient(param)) => length_of(param.0),
            Input::Tokens
            | Input::Targets
            | Input::Position
            | Input::GradScale
            | Input::DropoutKey
            | Input::Window
            | Input::Rounded(_)
            | Input::State(..)
            | Input::Left(_)
            | Input::Right(_)
            | Input::LearningRate
            | Input::StepNumber => None,
        };
        known.extend(length.map(|length| (*id, length)));
    }
    // Sums and updates are elementwise: each result has the shape of the step's first operand that is a piece.
    for step in &plan.steps {
        let piece = step.inputs.iter().find_map(|id| known.get(id).copied());
        if let (Some(piece), Kernel::Accumulate(_) | Kernel::AdamW(_)) = (piece, &step.kernel) {
            known.extend(step.outputs.iter().map(|id| (*id, piece)));
        }
    }
    for (id, length) in known {
        if let Some(value) = plan.values.get_mut(id.0 as usize) {
            value.dims = vec![Extent::Fixed(length)];
        }
    }
    plan
}

/// The part of a plan of sums that adds the gradients of these parameters.
pub(super) fn sums_of(combine: &Plan, params: &[usize]) -> Plan {
    let wanted = |output: &Output| match output {
        Output::Gradient(id) => params.contains(&(id.0 as usize)),
        Output::Loss
        | Output::Counted
        | Output::Term(_)
        | Output::Logits
        | Output::Nll
        | Output::Argmax
        | Output::State(..)
        | Output::GradNorm
        | Output::Param(_)
        | Output::FirstMoment(_)
        | Output::SecondMoment(_) => false,
    };
    let mut plan = combine.clone();
    plan.outputs.retain(|(output, _)| wanted(output));
    let Plan { inputs, steps, outputs, .. } = &mut plan;
    steps.retain(|step| outputs.iter().any(|(_, output)| step.outputs.contains(output)));
    inputs.retain(|(_, id)| steps.iter().any(|step| step.inputs.contains(id)));
    plan
}
