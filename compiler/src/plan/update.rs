//! Combines micro-batches and updates parameters: sums, clipping, AdamW or Muon.
//!
//! In: the outputs of `micro`; parameters and their shapes. Out: the `combine` and `update` plans. Must
//! stay true: one step per parameter that is not frozen, in parameter order; every element's update under AdamW depends
//! only on its own gradient, moments and the three scalars, so sharding does not matter; Muon needs whole matrices.

use dsl::Decimal;

use super::options::{Decays, Optimizer, ParamUpdate, TrainOptions, UpdateRule};
use super::{
    DType, Extent, Input, Kernel, Output, Phase, Plan, Step, ValId, Value, infer, liveness,
};
use crate::graph::{Graph, Param, ParamId};

/// left + right for every output of `micro`.
pub(crate) fn combine(micro: &Plan) -> Plan {
    let mut plan = Plan::default();
    for (output, id) in &micro.outputs {
        let Some(value) = micro.value(*id) else { continue };
        let value = Value { name: output.to_string().into(), ..value.clone() };
        let left = give(&mut plan, Input::Left(*output), value.clone());
        let right = give(&mut plan, Input::Right(*output), value);
        let sum = step(&mut plan, Phase::Combine, Kernel::Accumulate, vec![left, right]);
        plan.outputs.extend(sum.first().map(|sum| (*output, *sum)));
    }
    liveness::finish(&mut plan);
    plan
}

/// Computes the norm and clipping coefficient, then updates every parameter.
pub(crate) fn update(graph: &Graph, options: &TrainOptions) -> Plan {
    let Optimizer { beta1, beta2, eps, weight_decay, decays, clip } = options.optimizer;
    let mut plan = Plan::default();
    let number = |name: &'static str, dtype| Value { name: name.into(), dims: Vec::new(), dtype };
    let lr = give(&mut plan, Input::LearningRate, number("learning_rate", DType::F64));
    let count = give(&mut plan, Input::StepNumber, number("step_number", DType::I64));
    let ids = |n: usize| ParamId(n as u32);
    let tensor = |param: &Param| Value {
        name: param.path.clone().into(),
        dims: param.shape.iter().map(|d| Extent::Fixed(*d)).collect(),
        dtype: DType::F32,
    };
    let params = || graph.top.params.iter().enumerate();
    let gradients: Vec<ValId> = params()
        .map(|(n, param)| give(&mut plan, Input::Gradient(ids(n)), tensor(param)))
        .collect();
    let norm = step(&mut plan, Phase::Update, Kernel::GradNorm, gradients.clone());
    let coefficient = step(&mut plan, Phase::Update, Kernel::Clip { max: clip }, norm.clone());
    plan.outputs.extend(norm.iter().map(|id| (Output::GradNorm, *id)));
    for ((n, param), gradient) in params().zip(gradients) {
        let id = ids(n);
        let ParamUpdate { rule, lr: rate, decay } = ParamUpdate::of(&options.updates, n);
        // An experiment whose product has no exact decimal is refused.
        let decay = weight_decay.mul(decay).unwrap_or(weight_decay);
        let decay = if decayed(param, decays) { decay } else { Decimal::ZERO };
        match rule {
            UpdateRule::AdamW => {}
            UpdateRule::Muon(muon) => {
                let mut inputs = vec![
                    give(&mut plan, Input::Param(id), tensor(param)),
                    gradient,
                    give(&mut plan, Input::FirstMoment(id), tensor(param)),
                ];
                inputs.extend(coefficient.iter().chain([&lr]));
                let kernel = Kernel::Muon { muon, decay, rate };
                let made = step(&mut plan, Phase::Update, kernel, inputs);
                plan.outputs
                    .extend([Output::Param(id), Output::FirstMoment(id)].into_iter().zip(made));
                continue;
            }
            UpdateRule::Frozen => continue,
        }
        let mut inputs = vec![
            give(&mut plan, Input::Param(id), tensor(param)),
            gradient,
            give(&mut plan, Input::FirstMoment(id), tensor(param)),
            give(&mut plan, Input::SecondMoment(id), tensor(param)),
        ];
        inputs.extend(coefficient.iter().chain([&lr, &count]));
        let kernel = Kernel::AdamW { beta1, beta2, eps, decay, rate };
        let made = step(&mut plan, Phase::Update, kernel, inputs);
        let kept = [Output::Param(id), Output::FirstMoment(id), Output::SecondMoment(id)];
        plan.outputs.extend(kept.into_iter().zip(made));
    }
    liveness::finish(&mut plan);
    plan
}

/// Whether weight decay applies to a parameter. Locks hash the answer, because graphs do not contain roles.
pub fn decayed(param: &Param, decays: Decays) -> bool {
    match decays {
        Decays::All => true,
        Decays::Matrices => matches!(param.role.as_str(), "linear" | "embed"),
    }
}

fn give(plan: &mut Plan, input: Input, value: Value) -> ValId {
    let id = ValId(plan.values.len() as u32);
    plan.values.push(value);
    plan.inputs.push((input, id));
    id
}

fn step(plan: &mut Plan, phase: Phase, kernel: Kernel, inputs: Vec<ValId>) -> Vec<ValId> {
    let operands: Vec<&Value> = inputs.iter().filter_map(|id| plan.value(*id)).collect();
    let mut outputs = Vec::new();
    for value in infer(&kernel, &operands) {
        outputs.push(ValId(plan.values.len() as u32));
        plan.values.push(value);
    }
    let made = outputs.clone();
    plan.steps.push(Step { kernel, inputs, outputs, drop_after: Vec::new(), phase, source: None });
    made
}
