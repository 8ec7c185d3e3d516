//! A plan under construction, as the rules of primitives see it: they emit steps, whose results have the types that the
//! kernels give them.
//!
//! It also chooses dtypes. Masters, moments, gradients of parameters, states of scans and losses are f32 in every
//! precision; so are, inside the kernels, norm statistics, rotary angles, softmax and scans; `f32(x)` and the logits that a
//! caller reads are islands. A parameter that only `f32(…)` reads is not rounded.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::ir::{Attrs, ParamId, Type};
use crate::kernel::{self, Kernel, OperandTypes};
use crate::number::Root;
use crate::plan::{Input, Loss, Output, Phase, Plan, Precision, Step, StepSource, TERMS, ValId};
use crate::value::{DType, Extent, Value};

/// The call that a forward or gradient rule lowers.
#[derive(Clone, Debug)]
pub struct Call<'g> {
    /// Resolved configuration.
    pub attrs: Cow<'g, Attrs>,
    /// Tensors, then parameters. `canon` in a slot has as many tensors as the slot.
    pub operands: Vec<ValId>,
    /// The types of the results, from the graph.
    pub results: Cow<'g, [Type]>,
    /// The initial state, one value per part; empty for a zero state.
    pub past: Vec<ValId>,
    /// Whether the final state is needed.
    pub keeps_state: bool,
    /// For a call that draws numbers, its name: `layers.3.mixer.dropout`.
    pub draws: Option<Rc<str>>,
}

/// The result of a forward rule.
#[derive(Clone, Debug, Default)]
pub struct Lowered {
    /// One value for each result of the call.
    pub outputs: Vec<ValId>,
    /// Values that the gradient rule reads in addition to operands and outputs.
    pub saved: Vec<ValId>,
    /// The final state, one value per part, if needed.
    pub state: Vec<ValId>,
}

impl Lowered {
    /// One result, with nothing saved and no state.
    pub fn one(output: ValId) -> Lowered {
        Lowered { outputs: vec![output], ..Lowered::default() }
    }
}

/// Gradients of a call's operands, in order; `None` for no gradient.
pub type Gradients = Vec<Option<ValId>>;

/// Emits the steps of a call.
pub type Forward = fn(&mut PlanBuilder, &Call) -> Lowered;

/// Emits the steps of its gradient, given the gradients of its outputs. At least one is `Some`.
pub type Backward = fn(&mut PlanBuilder, &Call, &Lowered, &[Option<ValId>]) -> Gradients;

/// A plan under construction.
#[derive(Debug)]
pub struct PlanBuilder {
    pub(crate) plan: Plan,
    /// Of the next steps.
    pub(crate) phase: Phase,
    /// Of the next steps.
    pub(crate) source: Option<StepSource>,
    pub(crate) precision: Precision,
    /// Whether dropout drops anything.
    pub(crate) drops: bool,
    pub(crate) loss: Loss,
    /// Weights of auxiliary losses, in the order of [`TERMS`].
    pub(crate) weights: [Option<Root>; TERMS.len()],
    /// Sums of auxiliary losses so far.
    pub(crate) terms: [Option<ValId>; TERMS.len()],
    /// Inputs so far.
    given: BTreeMap<Input, ValId>,
}

impl PlanBuilder {
    pub(crate) fn new(phase: Phase, precision: Precision) -> PlanBuilder {
        PlanBuilder {
            plan: Plan::default(),
            phase,
            source: None,
            precision,
            drops: false,
            loss: Loss::CROSS_ENTROPY,
            weights: [None; TERMS.len()],
            terms: [None; TERMS.len()],
            given: BTreeMap::new(),
        }
    }

    /// Appends one step and returns its results, as many as the kernel has.
    pub fn emit<const N: usize>(
        &mut self,
        kernel: impl Into<Kernel>,
        inputs: &[ValId],
    ) -> [ValId; N] {
        let outputs = self.emit_all(kernel, inputs.to_vec());
        // Rules take as many results as the kernel's contract has. `Plan::check` tests both.
        std::array::from_fn(|i| outputs[i])
    }

    /// As [`PlanBuilder::emit`], for kernels with one result.
    pub fn one(&mut self, kernel: impl Into<Kernel>, inputs: &[ValId]) -> ValId {
        let [y] = self.emit(kernel, inputs);
        y
    }

    /// As [`PlanBuilder::emit`], for kernels with a variable number of results.
    pub fn emit_all(&mut self, kernel: impl Into<Kernel>, inputs: Vec<ValId>) -> Vec<ValId> {
        let kernel = kernel.into();
        let operands: Vec<&Value> = inputs.iter().map(|id| self.value(*id)).collect();
        let results = kernel.definition().results(OperandTypes(&operands));
        let outputs: Vec<ValId> = results.into_iter().map(|value| self.add(value)).collect();
        self.plan.steps.push(Step {
            kernel,
            inputs,
            outputs: outputs.clone(),
            drop_after: Vec::new(),
            phase: self.phase,
            source: self.source.clone(),
        });
        outputs
    }

    /// The shape and name of a value of the plan.
    pub fn value(&self, id: ValId) -> &Value {
        &self.plan.values[id.0 as usize]
    }

    /// Whether a value has leading batch and time axes. A function of parameters alone has none.
    pub fn is_sequence(&self, id: ValId) -> bool {
        self.value(id).dims.first() == Some(&Extent::Batch)
    }

    /// Extents after batch and time, if any.
    pub fn widths(&self, id: ValId) -> Vec<i64> {
        self.value(id).dims.iter().filter_map(|dim| dim.fixed()).collect()
    }

    /// Sums the gradient of an operand that a kernel broadcast over batch and time.
    pub fn unspread(&mut self, gradient: ValId, operand: ValId) -> ValId {
        if self.is_sequence(gradient) && !self.is_sequence(operand) {
            self.one(kernel::SumTokens, &[gradient])
        } else {
            gradient
        }
    }

    /// What an auxiliary loss is multiplied by, in a plan that computes it.
    pub(crate) fn weight_of(&self, term: &str) -> Option<Root> {
        let at = TERMS.iter().position(|known| *known == term)?;
        self.weights[at]
    }

    /// The targets of the next token.
    pub(crate) fn targets(&mut self) -> ValId {
        let dims = vec![Extent::Batch, Extent::Time];
        self.input(Input::Targets, "targets", dims, DType::I64)
    }

    /// The factor of every gradient.
    pub(crate) fn grad_scale(&mut self) -> ValId {
        self.input(Input::GradScale, "grad_scale", Vec::new(), DType::F64)
    }

    /// The loss of each target.
    pub(crate) fn cross_entropy(&self) -> kernel::CrossEntropy {
        let Loss { nll_square, z_loss, .. } = self.loss;
        kernel::CrossEntropy { nll_square, z_loss }
    }

    /// Its gradient, if it is one of several losses with this weight.
    pub(crate) fn cross_entropy_grad(&self, weight: Root) -> kernel::CrossEntropyGrad {
        let Loss { nll_square, z_loss, .. } = self.loss;
        kernel::CrossEntropyGrad { nll_square, z_loss, weight }
    }

    /// Adds an auxiliary loss. A layer that is lowered again for its gradient has been counted.
    pub(crate) fn add_term(&mut self, term: &str, value: ValId) {
        let Some(at) = TERMS.iter().position(|known| *known == term) else { return };
        if self.phase != Phase::Recompute {
            let sum = match self.terms[at] {
                Some(before) => self.one(kernel::Add, &[before, value]),
                None => value,
            };
            self.terms[at] = Some(sum);
        }
    }

    /// The absolute position of the first token.
    pub fn position(&mut self) -> ValId {
        self.input(Input::Position, "position", Vec::new(), DType::I64)
    }

    /// The key of the step's dropout, and the number of the first window.
    pub(crate) fn draws(&mut self) -> [ValId; 2] {
        [
            self.input(Input::DropoutKey, "dropout_key", Vec::new(), DType::I64),
            self.input(Input::Window, "window", Vec::new(), DType::I64),
        ]
    }

    /// An input of the plan. Its name comes from the first call that asks for it.
    pub(crate) fn input(
        &mut self,
        input: Input,
        name: impl Into<Cow<'static, str>>,
        dims: Vec<Extent>,
        dtype: DType,
    ) -> ValId {
        if let Some(id) = self.given.get(&input) {
            return *id;
        }
        let id = self.add(Value { name: name.into(), dims, dtype });
        self.plan.inputs.push((input, id));
        self.given.insert(input, id);
        id
    }

    pub(crate) fn output(&mut self, output: Output, id: ValId) {
        self.plan.outputs.push((output, id));
    }

    fn add(&mut self, value: Value) -> ValId {
        self.plan.values.push(value);
        ValId((self.plan.values.len() - 1) as u32)
    }

    /// A value inside an f32 island. A rounded parameter's is its master.
    pub(crate) fn island(&mut self, x: ValId) -> ValId {
        let Some(param) = self.rounded(x) else { return self.cast(x, DType::F32) };
        let Value { name, dims, .. } = self.value(x).clone();
        self.input(Input::Param(param), name, dims, DType::F32)
    }

    /// The parameter whose rounded value this is, if any.
    fn rounded(&self, value: ValId) -> Option<ParamId> {
        let (input, _) = self.given.iter().find(|(_, id)| **id == value)?;
        if let Input::Rounded(param) = input { Some(*param) } else { None }
    }

    /// The value in this dtype; itself if it has it already.
    pub(crate) fn cast(&mut self, x: ValId, to: DType) -> ValId {
        if self.value(x).dtype == to { x } else { self.one(kernel::Cast { to }, &[x]) }
    }

    /// The gradient of a value, in the value's dtype. Gradients of parameters and their functions are f32.
    pub(crate) fn gradient_of(&mut self, value: ValId, gradient: ValId) -> ValId {
        let to = if self.is_sequence(value) { self.value(value).dtype } else { DType::F32 };
        self.cast(gradient, to)
    }
}
