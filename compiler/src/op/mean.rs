//! `mean(x)`: Σ x / c over the last axis, which stays with an extent of 1: `[…, c]` to `[…, 1]`. `sum(x) / c`
//! would need the number of channels, which a text does not know.

use super::{Arity, Drawn, Primitive, Time, sum};
use crate::lower::{Call, Gradients, Lower, Lowered};
use crate::number::{Ratio, Root};
use crate::plan::{Kernel, ValId};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "mean",
    revision: 1,
    doc: "[…, c] to […, 1]: Σ x / c over the last axis",
    why: "`sum(x) / c` needs c, which no text knows",
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

fn forward(l: &mut Lower, call: &Call) -> Lowered {
    let width = l.widths(call.operands[0]).last().copied().unwrap_or(1);
    let sum = l.one(Kernel::SumChannels { keep: true }, &call.operands);
    Lowered::one(l.one(Kernel::Scale { by: part(width) }, &[sum]))
}

/// Each element's gradient is its part of that of the mean.
fn backward(l: &mut Lower, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let width = l.widths(call.operands[0]).last().copied().unwrap_or(1);
    vec![dy[0].map(|dy| {
        let each = l.one(Kernel::Scale { by: part(width) }, &[dy]);
        l.one(Kernel::Spread { width, kept: true }, &[each])
    })]
}
