//! `x * 0.5`, `-x`, `x / 3`, `x * rsqrt(48)`: multiplies every element by one exact number.

use super::{
    Arity, Attrs, AttrsExt, Colour, Config, ConfigKind, Context, Cost, Default, Drawn, Mismatch,
    Primitive, Shaped, Time, Type,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "scale",
    revision: 1,
    doc: "x · by, with `by` an exact number: a decimal, a fraction or a root",
    why: "numbers are not tensors, so `mul` does not take them",
    torch: Some("{0} * {by}"),
    tensors: Arity::Exactly(1),
    config: &[Config { name: "by", kind: ConfigKind::Number, default: Default::Required }],
    time: Time::Pointwise,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn {
        colour: Colour::Plain,
        label: |s| (format!("scale {}", s.attrs.number("by")), String::new()),
    },
    examples: &["x * 0.25 - linear w (x, 6) / 4"],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    by_number(attrs, inputs, "token ids cannot be scaled")
}

/// The shape of x, with the number; `refusal` says that token ids have no such form.
pub(super) fn by_number(
    attrs: &Attrs,
    inputs: &[Type],
    refusal: &'static str,
) -> Result<Shaped, Mismatch> {
    match inputs {
        [x] if !x.tokens => {
            let mut shaped = Shaped::plain(x.clone());
            shaped.attrs.extend(attrs.get("by").cloned().map(|by| ("by", by)));
            Ok(shaped)
        }
        _ => Err(Mismatch::new(refusal, "embed tokens first")),
    }
}

pub(super) fn cost(_: &Attrs, _: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = outputs.iter().map(Type::elements).sum();
    Cost { flops: n, moved: 2 * n, saved: 0, ..Cost::default() }
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    Lowered::one(plan.one(kernel::Scale { by: call.attrs.number("by") }, &call.operands))
}

/// dx = by dy.
fn backward(plan: &mut PlanBuilder, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let by = call.attrs.number("by");
    vec![dy[0].map(|dy| plan.one(kernel::Scale { by }, &[dy]))]
}
