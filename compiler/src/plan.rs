//! The Plan: every step of forward, loss, backward and update, as data the runtime executes.
//!
//! In: `lower`, `differentiate` and `update` build it from a graph. Out: typed values, and steps
//! that name a kernel, its operands and results, and what may be freed after it. Must stay true:
//! a value is written by one step and read only after it (checked by [`Plan::check`]); dtypes and
//! shapes are explicit; two runs of one plan differ in nothing but their inputs; nothing here
//! depends on a device.

mod build;
pub mod kernel;
mod liveness;
mod shape;
#[cfg(test)]
mod tests;
mod text;
mod update;

use std::borrow::Cow;
use std::rc::Rc;

use dsl::Span;

use crate::graph::{ParamId, StateId};

pub use crate::lower::Stream;
pub use build::{
    Decays, Loss, Optimizer, Options, Recompute, TrainOptions, evaluate, forward, train,
};
pub use kernel::{Activation, Function, Gate, Kernel, RopeLayout};
pub use liveness::{Memory, Sizes};
pub(crate) use shape::infer;
pub(crate) use update::decayed;

/// An index into [`Plan::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValId(pub u32);

/// One straight-line program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub values: Vec<Value>,
    /// What the caller supplies, and nothing that no step reads; in the order of [`Input`].
    pub inputs: Vec<(Input, ValId)>,
    pub steps: Vec<Step>,
    /// What the caller keeps. Not freed by any `drop_after`.
    pub outputs: Vec<(Output, ValId)>,
}

/// What is known of a value before it exists. A value of no dims is a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// A parameter's path, an input's name, or which result of its kernel it is (`y`, `rstd`).
    pub name: Cow<'static, str>,
    pub dims: Vec<Extent>,
    pub dtype: DType,
}

/// One axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Extent {
    Batch,
    /// Tokens given in this call.
    Time,
    /// Rows of a key-value state coming in: tokens so far, at most the window.
    Past(Option<i64>),
    /// `Past` + `Time`.
    Seen(Option<i64>),
    /// Rows of a windowed key-value state going out: `Seen`, at most the window.
    Kept(i64),
    Fixed(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DType {
    F32,
    /// Sums and run-time numbers only: losses, norms, learning rates.
    F64,
    /// Token ids, positions, counts.
    I64,
}

/// One execution of one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub kernel: Kernel,
    pub inputs: Vec<ValId>,
    pub outputs: Vec<ValId>,
    /// Values of earlier steps (or of this one) that nothing reads after it: the runtime frees
    /// their memory or gives it to this step's outputs where the kernel permits.
    pub drop_after: Vec<ValId>,
    pub phase: Phase,
    /// The graph node it came from; `None` for loss, sums and update.
    pub source: Option<Source>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    Forward,
    Loss,
    /// The forward pass of a layer, done again because its values were not kept.
    Recompute,
    Backward,
    /// Two sums of micro-batches made one.
    Combine,
    Update,
}

/// Where in the graph a step came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// `None` for embedding and head.
    pub layer: Option<u32>,
    /// The slot whose fill the node belongs to.
    pub slot: Option<Rc<str>>,
    /// Index into the nodes of that body.
    pub node: u32,
    /// The primitive.
    pub op: &'static str,
    pub span: Span,
}

/// What a caller supplies. Shapes: see each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Input {
    /// [batch, time] i64, each in 0..vocab.
    Tokens,
    /// [batch, time] i64, each in 0..vocab or [`IGNORED`].
    Targets,
    /// [] i64: the absolute position of the first token; 0 in training.
    Position,
    /// [] f64: 1 / counted targets of the whole step; multiplies every gradient.
    GradScale,
    /// [] f64: after warm-up and schedule.
    LearningRate,
    /// [] i64: 1 for the first update.
    StepNumber,
    /// f32, of the parameter's shape. `ParamId` indexes `graph.top.params`.
    Param(ParamId),
    /// See [`StatePart`]. `StateId` indexes `graph.top.states`.
    State(StateId, StatePart),
    /// One of two sums to add: what `micro` (or `combine` itself) gave under this name.
    Left(Output),
    Right(Output),
    /// f32, of the parameter's shape: summed over the step's micro-batches.
    Gradient(ParamId),
    /// f32, of the parameter's shape: AdamW's running means; zeros before the first step.
    FirstMoment(ParamId),
    SecondMoment(ParamId),
}

/// What a plan leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Output {
    /// [batch, time, vocab] f32.
    Logits,
    /// [batch, time] f32: −ln p(target), 0 where ignored.
    Nll,
    /// [] f64: the training loss, summed over counted targets, not divided.
    Loss,
    /// [] i64: targets that are not [`IGNORED`].
    Counted,
    /// [batch, time] i64: the likeliest token, the lowest id among equals.
    Argmax,
    State(StateId, StatePart),
    /// f32, of the parameter's shape.
    Gradient(ParamId),
    /// [] f64: global L2 norm of the summed gradients before clipping.
    GradNorm,
    /// Written over the input of the same parameter.
    Param(ParamId),
    FirstMoment(ParamId),
    SecondMoment(ParamId),
}

/// The tensors a state consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatePart {
    /// Of `State::Inputs`: [batch, steps, channels] f32, the latest last; zeros before the start.
    Inputs,
    /// Of `State::KeyValue`: [batch, past, kv_heads, key_dim] f32, as attended to (after RoPE).
    /// No rows before the start; at most the last `window` where there is one.
    Keys,
    /// [batch, past, kv_heads, value_dim] f32.
    Values,
    /// Of `State::Matrix`: [batch, heads, rows, columns] f32; zeros before the start.
    Matrix,
}

/// The target that counts for nothing.
pub const IGNORED: i64 = -100;

/// A training step: `micro` once for each micro-batch, `combine` up the balanced tree over
/// micro-batch indices, `update` once.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainPlan {
    /// In: tokens, targets, position (if an op asks), grad scale, parameters. Out: loss, counted,
    /// then every gradient in parameter order.
    pub micro: Plan,
    /// In: left and right of each of `micro`'s outputs. Out: their sums, written over the left.
    pub combine: Plan,
    /// In: learning rate, step number, and every parameter's value, gradient and moments. Out: the
    /// norm, then per parameter its value and moments, written over their inputs.
    pub update: Plan,
}

impl Plan {
    pub fn value(&self, id: ValId) -> Option<&Value> {
        self.values.get(id.0 as usize)
    }

    pub fn input(&self, input: Input) -> Option<ValId> {
        self.inputs.iter().find(|(i, _)| *i == input).map(|(_, id)| *id)
    }

    pub fn output(&self, output: Output) -> Option<ValId> {
        self.outputs.iter().find(|(o, _)| *o == output).map(|(_, id)| *id)
    }
}
