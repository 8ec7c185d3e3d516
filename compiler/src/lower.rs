//! From a graph to the forward steps of a plan: every body, slots and layers inlined in canonical order, and the tape that
//! `differentiate` reads backwards.
//!
//! There is one value per parameter, however often it is used, so shared parameters sum their gradients.

use std::borrow::Cow;
use std::rc::Rc;

use crate::builder::{Call, Lowered, PlanBuilder};
use crate::graph::{Body, Graph, Node, NodeKind, Out, ParamId, StateId};
use crate::op::{self, Attr, Attrs, AttrsExt, Primitive, State, Type};
use crate::plan::{
    Input, Output, Phase, Precision, Recompute, StatePart, StepSource, Stream, ValId, ahead_term,
};
use crate::value::{DType, Extent, fixed};

/// The lowering of one graph.
pub(crate) struct Lower<'g> {
    pub(crate) graph: &'g Graph,
    pub(crate) builder: PlanBuilder,
    pub(crate) recompute: Recompute,
    pub(crate) stream: Stream,
    /// The operations so far, for `differentiate`.
    pub(crate) tape: Vec<Taped<'g>>,
    /// The name of the next call, if it draws numbers.
    draws: Option<Rc<str>>,
    /// Parameters so far.
    params: Vec<Option<ValId>>,
}

pub(crate) enum Taped<'g> {
    Op {
        primitive: &'static Primitive,
        call: Call<'g>,
        lowered: Lowered,
        source: Option<StepSource>,
    },
    /// A layer that is recomputed for its gradient.
    Layer { placed: Placed<'g>, inputs: Vec<ValId>, outputs: Vec<ValId> },
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
            builder: PlanBuilder::new(Phase::Forward, precision),
            recompute: Recompute::Nothing,
            stream: Stream::default(),
            draws: None,
            tape: Vec::new(),
            params: vec![None; graph.top.params.len()],
        }
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
        let (input, dtype) = match self.builder.precision {
            Precision::F32 => (Input::Param(id), DType::F32),
            Precision::Bf16 => (Input::Rounded(id), DType::Bf16),
        };
        let param = &self.graph.top.params[at];
        let used = self.builder.input(input, param.path.clone(), fixed(&param.shape), dtype);
        self.params[at] = Some(used);
        used
    }

    /// Emits tokens to logits, with all states.
    pub(crate) fn forward(&mut self) -> ValId {
        let graph = self.graph;
        let dims = vec![Extent::Batch, Extent::Time];
        let tokens = self.builder.input(Input::Tokens, "tokens", dims, DType::I64);
        let top = Placed { body: &graph.top, params: None, states: None, layer: None, slot: None };
        let outputs = self.body(&top, &[tokens]);
        self.builder.source = None;
        outputs[0]
    }

    /// Emits the steps of one body.
    pub(crate) fn body(&mut self, placed: &Placed<'g>, inputs: &[ValId]) -> Vec<ValId> {
        let body = placed.body;
        let mut results: Vec<Vec<ValId>> = vec![Vec::new(); body.nodes.len()];
        for index in body.reachable_by(&|node| self.read(node)) {
            let node = &body.nodes[index as usize];
            let read = self.read(node);
            let operands: Vec<ValId> =
                read.iter().map(|o| results[o.node as usize][o.port as usize]).collect();
            results[index as usize] = self.node(placed, index, node, operands, inputs);
        }
        body.outputs.iter().map(|o| results[o.node as usize][o.port as usize]).collect()
    }

    /// The operands that a node's results depend on in this plan.
    fn read<'n>(&self, node: &'n Node) -> &'n [Out] {
        node.read(&|ahead| {
            ahead_term(ahead).is_some_and(|term| self.builder.weight_of(term).is_some())
        })
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
            Some(StepSource {
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
                self.builder.source = source(primitive.name);
                self.draws = attrs.path(op::DRAWN_AT).map(|at| placed.drawn_at(at));
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
        source: Option<StepSource>,
    ) -> Vec<ValId> {
        if let Some((primitive, attrs, param, state)) = lone_canon(fill.body) {
            self.builder.source =
                source.map(|s| StepSource { op: primitive.name, slot: fill.slot.clone(), ..s });
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
        let joined = vec![Type::seq([widths.iter().sum::<i64>()])];
        self.builder.source = source.clone();
        let x = self.call(concat, Cow::Owned(Attrs::new()), operands, Cow::Owned(joined), None);
        let y = self.body(fill, &x);
        self.builder.source = source;
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
        let draws = self.draws.take();
        let call = Call { attrs, operands, results, past, keeps_state, draws };
        let lowered = (primitive.forward)(&mut self.builder, &call);
        if let Some(id) = state {
            for (part, value) in self.parts(id).into_iter().zip(&lowered.state) {
                self.builder.output(Output::State(id, part), *value);
            }
        }
        let outputs = lowered.outputs.clone();
        let source = self.builder.source.clone();
        self.tape.push(Taped::Op { primitive, call, lowered, source });
        outputs
    }

    fn parts(&self, id: StateId) -> Vec<StatePart> {
        state_parts(&self.graph.top.states[id.0 as usize].1).into_iter().map(|(p, _)| p).collect()
    }

    fn state_inputs(&mut self, id: StateId) -> Vec<ValId> {
        let (path, state) = &self.graph.top.states[id.0 as usize];
        let compute = self.builder.precision.compute();
        state_parts(state)
            .into_iter()
            .map(|(part, dims)| {
                let dtype = match part {
                    StatePart::Matrix => DType::F32,
                    StatePart::Tokens => DType::I64,
                    StatePart::Inputs | StatePart::Keys | StatePart::Values => compute,
                };
                self.builder.input(Input::State(id, part), format!("{path} {part}"), dims, dtype)
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
