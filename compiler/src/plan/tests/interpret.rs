//! Executes a plan step by step, with the values that the files of kernels give in f64.

use std::collections::BTreeMap;

use crate::kernel::tensor::Tensor;
use crate::plan::{Input, Output, Plan, Sizes, ValId};

/// Every output of a plan. Panics if the plan is wrong: an operand is missing or dropped, or a shape
/// is not the declared one.
pub(super) fn run(plan: &Plan, inputs: &BTreeMap<Input, Tensor>) -> BTreeMap<Output, Tensor> {
    let mut sizes = Sizes { batch: 0, time: 0, past: 0 };
    if let Some(tokens) = inputs.get(&Input::Tokens) {
        sizes = Sizes { batch: tokens.dims[0] as i64, time: tokens.dims[1] as i64, past: 0 };
    }
    if let Some(position) = inputs.get(&Input::Position) {
        sizes.past = position.data[0] as i64;
    }
    let mut values: Vec<Option<Tensor>> = vec![None; plan.values.len()];
    for (input, id) in &plan.inputs {
        let value = inputs.get(input).unwrap_or_else(|| panic!("no {input}"));
        fits(plan, *id, value, sizes);
        values[id.0 as usize] = Some(value.clone());
    }
    for (n, step) in plan.steps.iter().enumerate() {
        let operands: Vec<&Tensor> = step
            .inputs
            .iter()
            .map(|id| values[id.0 as usize].as_ref().unwrap_or_else(|| panic!("%{} at {n}", id.0)))
            .collect();
        let results = step.kernel.definition().value(&operands, sizes);
        assert_eq!(results.len(), step.outputs.len(), "{}", step.kernel.name());
        for (id, result) in step.outputs.iter().zip(results) {
            fits(plan, *id, &result, sizes);
            values[id.0 as usize] = Some(result);
        }
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

fn fits(plan: &Plan, id: ValId, tensor: &Tensor, sizes: Sizes) {
    let value = &plan.values[id.0 as usize];
    let dims: Vec<usize> = value.dims.iter().map(|d| d.at(sizes) as usize).collect();
    assert_eq!(tensor.dims, dims, "%{} {}", id.0, value.name);
}
