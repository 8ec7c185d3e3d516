//! PASS Graph → Plan: the forward steps of every body, slots and layers inlined in canonical order.
//!
//! In: a graph; each primitive's forward rule from `op/`. Out: steps, and the tape that
//! `differentiate` reads backwards. Must stay true: there is one value per parameter, however often
//! it is used, so shared parameters sum their gradients; states are numbered as in `graph.top`;
//! the steps depend only on the graph, the precision and the stream.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::graph::{Body, Graph, Node, NodeKind, Out, ParamId, StateId};
use crate::number::Root;
use crate::op::{self, Attr, Attrs, AttrsExt, Primitive, State, Type};
use crate::plan::{
    DType, Extent, Input, Kernel, Loss, Output, Phase, Plan, Precision, Recompute, Source,
    StatePart, Step, Stream, TERMS, ValId, Value, ahead_term, infer,
};

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
    pub place: Option<Rc<str>>,
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
pub type Forward = fn(&mut Lower, &Call) -> Lowered;

/// Emits the steps of its gradient, given the gradients of its outputs. At least one is `Some`.
pub type Backward = fn(&mut Lower, &Call, &Lowered, &[Option<ValId>]) -> Gradients;

/// A plan under construction.
pub struct Lower<'g> {
    pub(crate) graph: &'g Graph,
    pub(crate) plan: Plan,
    pub(crate) phase: Phase,
    pub(crate) precision: Precision,
    pub(crate) recompute: Recompute,
    pub(crate) stream: Stream,
    /// Whether dropout drops anything.
    pub(crate) drops: bool,
    pub(crate) loss: Loss,
    /// Weights of auxiliary losses, in the order of [`TERMS`].
    pub(crate) weights: [Option<Root>; TERMS.len()],
    /// Sums of auxiliary losses so far.
    pub(crate) terms: [Option<ValId>; TERMS.len()],
    /// The operations so far, for `differentiate`.
    pub(crate) tape: Vec<Taped<'g>>,
    source: Option<Source>,
    /// The name of the next call, if it draws numbers.
    place: Option<Rc<str>>,
    /// Inputs so far.
    given: BTreeMap<Input, ValId>,
    /// Parameters so far, as converted by the precision policy.
    params: Vec<Option<ValId>>,
}

pub(crate) enum Taped<'g> {
    Op {
        primitive: &'static Primitive,
        call: Call<'g>,
        lowered: Lowered,
        source: Option<Source>,
    },
    /// A layer that is recomputed for its gradient.
    Layer {
        placed: Placed<'g>,
        inputs: Vec<ValId>,
        outputs: Vec<ValId>,
    },
}

/// A body with its parameters and states in the whole graph.
#[derive(Clone)]
pub(crate) struct Placed<'g> {
    body: &'g Body,
    /// Global parameters and states for each of the body's; `None` for the top body's own.
    params: Option<Vec<ParamId>>,
    states: Option<Vec<StateId>>,
    layer: Option<u32>,
    slot: Option<Rc<str>>,
}

impl<'g> Lower<'g> {
    pub(crate) fn new(graph: &'g Graph, precision: Precision) -> Lower<'g> {
        Lower {
            graph,
            plan: Plan::default(),
            phase: Phase::Forward,
            precision,
            recompute: Recompute::Nothing,
            stream: Stream::default(),
            drops: false,
            place: None,
            loss: Loss::CROSS_ENTROPY,
            weights: [None; TERMS.len()],
            terms: [None; TERMS.len()],
            tape: Vec::new(),
            source: None,
            given: BTreeMap::new(),
            params: vec![None; graph.top.params.len()],
        }
    }

    /// Appends one step and returns its results, as many as the kernel has.
    pub fn emit<const N: usize>(&mut self, kernel: Kernel, inputs: &[ValId]) -> [ValId; N] {
        let outputs = self.emit_all(kernel, inputs.to_vec());
        // Rules take as many results as the kernel's contract has. `Plan::check` tests both.
        std::array::from_fn(|i| outputs[i])
    }

    /// As [`Lower::emit`], for kernels with one result.
    pub fn one(&mut self, kernel: Kernel, inputs: &[ValId]) -> ValId {
        let [y] = self.emit(kernel, inputs);
        y
    }

    /// As [`Lower::emit`], for kernels with a variable number of results.
    pub fn emit_all(&mut self, kernel: Kernel, inputs: Vec<ValId>) -> Vec<ValId> {
        let operands: Vec<&Value> = inputs.iter().map(|id| self.value(*id)).collect();
        let made = infer(&kernel, &operands);
        let outputs: Vec<ValId> = made.into_iter().map(|value| self.add(value)).collect();
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
        let fixed = |dim: &Extent| match dim {
            Extent::Fixed(n) => Some(*n),
            Extent::Batch
            | Extent::Time
            | Extent::CacheLen(_)
            | Extent::KvLen(_)
            | Extent::NewCacheLen(_) => None,
        };
        self.value(id).dims.iter().filter_map(fixed).collect()
    }

    /// Sums the gradient of an operand that a kernel broadcast over batch and time.
    pub fn unspread(&mut self, gradient: ValId, operand: ValId) -> ValId {
        if self.is_sequence(gradient) && !self.is_sequence(operand) {
            self.one(Kernel::SumTokens, &[gradient])
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
    pub(crate) fn cross_entropy(&self) -> Kernel {
        let Loss { nll_square, z_loss, .. } = self.loss;
        Kernel::CrossEntropy { nll_square, z_loss }
    }

    /// Its gradient, if it is one of several losses with this weight.
    pub(crate) fn cross_entropy_grad(&self, weight: Root) -> Kernel {
        let Loss { nll_square, z_loss, .. } = self.loss;
        Kernel::CrossEntropyGrad { nll_square, z_loss, weight }
    }

    /// Adds an auxiliary loss. A layer that is lowered again for its gradient has been counted.
    pub(crate) fn add_term(&mut self, term: &str, value: ValId) {
        let Some(at) = TERMS.iter().position(|known| *known == term) else { return };
        if self.phase != Phase::Recompute {
            let sum = match self.terms[at] {
                Some(before) => self.one(Kernel::Add, &[before, value]),
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

    pub(crate) fn at(&mut self, source: Option<Source>) {
        self.source = source;
    }

    fn add(&mut self, value: Value) -> ValId {
        self.plan.values.push(value);
        ValId((self.plan.values.len() - 1) as u32)
    }

    /// The value of a parameter, if it is used so far.
    pub(crate) fn used(&self, id: ParamId) -> Option<ValId> {
        self.params.get(id.0 as usize).copied().flatten()
    }

    fn param(&mut self, id: ParamId) -> ValId {
        let at = id.0 as usize;
        if let Some(known) = self.params[at] {
            return known;
        }
        let used = match self.precision {
            Precision::F32 => self.master(id),
            Precision::Bf16 => self.parameter(id, Input::Rounded(id), DType::Bf16),
        };
        self.params[at] = Some(used);
        used
    }

    /// A parameter in f32, whatever the precision.
    pub(crate) fn master(&mut self, id: ParamId) -> ValId {
        self.parameter(id, Input::Param(id), DType::F32)
    }

    fn parameter(&mut self, id: ParamId, input: Input, dtype: DType) -> ValId {
        let param = &self.graph.top.params[id.0 as usize];
        self.input(input, param.path.clone(), fixed(&param.shape), dtype)
    }

    /// The parameter whose rounded value this is, if any.
    pub(crate) fn rounded(&self, value: ValId) -> Option<ParamId> {
        let (input, _) = self.given.iter().find(|(_, id)| **id == value)?;
        if let Input::Rounded(param) = input { Some(*param) } else { None }
    }

    /// Emits tokens to logits, with all states.
    pub(crate) fn forward(&mut self) -> ValId {
        let graph = self.graph;
        let dims = vec![Extent::Batch, Extent::Time];
        let tokens = self.input(Input::Tokens, "tokens", dims, DType::I64);
        let top = Placed { body: &graph.top, params: None, states: None, layer: None, slot: None };
        let outputs = self.body(&top, &[tokens]);
        self.source = None;
        outputs[0]
    }

    /// Emits the steps of one body.
    pub(crate) fn body(&mut self, placed: &Placed<'g>, inputs: &[ValId]) -> Vec<ValId> {
        let body = placed.body;
        let mut made: Vec<Vec<ValId>> = vec![Vec::new(); body.nodes.len()];
        for index in body.reachable_by(&|node| self.read(node)) {
            let node = &body.nodes[index as usize];
            let read = self.read(node);
            let operands: Vec<ValId> =
                read.iter().map(|o| made[o.node as usize][o.port as usize]).collect();
            made[index as usize] = self.node(placed, index, node, operands, inputs);
        }
        body.outputs.iter().map(|o| made[o.node as usize][o.port as usize]).collect()
    }

    /// The operands that a node's results depend on in this plan.
    fn read<'n>(&self, node: &'n Node) -> &'n [Out] {
        node.read(&|ahead| ahead_term(ahead).is_some_and(|term| self.weight_of(term).is_some()))
    }

    fn node(
        &mut self,
        placed: &Placed<'g>,
        index: u32,
        node: &'g Node,
        operands: Vec<ValId>,
        inputs: &[ValId],
    ) -> Vec<ValId> {
        let source = |op: &'static str| {
            Some(Source {
                layer: placed.layer,
                slot: placed.slot.clone(),
                node: index,
                op,
                span: node.span,
            })
        };
        match &node.kind {
            NodeKind::Input(n) => vec![inputs[*n as usize]],
            NodeKind::Param(id) => vec![self.param(placed.param(*id))],
            NodeKind::Op { primitive, attrs, state } => {
                self.source = source(primitive.name);
                self.place = attrs.path(op::DRAWN_AT).map(|at| placed.drawn_at(at));
                let attrs = Cow::Borrowed(attrs);
                let results = Cow::Borrowed(node.types.as_slice());
                self.call(primitive, attrs, operands, results, state.map(|id| placed.state(id)))
            }
            NodeKind::Slot { name, fill, params, states } => {
                let fill = Placed {
                    body: fill,
                    params: Some(params.iter().map(|id| placed.param(*id)).collect()),
                    states: Some(states.iter().map(|id| placed.state(*id)).collect()),
                    layer: placed.layer,
                    slot: Some(Rc::from(name.as_str())),
                };
                self.slot(&fill, operands, &node.types, source("slot"))
            }
            NodeKind::Layer { index, body, params, states } => {
                let layer = Placed {
                    body,
                    params: Some(params.iter().map(|id| placed.param(*id)).collect()),
                    states: Some(states.iter().map(|id| placed.state(*id)).collect()),
                    layer: Some(*index),
                    slot: None,
                };
                self.layer(layer, operands)
            }
        }
    }

    fn layer(&mut self, placed: Placed<'g>, inputs: Vec<ValId>) -> Vec<ValId> {
        match self.recompute {
            Recompute::Nothing | Recompute::Selective => self.body(&placed, &inputs),
            Recompute::Layers => {
                let before = self.tape.len();
                let outputs = self.body(&placed, &inputs);
                self.tape.truncate(before);
                self.tape.push(Taped::Layer { placed, inputs, outputs: outputs.clone() });
                outputs
            }
        }
    }

    /// A filled slot. A lone `canon` reads the operands in place; any other fill reads their
    /// concatenation, and its result is split again.
    fn slot(
        &mut self,
        fill: &Placed<'g>,
        operands: Vec<ValId>,
        types: &'g [Type],
        source: Option<Source>,
    ) -> Vec<ValId> {
        if let Some((primitive, attrs, param, state)) = lone_canon(fill.body) {
            self.source =
                source.map(|s| Source { op: primitive.name, slot: fill.slot.clone(), ..s });
            let weight = self.param(fill.param(param));
            let operands = operands.into_iter().chain([weight]).collect();
            let state = Some(fill.state(state));
            let attrs = Cow::Borrowed(attrs);
            return self.call(primitive, attrs, operands, Cow::Borrowed(types), state);
        }
        let (Some(concat), Some(split)) = (op::find("concat"), op::find("split")) else {
            unreachable!("both are in `op::ALL`");
        };
        if operands.len() == 1 {
            return self.body(fill, &operands);
        }
        let widths: Vec<i64> = types.iter().map(Type::elements).collect();
        let whole = vec![Type::seq([widths.iter().sum::<i64>()])];
        self.source = source.clone();
        let x = self.call(concat, Cow::Owned(Attrs::new()), operands, Cow::Owned(whole), None);
        let y = self.body(fill, &x);
        self.source = source;
        let attrs = Attrs::from([("widths", Attr::Ints(widths))]);
        self.call(split, Cow::Owned(attrs), y, Cow::Borrowed(types), None)
    }

    /// Lowers one primitive by its own rule.
    fn call(
        &mut self,
        primitive: &'static Primitive,
        attrs: Cow<'g, Attrs>,
        operands: Vec<ValId>,
        results: Cow<'g, [Type]>,
        state: Option<StateId>,
    ) -> Vec<ValId> {
        let past = match state.filter(|_| self.stream.state_in) {
            Some(id) => self.state_inputs(id),
            None => Vec::new(),
        };
        let keeps_state = self.stream.state_out && state.is_some();
        let place = self.place.take();
        let call = Call { attrs, operands, results, past, keeps_state, place };
        let lowered = (primitive.forward)(self, &call);
        if let Some(id) = state {
            for (part, value) in self.parts(id).into_iter().zip(&lowered.state) {
                self.output(Output::State(id, part), *value);
            }
        }
        let outputs = lowered.outputs.clone();
        let source = self.source.clone();
        self.tape.push(Taped::Op { primitive, call, lowered, source });
        outputs
    }

    fn parts(&self, id: StateId) -> Vec<StatePart> {
        state_parts(&self.graph.top.states[id.0 as usize].1).into_iter().map(|(p, _)| p).collect()
    }

    fn state_inputs(&mut self, id: StateId) -> Vec<ValId> {
        let (path, state) = &self.graph.top.states[id.0 as usize];
        let compute = self.precision.compute();
        state_parts(state)
            .into_iter()
            .map(|(part, dims)| {
                let dtype = match part {
                    StatePart::Matrix => DType::F32,
                    StatePart::Tokens => DType::I64,
                    StatePart::Inputs | StatePart::Keys | StatePart::Values => compute,
                };
                self.input(Input::State(id, part), format!("{path} {part}"), dims, dtype)
            })
            .collect()
    }
}

impl Placed<'_> {
    fn param(&self, id: ParamId) -> ParamId {
        self.params.as_ref().map_or(id, |params| params[id.0 as usize])
    }

    fn state(&self, id: StateId) -> StateId {
        self.states.as_ref().map_or(id, |states| states[id.0 as usize])
    }

    /// The name of a call that draws: its path below the arch.
    fn drawn_at(&self, at: &str) -> Rc<str> {
        match self.layer {
            Some(layer) if at.is_empty() => Rc::from(format!("layers.{layer}")),
            Some(layer) => Rc::from(format!("layers.{layer}.{at}")),
            None => Rc::from(at),
        }
    }
}

/// The tensors of a state as inputs of a plan, with their shapes.
pub(crate) fn state_parts(state: &State) -> Vec<(StatePart, Vec<Extent>)> {
    let shape = |row: Extent, dims: &[i64]| {
        [Extent::Batch, row].into_iter().chain(fixed(dims)).collect::<Vec<_>>()
    };
    match state {
        State::Inputs { steps, channels } => {
            vec![(StatePart::Inputs, shape(Extent::Fixed(*steps), &[*channels]))]
        }
        State::Tokens { count } => {
            vec![(StatePart::Tokens, shape(Extent::Fixed(*count), &[]))]
        }
        State::KeyValue { kv_heads, key_dim, value_dim, window } => {
            let past = Extent::CacheLen(*window);
            vec![
                (StatePart::Keys, shape(past, &[*kv_heads, *key_dim])),
                (StatePart::Values, shape(past, &[*kv_heads, *value_dim])),
            ]
        }
        State::Matrix { heads, rows, columns } => {
            vec![(StatePart::Matrix, shape(Extent::Fixed(*heads), &[*rows, *columns]))]
        }
    }
}

fn fixed(dims: &[i64]) -> Vec<Extent> {
    dims.iter().map(|d| Extent::Fixed(*d)).collect()
}

/// Whether a fill is exactly `canon` of its input.
fn lone_canon(body: &Body) -> Option<(&'static Primitive, &Attrs, ParamId, StateId)> {
    let [out] = body.outputs.as_slice() else { return None };
    let node = body.nodes.get(out.node as usize)?;
    let NodeKind::Op { primitive, attrs, state: Some(state) } = &node.kind else { return None };
    let [x, weight] = node.inputs.as_slice() else { return None };
    let x = body.nodes.get(x.node as usize)?;
    let weight = body.nodes.get(weight.node as usize)?;
    match (&x.kind, &weight.kind) {
        (NodeKind::Input(0), NodeKind::Param(param)) if primitive.name == "canon" => {
            Some((primitive, attrs, *param, *state))
        }
        _ => None,
    }
}
