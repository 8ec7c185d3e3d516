//! `mean(x)`: Σ x / c over the last axis, which stays with an extent of 1: `[…, c]` to `[…, 1]`. `sum(x) / c`
//! would need the number of channels, which a text does not know.

use super::{Arity, Drawn, Primitive, Time, sum};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::number::{Ratio, Root};
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "mean",
    revision: 1,
    doc: "[…, c] to […, 1]: Σ x / c over the last axis",
    why: "`sum(x) / c` needs c, which no text knows",
    torch: Some("{0}.mean(-1, keepdim=True)"),
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: sum::shape,
    cost: sum::cost,
    forward,
    backward,
    drawn: Drawn::PLAIN,
    examples: &["linear w (x, 6) * (x - spread(mean(x), x))"],
};

/// One part of the last axis.
fn part(width: i64) -> Root {
    Root::rational(Ratio { num: 1, den: i128::from(width.max(1)) })
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let width = plan.widths(call.operands[0]).last().copied().unwrap_or(1);
    let sum = plan.one(kernel::SumChannels { keep: true }, &call.operands);
    Lowered::one(plan.one(kernel::Scale { by: part(width) }, &[sum]))
}

/// Each element's gradient is its part of that of the mean.
fn backward(plan: &mut PlanBuilder, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let width = plan.widths(call.operands[0]).last().copied().unwrap_or(1);
    vec![dy[0].map(|dy| {
        let each = plan.one(kernel::Scale { by: part(width) }, &[dy]);
        plan.one(kernel::Spread { width, kept: true }, &[each])
    })]
}
