//! `index(n)`: the numbers 0, 1, …, n − 1. Constants with a value for each head are arithmetic on it: the decays of
//! retention, the slopes of ALiBi. It is a primitive because a text has no other tensor that is not learnt.

use super::{
    Arity, Attr, Attrs, AttrsExt, Config, ConfigKind, Default, Drawn, Mismatch, Primitive, Shaped,
    Time, Type, reshape_cost,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "index",
    revision: 1,
    doc: "the constant [0, 1, …, count − 1]: values for each head that are not learnt",
    why: "no other constant tensor",
    torch: None,
    tensors: Arity::Exactly(0),
    config: &[Config { name: "count", kind: ConfigKind::Int, default: Default::Required }],
    time: Time::Pointwise,
    shape,
    cost: reshape_cost,
    forward,
    backward,
    drawn: Drawn::PLAIN,
    examples: &["linear w (x, 6) * exp(-index(6) / 4)"],
};

fn shape(attrs: &Attrs, _: &[Type]) -> Result<Shaped, Mismatch> {
    let count = attrs.int("count");
    if count <= 0 {
        return Err(Mismatch::new(
            format!("`index` of {count} numbers is empty"),
            "make `count` at least 1",
        ));
    }
    let mut shaped = Shaped::plain(Type::constant([count]));
    shaped.attrs.insert("count", Attr::Int(count));
    Ok(shaped)
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    Lowered::one(plan.one(kernel::Index { count: call.attrs.int("count") }, &[]))
}

/// It has no operands.
fn backward(_: &mut PlanBuilder, _: &Call, _: &Lowered, _: &[Option<ValId>]) -> Gradients {
    Vec::new()
}
