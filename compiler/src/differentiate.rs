//! Adds gradients to a plan: every primitive's gradient rule, last call first.
//!
//! Gradients from several users of a value are added in the order in which the reversed tape reaches the users, so their
//! sum is one fixed expression; a recomputed layer runs the same kernels as in its forward pass.

use crate::kernel;
use crate::lower::{Lower, Taped};
use crate::plan::{Phase, ValId};

/// Gradients by value.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    gradients: Vec<Option<ValId>>,
}

impl Flow {
    pub(crate) fn gradient(&self, value: ValId) -> Option<ValId> {
        self.gradients.get(value.0 as usize).copied().flatten()
    }

    fn set(&mut self, value: ValId, gradient: ValId) {
        let at = value.0 as usize;
        if self.gradients.len() <= at {
            self.gradients.resize(at + 1, None);
        }
        self.gradients[at] = Some(gradient);
    }

    /// Adds the gradient from one more user.
    fn add(&mut self, lower: &mut Lower, value: ValId, gradient: ValId) {
        let gradient = lower.builder.gradient_of(value, gradient);
        let sum = match self.gradient(value) {
            Some(before) => lower.builder.one(kernel::Add, &[before, gradient]),
            None => gradient,
        };
        self.set(value, sum);
    }
}

/// Emits the backward pass of everything on the tape, and empties the tape.
pub(crate) fn differentiate(lower: &mut Lower, value: ValId, gradient: ValId) -> Flow {
    let mut flow = Flow::default();
    flow.set(value, gradient);
    let tape = std::mem::take(&mut lower.tape);
    lower.builder.phase = Phase::Backward;
    reverse(lower, tape, &mut flow);
    lower.builder.source = None;
    flow
}

fn reverse<'g>(lower: &mut Lower<'g>, tape: Vec<Taped<'g>>, flow: &mut Flow) {
    for taped in tape.into_iter().rev() {
        match taped {
            Taped::Op { primitive, call, lowered, source } => {
                let back: Vec<Option<ValId>> =
                    lowered.outputs.iter().map(|id| flow.gradient(*id)).collect();
                if back.iter().all(Option::is_none) {
                    continue;
                }
                lower.builder.source = source;
                let gradients = (primitive.backward)(&mut lower.builder, &call, &lowered, &back);
                for (operand, gradient) in call.operands.iter().zip(gradients) {
                    if let Some(gradient) = gradient {
                        flow.add(lower, *operand, gradient);
                    }
                }
            }
            Taped::Layer { placed, inputs, outputs } => {
                lower.builder.phase = Phase::Recompute;
                let again = lower.body(&placed, &inputs);
                for (old, new) in outputs.iter().zip(again) {
                    if let Some(gradient) = flow.gradient(*old) {
                        flow.set(new, gradient);
                    }
                }
                lower.builder.phase = Phase::Backward;
                let tape = std::mem::take(&mut lower.tape);
                reverse(lower, tape, flow);
            }
        }
    }
}
