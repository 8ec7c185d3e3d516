//! `a + b`: a + b, element by element; a parameter is broadcast over batch and time.

use super::{Arity, Attrs, Colour, Context, Cost, Drawn, Mismatch, Primitive, Shaped, Time, Type};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "add",
    revision: 1,
    doc: "a + b, element by element; a parameter spreads over batch and time",
    why: "no other sum of tensors",
    torch: Some("{0} + {1}"),
    tensors: Arity::Exactly(2),
    config: &[],
    time: Time::Pointwise,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn { colour: Colour::Plain, label: |_| ("+".to_owned(), String::new()) },
    examples: &["param p [6] init ones  linear w (x + x, 6) + p + (p + p)"],
};

fn shape(_: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    match inputs {
        [a, b] if a.dims == b.dims && !a.tokens && !b.tokens => {
            Ok(Shaped::plain(if a.time { a.clone() } else { b.clone() }))
        }
        [a, b] => Err(Mismatch::new(
            format!("`+` needs equal shapes, but these are {a} and {b}"),
            "give one of them the other's shape: `spread` copies one value per head to its channels, `heads` and `merge` \
             reshape, `linear` projects",
        )),
        _ => Err(Mismatch::new("`+` takes two tensors", "write `a + b`")),
    }
}

fn cost(_: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = outputs.iter().map(Type::elements).sum();
    let m: i64 = inputs.iter().map(Type::elements).sum();
    Cost { flops: n, moved: n + m, saved: 0, ..Cost::default() }
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    Lowered::one(plan.one(kernel::Add, &call.operands))
}

/// da = db = dy, summed over batch and time for a broadcast operand.
fn backward(plan: &mut PlanBuilder, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    call.operands.iter().map(|operand| dy[0].map(|dy| plan.unspread(dy, *operand))).collect()
}
