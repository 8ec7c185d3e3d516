//! `merge(x)`: `[…, n, d]` to `[…, n·d]`, the inverse of `heads`.

use super::{
    Arity, Attrs, Drawn, Mismatch, Primitive, Shaped, Time, Type, heads, per_head, reshape_cost,
};
use crate::builder::{Call, Lowered, PlanBuilder};
use crate::kernel;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "merge",
    revision: 1,
    doc: "[…, n, d] to […, n·d]",
    why: "only primitives reshape",
    torch: Some("{0}.flatten(-2)"),
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape,
    cost: reshape_cost,
    forward,
    backward: heads::backward,
    drawn: Drawn::PLAIN,
    examples: &["merge(heads(x, 2) * heads(linear w (x, 6), 2))"],
};

fn shape(_: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    match inputs {
        [x] => {
            let (n, d) = per_head("merge", "x", x)?;
            Ok(Shaped::plain(Type::seq([n * d])))
        }
        _ => Err(Mismatch::new("`merge` takes one tensor", "write `merge(x)`")),
    }
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let dims = call.results[0].dims.clone();
    Lowered::one(plan.one(kernel::Reshape { dims }, &call.operands))
}
