//! `sum(x)`: Σ x over the last axis, which stays with an extent of 1: `[…, c]` to `[…, 1]`. A `linear` of ones would
//! need a parameter that is not learnt, and does not take heads.

use super::{
    Arity, Attrs, Context, Cost, Drawn, Mismatch, Primitive, Shaped, Time, Type, last,
    pointwise_shape,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "sum",
    revision: 1,
    doc: "[…, c] to […, 1]: Σ x over the last axis",
    why: "a `linear` of ones would need a parameter that is not learnt",
    torch: Some("{0}.sum(-1, keepdim=True)"),
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn::PLAIN,
    examples: &[
        "x * spread(sum(x * linear w (x, 6)), x)",
        "param p [6] init ones  x * spread(sum(p * p), p)",
    ],
};

/// The same with one channel.
pub(super) fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let mut shaped = pointwise_shape(attrs, inputs)?;
    let y = &mut shaped.outputs[0];
    last("sum", y)?;
    if let Some(width) = y.dims.last_mut() {
        *width = 1;
    }
    Ok(shaped)
}

pub(super) fn cost(_: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = inputs.iter().map(Type::elements).sum();
    let m: i64 = outputs.iter().map(Type::elements).sum();
    Cost { flops: n, moved: n + m, saved: 0, ..Cost::default() }
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    Lowered::one(plan.one(kernel::SumChannels { keep: true }, &call.operands))
}

/// Each element's gradient is that of the sum.
fn backward(plan: &mut PlanBuilder, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let width = plan.widths(call.operands[0]).last().copied().unwrap_or(0);
    vec![dy[0].map(|dy| plan.one(kernel::Spread { width, kept: true }, &[dy]))]
}
