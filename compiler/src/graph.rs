//! The compute graph: the computation of an architecture, independent of its spelling.
//!
//! Bodies are acyclic by construction: a node only refers to earlier nodes. Parameters are logical tensors (q, k, v
//! separate; gate, up separate), and nothing depends on precision or device.

use std::rc::Rc;

use dsl::Span;

use crate::number::InitRule;
use crate::op::{self, Attrs, AttrsExt, Primitive, State, Type};
use crate::plan::ahead_term;

pub use crate::ir::{ParamId, StateId};

/// One output of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Out {
    /// Index into the nodes of the body.
    pub node: u32,
    /// Number of the output, from 0.
    pub port: u32,
}

impl Out {
    /// The first output, which is the only one of most nodes.
    pub fn first(node: u32) -> Out {
        Out { node, port: 0 }
    }
}

/// A logical parameter. In a body its path is relative to the instance; in [`Graph::params`] it is
/// absolute (`layers.3.mixer.wq`).
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Instances from outside in, joined by dots; the last part is the parameter's own name.
    pub path: String,
    /// Sizes, outermost first.
    pub shape: Vec<i64>,
    /// Distribution of its initial values.
    pub init: InitRule,
    /// Its role: `linear`, `norm`, `canon`, `short_conv`, or a raw parameter's own name.
    pub role: String,
    /// The slot with the fill that declares it (at any depth). Erasing the slot removes it.
    pub slot: Option<String>,
}

impl Param {
    /// The key of its initial values: the generator is keyed by it and the run's seed, and the
    /// manifest lists the parameter under it. It is the path, so it depends on nothing else.
    pub fn init_key(&self) -> &str {
        &self.path
    }
}

/// A part of the dataflow over sequences, with its own parameters and states.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// Types of its inputs.
    pub inputs: Vec<Type>,
    /// Parameters that it or a body inside it reads.
    pub params: Vec<Param>,
    /// One path and state per stateful node, in order of creation.
    pub states: Vec<(String, State)>,
    /// Nodes; each reads only earlier ones.
    pub nodes: Vec<Node>,
    /// The nodes' outputs that the body returns.
    pub outputs: Vec<Out>,
}

/// One operation of a body.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it computes.
    pub kind: NodeKind,
    /// Operands, in order.
    pub inputs: Vec<Out>,
    /// One per output.
    pub types: Vec<Type>,
    /// Its place in the text.
    pub span: Span,
}

/// What a node computes.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// An input of the body, by index.
    Input(u32),
    /// A parameter of the body.
    Param(ParamId),
    /// A call of a primitive.
    Op {
        /// The primitive.
        primitive: &'static Primitive,
        /// Its resolved configuration.
        attrs: Attrs,
        /// The state that it carries, if it has one.
        state: Option<StateId>,
    },
    /// A filled slot: its inputs are concatenated over channels, run through `fill`, split again.
    Slot {
        /// Name of the slot.
        name: String,
        /// The body that fills it.
        fill: Rc<Body>,
        /// The enclosing body's parameter and state for each of `fill`'s.
        params: Vec<ParamId>,
        /// The enclosing body's state for each of `fill`'s.
        states: Vec<StateId>,
    },
    /// One layer; only in the top body.
    Layer {
        /// Number of the layer, from 0.
        index: u32,
        /// The layer's body; equal layers share one.
        body: Rc<Body>,
        /// The top body's parameter for each of `body`'s.
        params: Vec<ParamId>,
        /// The top body's state for each of `body`'s.
        states: Vec<StateId>,
    },
}

/// A whole architecture: tokens `[batch, time]` in, logits `[batch, time, vocab]` out.
#[derive(Clone, Debug)]
pub struct Graph {
    /// `top.params` are the global parameters with absolute paths; `top.nodes` contains the layers.
    pub top: Body,
    /// Number of token ids.
    pub vocab: i64,
    /// Channels of the residual stream.
    pub dim: i64,
}

impl Body {
    /// Type of an output.
    pub fn ty(&self, out: Out) -> &Type {
        &self.nodes[out.node as usize].types[out.port as usize]
    }

    /// Appends a node and returns its index.
    pub fn push(&mut self, kind: NodeKind, inputs: Vec<Out>, types: Vec<Type>, span: Span) -> u32 {
        self.nodes.push(Node { kind, inputs, types, span });
        (self.nodes.len() - 1) as u32
    }

    /// Nodes reachable from the outputs, operands before users, depth-first with operands in
    /// order: the canonical order.
    pub fn reachable(&self) -> Vec<u32> {
        self.reachable_by(&|node| &node.inputs)
    }

    /// The same if each node needs these of its operands alone, the first ones.
    pub(crate) fn reachable_by<'n>(&'n self, read: &dyn Fn(&'n Node) -> &'n [Out]) -> Vec<u32> {
        let mut seen = vec![false; self.nodes.len()];
        let mut order = Vec::new();
        // Use an explicit stack: bodies may be long chains, and recursion could overflow.
        for output in &self.outputs {
            let mut stack = vec![(output.node, 0usize)];
            while let Some((node, operand)) = stack.pop() {
                if operand == 0 {
                    if seen[node as usize] {
                        continue;
                    }
                    seen[node as usize] = true;
                }
                match read(&self.nodes[node as usize]).get(operand) {
                    Some(input) => {
                        stack.push((node, operand + 1));
                        if !seen[input.node as usize] {
                            stack.push((input.node, 0));
                        }
                    }
                    None => order.push(node),
                }
            }
        }
        order
    }
}

impl Body {
    /// Wanted calls, in it and in bodies inside it.
    fn count_calls(&self, wanted: &dyn Fn(&Primitive) -> bool) -> u32 {
        let count = |node: &Node| match &node.kind {
            NodeKind::Op { primitive, .. } => u32::from(wanted(primitive)),
            NodeKind::Slot { fill, .. } => fill.count_calls(wanted),
            NodeKind::Layer { body, .. } => body.count_calls(wanted),
            NodeKind::Input(_) | NodeKind::Param(_) => 0,
        };
        self.nodes.iter().map(count).sum()
    }

    /// Whether a call of a primitive, in it or in a body inside it, is wanted.
    fn any_call(&self, wanted: &dyn Fn(&Primitive, &Attrs) -> bool) -> bool {
        self.nodes.iter().any(|node| match &node.kind {
            NodeKind::Op { primitive, attrs, .. } => wanted(primitive, attrs),
            NodeKind::Slot { fill, .. } => fill.any_call(wanted),
            NodeKind::Layer { body, .. } => body.any_call(wanted),
            NodeKind::Input(_) | NodeKind::Param(_) => false,
        })
    }
}

impl Body {
    /// Whether it, or a body inside it, calls `aux_loss` with this name where no call of `ahead_loss` alone reads it.
    fn reads_term(&self, name: &str) -> bool {
        let read = |node: &Node| match &node.kind {
            NodeKind::Op { primitive, attrs, .. } => {
                primitive.name == "aux_loss" && attrs.word("term") == name
            }
            NodeKind::Slot { fill, .. } => fill.reads_term(name),
            NodeKind::Layer { body, .. } => body.reads_term(name),
            NodeKind::Input(_) | NodeKind::Param(_) => false,
        };
        let nodes = self.reachable_by(&|node| node.read(&|_| false));
        nodes.into_iter().filter_map(|index| self.nodes.get(index as usize)).any(read)
    }
}

impl Node {
    /// The operands that its results depend on: of `ahead_loss`, a later head's only if its loss counts, asked by the number
    /// of places on.
    pub(crate) fn read(&self, counts: &dyn Fn(i64) -> bool) -> &[Out] {
        if let NodeKind::Op { primitive, attrs, .. } = &self.kind
            && primitive.name == op::AHEAD
            && !counts(attrs.int("ahead"))
        {
            return self.inputs.get(..1).unwrap_or(&self.inputs);
        }
        &self.inputs
    }
}

impl Graph {
    /// Whether it has auxiliary losses.
    pub fn has_terms(&self) -> bool {
        self.top.any_call(&|primitive, _| [op::AHEAD, "aux_loss"].contains(&primitive.name))
    }

    /// Whether it calls a primitive.
    pub fn calls(&self, name: &str) -> bool {
        self.top.any_call(&|primitive, _| primitive.name == name)
    }

    /// Whether tokens choose among parts of it, such as experts: rounding can change a choice, and then all that follows.
    pub fn has_choices(&self) -> bool {
        self.top.any_call(&|primitive, _| primitive.name == "top_k")
    }

    /// Whether it has an auxiliary loss of this name.
    pub fn has_term(&self, name: &str) -> bool {
        self.top.any_call(&|primitive, attrs| match primitive.name {
            "aux_loss" => attrs.word("term") == name,
            op::AHEAD => ahead_term(attrs.int("ahead")) == Some(name),
            _ => false,
        })
    }

    /// Whether it has an auxiliary loss of this name outside the heads that predict later tokens.
    pub fn has_term_without_heads(&self, name: &str) -> bool {
        self.top.reads_term(name)
    }

    /// Its calls of `ahead_loss`: the heads that predict later tokens.
    pub fn ahead_heads(&self) -> u32 {
        self.top.count_calls(&|primitive| primitive.name == op::AHEAD)
    }

    /// Those of them inside layers and fills.
    pub fn ahead_heads_below(&self) -> u32 {
        let at_top = |node: &&Node| matches!(&node.kind, NodeKind::Op { primitive, .. } if primitive.name == op::AHEAD);
        self.ahead_heads() - self.top.nodes.iter().filter(at_top).count() as u32
    }

    /// Whether it calls `dropout`, with any rate.
    pub fn has_dropout(&self) -> bool {
        self.top.any_call(&|primitive, _| primitive.name == op::DROPOUT)
    }

    /// All parameters, in canonical order.
    pub fn params(&self) -> &[Param] {
        &self.top.params
    }

    /// Layers in order: (index, body, global parameters, global states).
    pub fn layers(&self) -> impl Iterator<Item = (u32, &Rc<Body>, &[ParamId], &[StateId])> {
        self.top.nodes.iter().filter_map(|node| {
            let NodeKind::Layer { index, body, params, states } = &node.kind else { return None };
            Some((*index, body, params.as_slice(), states.as_slice()))
        })
    }
}
