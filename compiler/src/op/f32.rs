//! `f32(x)`: marks an f32 island; every other dtype comes from the recipe's precision.

use super::{Arity, Drawn, Primitive, Time, pointwise_shape, reshape_cost};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "f32",
    revision: 1,
    doc: "x in f32 whatever the recipe's precision: decay rates and other small exponents",
    why: "precision is the recipe's, which no text sees",
    torch: Some("wide({0})"),
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: reshape_cost,
    forward,
    backward,
    drawn: Drawn::PLAIN,
    examples: &["f32(linear w (x, 6)) * f32(x)"],
};

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    Lowered::one(plan.island(call.operands[0]))
}

/// The identity; `differentiate` casts it to the operand's dtype.
fn backward(
    _: &mut PlanBuilder,
    call: &Call,
    lowered: &Lowered,
    dy: &[Option<ValId>],
) -> Gradients {
    if lowered.outputs[0] == call.operands[0] {
        // The output is the operand's own value, so its gradient needs no step.
        return vec![None];
    }
    vec![dy[0]]
}
