//! `one_hot(e)`: for each place that ids are chosen from, 1 if it is among a token's ids, else 0. It is a primitive because nothing else makes
//! numbers of ids: the share of tokens that chose an expert is their mean.

use super::{
    Arity, Attr, Attrs, AttrsExt, Drawn, Mismatch, Primitive, Shaped, Time, Type, ids, reshape_cost,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "one_hot",
    revision: 1,
    doc: "ids to a number for each place that they are chosen from: 1 if it is among them, else 0",
    why: "nothing else makes numbers of ids",
    torch: None,
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape,
    cost: reshape_cost,
    forward,
    backward,
    drawn: Drawn::PLAIN,
    examples: &[
        "w, e = top_k(linear s (x, 5), 2)  linear o (one_hot(e) * linear p (x, 5), 6) + linear q (w, 6)",
    ],
};

fn shape(_: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [e] = inputs else {
        return Err(Mismatch::new("`one_hot` takes ids", "write `one_hot(e)`"));
    };
    let (_, places) = ids("one_hot", e)?;
    let mut shaped = Shaped::plain(Type::seq([places]));
    shaped.attrs.insert("width", Attr::Int(places));
    Ok(shaped)
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let width = call.attrs.int("width");
    Lowered::one(plan.one(kernel::OneHot { width }, &call.operands))
}

/// Ids have no gradient.
fn backward(_: &mut PlanBuilder, _: &Call, _: &Lowered, _: &[Option<ValId>]) -> Gradients {
    vec![None]
}
