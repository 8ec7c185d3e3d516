//! A body of a graph as labelled boxes and lines, in canonical order: operands before users.
//!
//! A parameter with one user is written on that user's box; any other gets its own box.

use std::collections::BTreeMap;

use compiler::graph::{Body, Node, NodeKind, Out, ParamId};
use compiler::op::{Attrs, Colour, ConfigKind, Primitive, Shown, Type};

/// The kind of a box, which determines its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// An input or output.
    Terminal,
    /// Owns a matrix: linear, embed.
    Matrix,
    Norm,
    /// Works on each number separately, or only moves numbers.
    Plain,
    /// Depends on the position or on earlier time steps.
    Time,
    Slot,
    /// A parameter with several users, drawn as its own box.
    Param,
    /// Layers, in the picture of the whole architecture.
    Stack,
}

#[derive(Clone, Debug)]
pub(super) struct Vertex {
    pub(super) class: Class,
    pub(super) title: String,
    /// A second, smaller line; may be empty.
    pub(super) note: String,
    /// The full description, for a tooltip.
    pub(super) details: String,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// The enclosing instance: `mixer` for `mixer.wq`.
    pub(super) region: Option<String>,
    /// A function of parameters alone: drawn just above its user.
    pub(super) constant: bool,
    /// Runs of layers, for [`Class::Stack`].
    pub(super) cards: Vec<Card>,
}

/// Consecutive equal layers.
#[derive(Clone, Debug)]
pub(super) struct Card {
    /// How often the group of cards from here to the next frame repeats; 1 for no repeat.
    pub(super) repeats: usize,
    pub(super) runs: Vec<LayerRun>,
}

#[derive(Clone, Debug)]
pub(super) struct LayerRun {
    pub(super) count: usize,
    pub(super) title: String,
    pub(super) note: String,
    pub(super) slots: String,
}

/// A line from an output of a box to an input of a later one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) from: (usize, usize),
    pub(super) to: (usize, usize),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Diagram {
    pub(super) vertices: Vec<Vertex>,
    pub(super) edges: Vec<Edge>,
}

impl Vertex {
    pub(super) fn new(class: Class, title: impl Into<String>, note: impl Into<String>) -> Vertex {
        Vertex {
            class,
            title: title.into(),
            note: note.into(),
            details: String::new(),
            inputs: 1,
            outputs: 1,
            region: None,
            constant: false,
            cards: Vec::new(),
        }
    }
}

/// The diagram of a body. `input` and `output` are the labels of its input and output.
pub(super) fn diagram(body: &Body, input: &str, output: &str) -> Diagram {
    let mut builder = Builder::new(body);
    for id in body.reachable() {
        builder.node(id, input);
    }
    builder.outputs(output);
    builder.diagram
}

/// Builds a diagram node by node; `stack` uses it for the graph's top.
pub(super) struct Builder<'a> {
    body: &'a Body,
    pub(super) diagram: Diagram,
    /// The box of each node drawn so far.
    vertex_of: BTreeMap<u32, usize>,
    /// Parameter nodes that are written on the box of their only user.
    written: BTreeMap<u32, ParamId>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(body: &'a Body) -> Builder<'a> {
        let mut users: BTreeMap<u32, (ParamId, usize, bool)> = BTreeMap::new();
        for id in body.reachable() {
            let Some(node) = body.nodes.get(id as usize) else { continue };
            for input in &node.inputs {
                if let Some(param) = param_of(body, *input) {
                    let (_, count, owned) = users.entry(input.node).or_insert((param, 0, false));
                    *count += 1;
                    *owned = owns_parameters(node);
                }
            }
        }
        let written = users.into_iter().filter(|(_, (_, count, owned))| *count == 1 && *owned);
        let written = written.map(|(node, (param, ..))| (node, param)).collect();
        Builder { body, diagram: Diagram::default(), vertex_of: BTreeMap::new(), written }
    }

    /// Adds the box of a node and the lines to it, unless it is written on another box.
    pub(super) fn node(&mut self, id: u32, input: &str) {
        let Some(node) = self.body.nodes.get(id as usize) else { return };
        let mut vertex = match &node.kind {
            NodeKind::Input(_) => {
                let dims = node.types.first().map(Type::extents).unwrap_or_default();
                Vertex { inputs: 0, ..Vertex::new(Class::Terminal, input, dims) }
            }
            NodeKind::Param(param) => {
                if self.written.contains_key(&id) {
                    return;
                }
                let param = self.body.params.get(param.0 as usize);
                let path = param.map_or("", |param| &param.path);
                let note = node.types.first().map(Type::extents).unwrap_or_default();
                let details = param.map(|p| format!("{path}, init {}", p.init));
                Vertex {
                    inputs: 0,
                    details: details.unwrap_or_default(),
                    region: region(path),
                    ..Vertex::new(Class::Param, last(path), note)
                }
            }
            NodeKind::Op { primitive, attrs, state } => {
                let mut vertex = self.op(node, primitive, attrs);
                if let Some((_, state)) = state.and_then(|s| self.body.states.get(s.0 as usize)) {
                    vertex.details += &format!("\nstate {state}");
                }
                vertex
            }
            NodeKind::Slot { name, fill, params, .. } => {
                let (title, note) = fill_words(fill);
                let mut vertex = Vertex::new(Class::Slot, format!("{name}: {title}"), note);
                let paths = params.iter().filter_map(|p| self.body.params.get(p.0 as usize));
                for param in paths {
                    vertex.region = region(&param.path).or(vertex.region);
                    vertex.details +=
                        &format!("{} {:?}, init {}\n", param.path, param.shape, param.init);
                }
                vertex
            }
            NodeKind::Layer { index, .. } => {
                Vertex::new(Class::Stack, format!("layer {index}"), "")
            }
        };
        vertex.constant = node.types.iter().all(|ty| !ty.time);
        vertex.outputs = node.types.len();
        let operands: Vec<Out> =
            node.inputs.iter().copied().filter(|o| !self.written.contains_key(&o.node)).collect();
        vertex.inputs = operands.len();
        let index = self.push(vertex);
        self.vertex_of.insert(id, index);
        for (port, operand) in operands.into_iter().enumerate() {
            self.edge(operand, index, port);
        }
    }

    pub(super) fn push(&mut self, vertex: Vertex) -> usize {
        self.diagram.vertices.push(vertex);
        self.diagram.vertices.len() - 1
    }

    /// Records that a node is drawn as (part of) this box.
    pub(super) fn draw_as(&mut self, node: u32, vertex: usize) {
        self.vertex_of.insert(node, vertex);
    }

    /// Adds a line from the box for `out` to an input of a box.
    pub(super) fn edge(&mut self, out: Out, to: usize, port: usize) {
        if let Some(&from) = self.vertex_of.get(&out.node) {
            // All layers together have one result.
            let stack =
                self.diagram.vertices.get(from).is_some_and(|vertex| vertex.class == Class::Stack);
            let out = if stack { 0 } else { out.port as usize };
            let edge = Edge { from: (from, out), to: (to, port) };
            self.diagram.edges.push(edge);
        }
    }

    pub(super) fn outputs(&mut self, name: &str) {
        for out in self.body.outputs.clone() {
            let dims = self.body.nodes.get(out.node as usize);
            let dims = dims.and_then(|node| node.types.get(out.port as usize)).map(Type::extents);
            let terminal = Vertex::new(Class::Terminal, name, dims.unwrap_or_default());
            let index = self.push(Vertex { outputs: 0, ..terminal });
            self.edge(out, index, 0);
        }
    }

    fn op(&self, node: &Node, primitive: &Primitive, attrs: &Attrs) -> Vertex {
        let params: Vec<_> = node
            .inputs
            .iter()
            .filter_map(|o| self.body.params.get(self.written.get(&o.node)?.0 as usize))
            .collect();
        let path = params.first().map_or("", |param| &param.path);
        let input = node.inputs.first().map(|out| self.body.ty(*out));
        let (title, note) = (primitive.drawn.label)(&Shown {
            name: primitive.name,
            attrs,
            input,
            output: node.types.first(),
        });
        let class = match primitive.drawn.colour {
            Colour::Matrix => Class::Matrix,
            Colour::Norm => Class::Norm,
            Colour::Plain => Class::Plain,
            Colour::Time => Class::Time,
        };
        let mut vertex = Vertex::new(class, title, note);
        if !path.is_empty() {
            if vertex.title != last(path) {
                vertex.title = format!("{} {}", vertex.title, last(path));
            }
            vertex.region = region(path);
        }
        vertex.details = format!("{}@{}", primitive.name, primitive.revision);
        for (name, value) in attrs {
            vertex.details += &format!(", {name} {value}");
        }
        for param in params {
            vertex.details += &format!("\n{} {:?}, init {}", param.path, param.shape, param.init);
        }
        vertex
    }
}

/// Whether the call of the op has an instance name, so that its parameters can be its label.
fn owns_parameters(node: &Node) -> bool {
    let NodeKind::Op { primitive, .. } = &node.kind else { return false };
    primitive.config.iter().any(|config| config.kind == ConfigKind::Init)
}

fn param_of(body: &Body, out: Out) -> Option<ParamId> {
    let NodeKind::Param(param) = body.nodes.get(out.node as usize)?.kind else { return None };
    Some(param)
}

/// The words for a slot's fill: the op if it is a single one, with its configuration.
fn fill_words(fill: &Body) -> (String, String) {
    let mut ops =
        fill.reachable().into_iter().filter_map(|id| match &fill.nodes.get(id as usize)?.kind {
            NodeKind::Op { primitive, attrs, .. } => {
                let shown = Shown { name: primitive.name, attrs, input: None, output: None };
                Some(shown.configured())
            }
            NodeKind::Input(_)
            | NodeKind::Param(_)
            | NodeKind::Slot { .. }
            | NodeKind::Layer { .. } => None,
        });
    match (ops.next(), ops.count()) {
        (None, _) => ("identity".to_owned(), String::new()),
        (Some(label), 0) => label,
        (Some((name, _)), more) => ("block".to_owned(), format!("{name} and {more} more")),
    }
}

/// `wq` of `mixer.wq`.
fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// `mixer` of `mixer.wq`; `None` for `pre_mixer`.
fn region(path: &str) -> Option<String> {
    path.split_once('.').map(|(first, _)| first.to_owned())
}
