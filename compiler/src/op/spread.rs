//! `spread(a, x)`: a value of each head, or of each token, in all channels of x: `[…, h]` or `[…, h, 1]` to
//! `[…, h, d]`, and `[…, 1]` to `[…, c]`. Only the shape of x counts. It is a primitive because nothing else
//! broadcasts channels, so that no mistake in a shape does.

use super::{
    Arity, Attr, Attrs, AttrsExt, Drawn, Mismatch, Primitive, Shaped, Time, Type, reshape_cost,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "spread",
    revision: 1,
    doc: "[…, h] or […, 1] to the shape of x, by copies along the channels",
    why: "nothing else broadcasts channels, so that no mistake in a shape does",
    torch: None,
    tensors: Arity::Exactly(2),
    config: &[],
    time: Time::Pointwise,
    shape,
    cost: reshape_cost,
    forward,
    backward,
    drawn: Drawn::PLAIN,
    examples: &[
        "y = heads(x, 2)  linear o (merge(y * spread(linear g (x, 2), y)), 6)",
        "y = heads(x, 2)  param p [2] init ones  z = merge(y * spread(p, y)) * spread(linear g (x, 1), x)  z",
    ],
};

fn shape(_: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [a, x] = inputs else {
        return Err(Mismatch::new("`spread` takes two tensors", "write `spread(a, x)`"));
    };
    let unfit = || {
        Mismatch::new(
            format!("{a} cannot be spread over the channels of {x}"),
            "give one value for each head of x, or one for each token: `[…, h]` or `[…, 1]`",
        )
    };
    let (width, outer) = x.dims.split_last().ok_or_else(unfit)?;
    let kept = match a.dims.split_last() {
        Some((1, before)) if before == outer => true,
        _ if a.dims == outer && !outer.is_empty() => false,
        _ => return Err(unfit()),
    };
    if a.tokens || x.tokens {
        return Err(unfit());
    }
    let mut shaped = Shaped::plain(Type { time: a.time, ..x.clone() });
    shaped.attrs.insert("kept", Attr::Bool(kept));
    shaped.attrs.insert("width", Attr::Int(*width));
    Ok(shaped)
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let (width, kept) = (call.attrs.int("width"), call.attrs.flag("kept"));
    Lowered::one(plan.one(kernel::Spread { width, kept }, &call.operands[..1]))
}

/// The sum over the copies; x has none.
fn backward(plan: &mut PlanBuilder, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let keep = call.attrs.flag("kept");
    vec![dy[0].map(|dy| plan.one(kernel::SumChannels { keep }, &[dy])), None]
}
