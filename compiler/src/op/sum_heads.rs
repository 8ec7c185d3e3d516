//! `sum_heads(x)`: Σ x over heads: `[…, h, d]` to `[…, d]`. A `linear` over merged heads would need a parameter that is
//! not learnt.

use super::{
    Arity, Attrs, Context, Cost, Drawn, Mismatch, Primitive, Shaped, Time, Type, per_head,
};
use crate::lower::{Call, Gradients, Lower, Lowered};
use crate::plan::{Kernel, ValId};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "sum_heads",
    revision: 1,
    doc: "[…, h, d] to […, d]: Σ x over heads",
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn::PLAIN,
    examples: &["y = heads(linear w (x, 18), 3)  sum_heads(y * y)"],
};

fn shape(_: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [x] = inputs else {
        return Err(Mismatch::new("`sum_heads` takes one tensor", "write `sum_heads(x)`"));
    };
    let (_, width) = per_head("sum_heads", "x", x)?;
    Ok(Shaped::plain(Type::seq([width])))
}

fn cost(_: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = inputs.iter().map(Type::elements).sum();
    let m: i64 = outputs.iter().map(Type::elements).sum();
    Cost { flops: n, moved: n + m, ..Cost::default() }
}

fn forward(l: &mut Lower, call: &Call) -> Lowered {
    let x = call.operands[0];
    let extents = l.widths(x);
    let times = extents.first().copied().unwrap_or(1);
    let one = l.one(Kernel::RepeatHeadsGrad { times }, &[x]);
    let dims = extents.last().copied().into_iter().collect();
    Lowered::one(l.one(Kernel::Reshape { dims }, &[one]))
}

/// Each head's gradient is that of the sum.
fn backward(l: &mut Lower, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let Some(dy) = dy[0] else { return Vec::new() };
    let extents = l.widths(call.operands[0]);
    let (times, width) = (extents.first().copied(), extents.last().copied());
    let dims = vec![1, width.unwrap_or(0)];
    let one = l.one(Kernel::Reshape { dims }, &[dy]);
    vec![Some(l.one(Kernel::RepeatHeads { times: times.unwrap_or(1) }, &[one]))]
}
