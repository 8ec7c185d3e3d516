//! `a * b`: a · b, element by element; a parameter is broadcast over batch and time.

use super::{Arity, Attrs, Colour, Context, Cost, Drawn, Mismatch, Primitive, Shaped, Time, Type};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "mul",
    revision: 1,
    doc: "a · b, element by element; a parameter spreads over batch and time",
    why: "no other product of tensors",
    torch: Some("{0} * {1}"),
    tensors: Arity::Exactly(2),
    config: &[],
    time: Time::Pointwise,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn { colour: Colour::Plain, label: |_| ("×".to_owned(), String::new()) },
    examples: &["param p [6] init ones  x * linear w (x, 6) * p * (p * p) + x * x"],
};

fn shape(_: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    match inputs {
        [a, b] if a.dims == b.dims && !a.tokens && !b.tokens => {
            Ok(Shaped::plain(if a.time { a.clone() } else { b.clone() }))
        }
        [a, b] => Err(Mismatch::new(
            format!("`*` needs equal shapes, but these are {a} and {b}"),
            "give one of them the other's shape: `spread` copies one value per head to its channels, `heads` and `merge` \
             reshape, `linear` projects",
        )),
        _ => Err(Mismatch::new("`*` takes two tensors", "write `a * b`")),
    }
}

fn cost(_: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = outputs.iter().map(Type::elements).sum();
    let m: i64 = inputs.iter().map(Type::elements).sum();
    Cost { flops: n, moved: n + m, saved: m, ..Cost::default() }
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    Lowered::one(plan.one(kernel::Mul, &call.operands))
}

/// da = dy b, db = dy a, summed over batch and time for a broadcast operand.
fn backward(plan: &mut PlanBuilder, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let (a, b) = (call.operands[0], call.operands[1]);
    [(a, b), (b, a)]
        .into_iter()
        .map(|(operand, other)| {
            let product = plan.one(kernel::Mul, &[dy[0]?, other]);
            Some(plan.unspread(product, operand))
        })
        .collect()
}
