//! Combines micro-batches and updates parameters: sums, clipping, AdamW or Muon.
//!
//! There is one step per parameter that is not frozen, in parameter order. Every element's update under AdamW depends
//! only on its own gradient, moments and the three scalars, so sharding does not matter; Muon needs whole matrices.

use dsl::Decimal;

use crate::builder::PlanBuilder;
use crate::graph::{Graph, Param, ParamId};
use crate::kernel;
use crate::plan::{
    Decays, Input, Muon, Optimizer, Output, ParamUpdate, Phase, Plan, Precision, TrainOptions,
    UpdateRule, ValId, liveness,
};
use crate::value::{DType, fixed};

/// left + right for every output of `micro`.
pub(super) fn combine(micro: &Plan) -> Plan {
    let mut builder = PlanBuilder::new(Phase::Combine, Precision::F32);
    for (output, id) in &micro.outputs {
        let Some(value) = micro.value(*id) else { continue };
        let sides = [Input::Left(*output), Input::Right(*output)]
            .map(|side| builder.input(side, output.to_string(), value.dims.clone(), value.dtype));
        let sum = builder.one(kernel::Accumulate, &sides);
        builder.output(*output, sum);
    }
    liveness::finish(&mut builder.plan);
    builder.plan
}

/// Computes the norm and clipping coefficient, then updates every parameter.
pub(super) fn update(graph: &Graph, options: &TrainOptions) -> Plan {
    let Optimizer { beta1, beta2, eps, weight_decay, decays, clip } = options.optimizer;
    let mut builder = PlanBuilder::new(Phase::Update, Precision::F32);
    let lr = builder.input(Input::LearningRate, "learning_rate", Vec::new(), DType::F64);
    let count = builder.input(Input::StepNumber, "step_number", Vec::new(), DType::I64);
    let params = || graph.top.params.iter().zip((0..).map(ParamId));
    let gradients = params().map(|(param, id)| tensor(&mut builder, param, Input::Gradient(id)));
    let gradients = gradients.collect();
    let norm = builder.emit_all(kernel::GradNorm, gradients)[0];
    let coefficient = builder.one(kernel::Clip { max: clip }, &[norm]);
    builder.output(Output::GradNorm, norm);
    for ((param, id), n) in params().zip(0..) {
        let ParamUpdate { rule, lr_factor: rate, decay_factor } =
            ParamUpdate::for_param(&options.updates, n);
        // An experiment whose product has no exact decimal is refused.
        let decay = weight_decay.mul(decay_factor).unwrap_or(weight_decay);
        let decay = if decayed(param, decays) { decay } else { Decimal::ZERO };
        let mut tensor = |input| tensor(&mut builder, param, input);
        let p = tensor(Input::Param(id));
        let g = tensor(Input::Gradient(id));
        let m = tensor(Input::FirstMoment(id));
        match rule {
            UpdateRule::AdamW => {
                let v = tensor(Input::SecondMoment(id));
                let kernel = kernel::AdamW { beta1, beta2, eps, decay, rate };
                let [p, m, v] = builder.emit(kernel, &[p, g, m, v, coefficient, lr, count]);
                builder.output(Output::Param(id), p);
                builder.output(Output::FirstMoment(id), m);
                builder.output(Output::SecondMoment(id), v);
            }
            UpdateRule::Muon(Muon { momentum, nesterov, scale }) => {
                let kernel = kernel::Muon { momentum, nesterov, scale, decay, rate };
                let [p, m] = builder.emit(kernel, &[p, g, m, coefficient, lr]);
                builder.output(Output::Param(id), p);
                builder.output(Output::FirstMoment(id), m);
            }
            UpdateRule::Frozen => {}
        }
    }
    liveness::finish(&mut builder.plan);
    builder.plan
}

/// An input in f32 with a parameter's shape.
fn tensor(builder: &mut PlanBuilder, param: &Param, input: Input) -> ValId {
    builder.input(input, param.path.clone(), fixed(&param.shape), DType::F32)
}

/// Whether weight decay applies to a parameter. Locks hash the answer, because graphs do not contain roles.
pub fn decayed(param: &Param, decays: Decays) -> bool {
    match decays {
        Decays::All => true,
        Decays::Matrices => matches!(param.role.as_str(), "linear" | "embed"),
    }
}
