//! Executes a plan step by step, with the values that the files of kernels give in f64.

use std::collections::{BTreeMap, BTreeSet};

use crate::kernel::tensor::Tensor;
use crate::plan::{Input, Output, Plan, Sizes, Step, ValId};

/// Every output of a plan. Panics if the plan is wrong: an operand is missing or dropped, or a shape
/// is not the declared one.
pub(super) fn run(plan: &Plan, inputs: &BTreeMap<Input, Tensor>) -> BTreeMap<Output, Tensor> {
    let sizes = sizes(inputs);
    let mut values = given(plan, inputs, sizes);
    for step in &plan.steps {
        execute(plan, step, &mut values, sizes);
        for id in &step.drop_after {
            values[id.0 as usize] = None;
        }
    }
    let given: Vec<ValId> = plan.inputs.iter().map(|(_, id)| *id).collect();
    let kept: Vec<ValId> = plan.outputs.iter().map(|(_, id)| *id).collect();
    for (n, value) in values.iter().enumerate() {
        let id = ValId(n as u32);
        let leaks = value.is_some() && !given.contains(&id) && !kept.contains(&id);
        assert!(!leaks, "%{n} is left");
    }
    let result = |id: &ValId| values[id.0 as usize].clone().unwrap_or_else(|| panic!("%{}", id.0));
    plan.outputs.iter().map(|(output, id)| (*output, result(id))).collect()
}

fn sizes(inputs: &BTreeMap<Input, Tensor>) -> Sizes {
    let mut sizes = Sizes { batch: 0, time: 0, past: 0 };
    if let Some(tokens) = inputs.get(&Input::Tokens) {
        sizes = Sizes { batch: tokens.dims[0] as i64, time: tokens.dims[1] as i64, past: 0 };
    }
    if let Some(position) = inputs.get(&Input::Position) {
        sizes.past = position.data[0] as i64;
    }
    sizes
}

/// The values of a plan before its first step.
fn given(plan: &Plan, inputs: &BTreeMap<Input, Tensor>, sizes: Sizes) -> Vec<Option<Tensor>> {
    let mut values: Vec<Option<Tensor>> = vec![None; plan.values.len()];
    for (input, id) in &plan.inputs {
        let value = inputs.get(input).unwrap_or_else(|| panic!("no {input}"));
        fits(plan, *id, value, sizes);
        values[id.0 as usize] = Some(value.clone());
    }
    values
}

/// Executes a step.
fn execute(plan: &Plan, step: &Step, values: &mut [Option<Tensor>], sizes: Sizes) {
    let operand = |id: &ValId| {
        let value = values[id.0 as usize].as_ref();
        value.unwrap_or_else(|| panic!("%{} of {}", id.0, step.kernel.name()))
    };
    let operands: Vec<&Tensor> = step.inputs.iter().map(operand).collect();
    let results = step.kernel.definition().value(&operands, sizes);
    assert_eq!(results.len(), step.outputs.len(), "{}", step.kernel.name());
    for (id, result) in step.outputs.iter().zip(results) {
        fits(plan, *id, &result, sizes);
        values[id.0 as usize] = Some(result);
    }
}

/// A plan's loss as a function of one parameter: executes only the steps that lead from the parameter to the loss.
pub(super) struct LossOfParameter<'p> {
    plan: &'p Plan,
    sizes: Sizes,
    /// Every value that the steps read or write.
    values: Vec<Option<Tensor>>,
    parameter: ValId,
    loss: ValId,
    steps: Vec<&'p Step>,
}

impl<'p> LossOfParameter<'p> {
    pub(super) fn new(plan: &'p Plan, inputs: &BTreeMap<Input, Tensor>, parameter: Input) -> Self {
        let sizes = sizes(inputs);
        let loss = plan.output(Output::Loss).unwrap();
        let parameter = plan.input(parameter).unwrap();
        let (mut leads, mut depends) = (BTreeSet::from([loss]), BTreeSet::from([parameter]));
        for step in plan.steps.iter().rev() {
            if step.outputs.iter().any(|id| leads.contains(id)) {
                leads.extend(&step.inputs);
            }
        }
        let to_loss = |step: &&Step| step.outputs.iter().any(|id| leads.contains(id));
        let (mut values, mut steps) = (given(plan, inputs, sizes), Vec::new());
        for step in plan.steps.iter().filter(to_loss) {
            execute(plan, step, &mut values, sizes);
            if step.inputs.iter().any(|id| depends.contains(id)) {
                depends.extend(&step.outputs);
                steps.push(step);
            }
        }
        LossOfParameter { plan, sizes, values, parameter, loss, steps }
    }

    /// The loss after an element of the parameter has been moved.
    pub(super) fn moved(&mut self, element: usize, by: f64) -> f64 {
        let parameter = self.parameter.0 as usize;
        let before = self.values[parameter].clone();
        if let Some(tensor) = &mut self.values[parameter] {
            tensor.data[element] += by;
        }
        for step in &self.steps {
            execute(self.plan, step, &mut self.values, self.sizes);
        }
        self.values[parameter] = before;
        self.values[self.loss.0 as usize].as_ref().unwrap().data[0]
    }
}

fn fits(plan: &Plan, id: ValId, tensor: &Tensor, sizes: Sizes) {
    let value = &plan.values[id.0 as usize];
    let dims: Vec<usize> = value.dims.iter().map(|d| d.at(sizes) as usize).collect();
    assert_eq!(tensor.dims, dims, "%{} {}", id.0, value.name);
}
