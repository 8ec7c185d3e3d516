//! The plan: every step of forward, loss, backward and update, as data the runtime executes.
//!
//! A value is written by one step and read only after it, as [`Plan::check`] tests. Runs of one plan differ only in their
//! inputs, and nothing depends on a device.

mod check;
mod cost;
pub(crate) mod liveness;
mod options;
mod order;
mod scratch;
#[cfg(test)]
pub(crate) mod tests;
mod text;

use std::rc::Rc;

use dsl::Span;

pub use crate::ir::{ParamId, StateId};
pub use crate::kernel::{
    Activation, Bf16, FEW_QUERIES, Gate, IGNORED, Kernel, Mixed, MuonScale, RopeLayout,
    RopeScaling, Scores,
};
pub use crate::value::{DType, Extent, Sizes, Value};
pub use cost::Work;
pub use liveness::Memory;
pub use options::{
    Decays, Loss, MEANS, Muon, Optimizer, Options, ParamUpdate, Precision, Processor, Recompute,
    Stream, TERMS, TrainOptions, UpdateRule, ahead_term,
};
pub use order::{Allocation, Race, Streams};

/// An index into [`Plan::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValId(pub u32);

/// One straight-line program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// All values; a [`ValId`] is an index into them.
    pub values: Vec<Value>,
    /// Inputs from the caller, without unused ones, in the order of [`Input`].
    pub inputs: Vec<(Input, ValId)>,
    /// Executions of kernels, in order.
    pub steps: Vec<Step>,
    /// Values that the caller keeps. No `drop_after` frees them.
    pub outputs: Vec<(Output, ValId)>,
}

/// One execution of one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The computation, with its constants.
    pub kernel: Kernel,
    /// Operands, in the order that the kernel documents.
    pub inputs: Vec<ValId>,
    /// Results, in the order that the kernel documents.
    pub outputs: Vec<ValId>,
    /// Values of earlier steps (or of this one) that no later step reads: the runtime frees their
    /// memory, or reuses it for this step's outputs if the kernel permits.
    pub drop_after: Vec<ValId>,
    /// The part of training that it belongs to.
    pub phase: Phase,
    /// The graph node of the step; `None` for loss, sums and update.
    pub source: Option<StepSource>,
}

/// Parts of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// From tokens to logits.
    Forward,
    /// The loss, and the gradient of the logits.
    Loss,
    /// The forward pass of a layer, run again because its values were not kept.
    Recompute,
    /// Gradients, last layer first.
    Backward,
    /// Adds the sums of two groups of micro-batches.
    Combine,
    /// Clipping and AdamW.
    Update,
}

/// The place of a step in the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSource {
    /// `None` for embedding and head.
    pub layer: Option<u32>,
    /// The slot, if the node belongs to a fill.
    pub slot: Option<Rc<str>>,
    /// Index into the nodes of that body.
    pub node: u32,
    /// The primitive.
    pub op: &'static str,
    /// Place in the text that declared the node.
    pub span: Span,
}

/// An input from the caller. Each variant gives the shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Input {
    /// [batch, time] i64, each in 0..vocab.
    Tokens,
    /// [batch, time] i64, each in 0..vocab, or [`IGNORED`].
    Targets,
    /// [] i64: the absolute position of the first token; 0 in training.
    Position,
    /// [] f64: 1 / (counted targets of the whole step); multiplies every gradient.
    GradScale,
    /// [] i64: the key of the step's dropout, in training plans of graphs that have it.
    DropoutKey,
    /// [] i64: the number of the first row's window, counted from the first step's first window.
    Window,
    /// [] f64: the learning rate after warm-up and schedule.
    LearningRate,
    /// [] i64: 1 for the first update.
    StepNumber,
    /// f32, with the parameter's shape. `ParamId` indexes `graph.top.params`.
    Param(ParamId),
    /// bf16, with the parameter's shape: the parameter rounded to the nearest bf16, ties to even. The caller rounds it
    /// once after each update.
    Rounded(ParamId),
    /// See [`StatePart`]. `StateId` indexes `graph.top.states`.
    State(StateId, StatePart),
    /// The first of two sums to add: an output of `micro` or of `combine` itself.
    Left(Output),
    /// The second of two sums to add.
    Right(Output),
    /// f32, with the parameter's shape: summed over the step's micro-batches.
    Gradient(ParamId),
    /// f32, with the parameter's shape: AdamW's running means; zeros before the first step.
    FirstMoment(ParamId),
    /// f32, with the parameter's shape: AdamW's running means of squares; zeros before the first step.
    SecondMoment(ParamId),
}

/// An output of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Output {
    /// [batch, time, vocab] f32.
    Logits,
    /// [batch, time] f32: −ln p(target), 0 where ignored.
    Nll,
    /// [] f64: the training loss, summed over counted targets, not divided.
    Loss,
    /// [] i64: the number of targets that are not [`IGNORED`].
    Counted,
    /// [] f64: the sum of a micro-batch's auxiliary losses of this name, by its place in [`TERMS`], without weight; of
    /// `ahead_loss`, summed over targets like the loss.
    Term(u32),
    /// [batch, time] i64: the most likely token; the lowest id among equals.
    Argmax,
    /// The state after the last token of the call; shapes as in [`Input::State`].
    State(StateId, StatePart),
    /// f32, with the parameter's shape.
    Gradient(ParamId),
    /// [] f64: global L2 norm of the summed gradients before clipping.
    GradNorm,
    /// Written over the input for the same parameter.
    Param(ParamId),
    /// Written over the input for the same parameter.
    FirstMoment(ParamId),
    /// Written over the input for the same parameter.
    SecondMoment(ParamId),
}

/// The tensors a state consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatePart {
    /// For `State::Inputs`: [batch, steps, channels] in the compute dtype, the latest last; zeros before the start.
    Inputs,
    /// For `State::Tokens`: [batch, count] i64, each token plus 1, the latest last; 0 before the start.
    Tokens,
    /// For `State::KeyValue`: [batch, past, kv_heads, key_dim] in the compute dtype, as used by attention (after RoPE).
    /// No rows before the start; with a window, at most the last `window` rows.
    Keys,
    /// [batch, past, kv_heads, value_dim] in the compute dtype.
    Values,
    /// For `State::Matrix`: [batch, heads, rows, columns] f32; zeros before the start.
    Matrix,
}

/// A training step: `micro` once for each micro-batch, `combine` up the balanced tree over
/// micro-batch indices, then `update` once.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainPlan {
    /// In: tokens, targets, position (if an op needs it), grad scale, parameters. Out: loss, counted,
    /// then every gradient in parameter order.
    pub micro: Plan,
    /// In: each of `micro`'s outputs, left and right. Out: their sums, written over the left ones.
    pub combine: Plan,
    /// In: learning rate, step number, and every parameter's value, gradient and moments. Out: the
    /// norm, then each parameter's value and moments, written over their inputs.
    pub update: Plan,
}

impl Step {
    /// The operand whose memory a result has: the one that it views or is written over.
    pub fn shares(&self, result: usize) -> Option<ValId> {
        let operand = match self.kernel.facts().over.get(result) {
            Some(operand) => *operand,
            None if self.kernel.is_view() => 0,
            None => return None,
        };
        self.inputs.get(operand).copied()
    }
}

impl Plan {
    /// The value with this id.
    pub fn value(&self, id: ValId) -> Option<&Value> {
        self.values.get(id.0 as usize)
    }

    /// The value that holds an input; None if nothing reads it.
    pub fn input(&self, input: Input) -> Option<ValId> {
        self.inputs.iter().find(|(i, _)| *i == input).map(|(_, id)| *id)
    }

    /// The value that holds an output; None if the plan does not return it.
    pub fn output(&self, output: Output) -> Option<ValId> {
        self.outputs.iter().find(|(o, _)| *o == output).map(|(_, id)| *id)
    }
}
