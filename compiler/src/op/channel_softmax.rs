//! `channel_softmax(x)`: exp(x) / Σ exp(x) over the last axis: slots, mixtures, routers. exp and a sum would overflow.
//! Not called `softmax`, since committed texts call a layer with softmax attention that.

use super::{
    Arity, Attrs, Context, Cost, Drawn, Mismatch, Primitive, Shaped, Time, Type, last,
    pointwise_shape,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "channel_softmax",
    revision: 1,
    doc: "exp(x) / Σ exp(x) over the last axis",
    why: "`exp` and a sum would overflow",
    torch: Some("torch.softmax({0}, dim=-1)"),
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn::NORM,
    examples: &[
        "channel_softmax(linear w (x, 6)) * x + linear o (merge(channel_softmax(heads(x, 2))), 6)",
        "param p [6] init ones  x * channel_softmax(p)",
    ],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let shaped = pointwise_shape(attrs, inputs)?;
    last("channel_softmax", &shaped.outputs[0])?;
    Ok(shaped)
}

fn cost(_: &Attrs, _: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = outputs.iter().map(Type::elements).sum();
    Cost { flops: 7 * n, moved: 2 * n, saved: n, ..Cost::default() }
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    Lowered::one(plan.one(kernel::Softmax, &call.operands))
}

/// dx = y (dy − Σ dy ⊙ y).
fn backward(
    plan: &mut PlanBuilder,
    _: &Call,
    lowered: &Lowered,
    dy: &[Option<ValId>],
) -> Gradients {
    vec![dy[0].map(|dy| plan.one(kernel::SoftmaxGrad, &[dy, lowered.outputs[0]]))]
}
