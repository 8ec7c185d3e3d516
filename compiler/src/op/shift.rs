//! `shift(x)`: the channels of the token before, zeros before the first: RWKV's token shift (Peng et al. 2023, section
//! 3.1). It is a primitive because it sees another time step.

use super::{
    Arity, Attrs, Drawn, Mismatch, Primitive, Shaped, State, Time, Type, channels, reshape_cost,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "shift",
    revision: 1,
    doc: "the token before, zeros before the first (Peng et al. 2023, section 3.1)",
    why: "state: the token before",
    torch: None,
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Stateful,
    shape,
    cost: reshape_cost,
    forward,
    backward,
    drawn: Drawn::TIME,
    examples: &["linear w (shift(x), 6) + x * shift(x)"],
};

fn shape(_: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [x] = inputs else {
        return Err(Mismatch::new("`shift` takes one tensor", "write `shift(x)`"));
    };
    let mut shaped = Shaped::plain(x.clone());
    shaped.state = Some(State::Inputs { steps: 1, channels: channels("shift", x)? });
    Ok(shaped)
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let state = !call.past.is_empty();
    let inputs: Vec<ValId> = call.operands.iter().chain(&call.past).copied().collect();
    let y = plan.one(kernel::Shift { state }, &inputs);
    let mut after = Vec::new();
    if call.keeps_state {
        // What a filter of two taps remembers.
        after.push(plan.one(kernel::CausalConvState { kernel: 2, parts: 1, state }, &inputs));
    }
    Lowered { outputs: vec![y], saved: Vec::new(), state: after }
}

/// The gradient of the next token's result.
fn backward(plan: &mut PlanBuilder, _: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    vec![dy[0].map(|dy| plan.one(kernel::ShiftGrad, &[dy]))]
}
