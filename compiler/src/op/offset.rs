//! `x + 1`, `1 - x`: adds one exact number to every element. Numbers are not tensors, so `add` does not take them.

use super::{
    Arity, Attrs, AttrsExt, Colour, Config, ConfigKind, Default, Drawn, Mismatch, Primitive,
    Shaped, Time, Type, scale,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "offset",
    revision: 1,
    doc: "x + by, with `by` an exact number: a decimal, a fraction or a root",
    why: "numbers are not tensors, so `add` does not take them",
    torch: Some("{0} + {by}"),
    tensors: Arity::Exactly(1),
    config: &[Config { name: "by", kind: ConfigKind::Number, default: Default::Required }],
    time: Time::Pointwise,
    shape,
    cost: scale::cost,
    forward,
    backward,
    drawn: Drawn {
        colour: Colour::Plain,
        label: |s| (format!("add {}", s.attrs.number("by")), String::new()),
    },
    examples: &["(1 - x * 0.5) * (linear w (x, 6) - 1 / 3) + (2 + x)"],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    scale::by_number(attrs, inputs, "no number can be added to token ids")
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    Lowered::one(plan.one(kernel::Offset { by: call.attrs.number("by") }, &call.operands))
}

/// dx = dy.
fn backward(_: &mut PlanBuilder, _: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    vec![dy[0]]
}
