//! Identity: the canonical text of a graph, its structural hash, and the manifest of parameters.
//!
//! Nodes are in canonical order (depth-first from the outputs, operands in order); parameters and states are nodes,
//! numbered by first use, with shape and init rule but without their path; a filled slot is one node; layers are listed
//! unrolled as their body's digest with global numbers. Names, block boundaries, comments, defaults and empty slots
//! leave no trace; everything else does. The open form also lists empty slots and paths. `docs/locks.md` describes the
//! format, and its scripts recompute every digest.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;

use crate::digest::Digest;
use crate::graph::{Body, Graph, Node, NodeKind, Out, ParamId, StateId};
use crate::op::Type;

const GRAPH_TAG: &str = "canonc.graph.v1";
const BODY_TAG: &str = "canonc.body.v1";
const OPEN_TAG: &str = "canonc.open.v1";
const OPEN_BODY_TAG: &str = "canonc.open-body.v1";
const MANIFEST_TAG: &str = "canonc.manifest.v1";

/// What identifies an architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The texts of bodies by digest, then the top text: everything the structural hash covers.
    pub graph_text: String,
    /// The structural hash: the digest of `graph_text`.
    pub graph: Digest,
    /// Path, shape and initial distribution of each parameter, one per line.
    pub manifest_text: String,
    /// Digest of `manifest_text`.
    pub manifest: Digest,
}

/// Writes both texts of a graph and takes their digests.
pub fn identify(graph: &Graph) -> Identity {
    let mut bodies = Bodies { tag: BODY_TAG, ..Bodies::default() };
    let Writer { text: top, params, .. } = Writer::write(&graph.top, &mut bodies);
    let (graph_text, digest) = bodies.listed(&top, GRAPH_TAG);
    let manifest_text = manifest_text(graph, &params.order);
    let manifest = Digest::of(MANIFEST_TAG, &manifest_text);
    Identity { graph_text, graph: digest, manifest_text, manifest }
}

/// The graph with every declared slot, filled or not, and the path of every parameter. The graph text and
/// the manifest can be computed from it, and so can whether two arms differ only in the fills of their
/// slots (`docs/locks.md`). No id depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenForm {
    /// The texts of bodies by digest, then the top text.
    pub text: String,
    /// Digest of the text.
    pub digest: Digest,
}

/// Writes the open form. `graph` is from [`crate::program::Program::open`].
pub fn open_form(graph: &Graph) -> OpenForm {
    let mut bodies = Bodies { tag: OPEN_BODY_TAG, open: true, ..Bodies::default() };
    let Writer { text: top, .. } = Writer::write(&graph.top, &mut bodies);
    let (text, digest) = bodies.listed(&top, OPEN_TAG);
    OpenForm { text, digest }
}

/// The digest of the open form with every fill removed: the graph without fills, and the places of its
/// slots. `graph` is from [`crate::program::Program::open`].
pub fn unfilled_form(graph: &Graph) -> Digest {
    let top = unfilled(&graph.top, &mut BTreeMap::new());
    open_form(&Graph { top, ..graph.clone() }).digest
}

fn unfilled(body: &Body, known: &mut BTreeMap<*const Body, Rc<Body>>) -> Body {
    let mut out = body.clone();
    for node in &mut out.nodes {
        match &mut node.kind {
            NodeKind::Slot { name, fill, params, states } => {
                // Remove the list of values that the fill reads, too.
                name.truncate(name.find(", reads ").unwrap_or(name.len()));
                (*fill, *params, *states) = (Rc::new(Body::default()), Vec::new(), Vec::new());
            }
            NodeKind::Layer { body: inner, .. } => {
                let address = Rc::as_ptr(inner);
                let copy = match known.get(&address) {
                    Some(copy) => copy.clone(),
                    None => Rc::new(unfilled(inner, known)),
                };
                known.insert(address, copy.clone());
                *inner = copy;
            }
            NodeKind::Input(_) | NodeKind::Param(_) | NodeKind::Op { .. } => {}
        }
    }
    out
}

/// One line per parameter in order of first use: init key, shape, init rule.
fn manifest_text(graph: &Graph, order: &[ParamId]) -> String {
    let mut text = String::new();
    for id in order {
        if let Some(param) = graph.top.params.get(id.0 as usize) {
            let (key, shape) = (param.init_key(), shape(&param.shape));
            let _ = writeln!(text, "{key} {shape} {}", param.init);
        }
    }
    text
}

fn shape(dims: &[i64]) -> String {
    let parts: Vec<String> = dims.iter().map(i64::to_string).collect();
    format!("[{}]", parts.join(","))
}

fn type_text(ty: &Type) -> String {
    match (ty.tokens, ty.time) {
        (true, _) if ty.dims.is_empty() => "tokens".to_owned(),
        (true, _) => format!("ids {}", shape(&ty.dims)),
        (false, true) => format!("sequence {}", shape(&ty.dims)),
        (false, false) => format!("constant {}", shape(&ty.dims)),
    }
}

/// Nested bodies written so far: by address, so that equal layers are written once, and by digest.
#[derive(Default)]
struct Bodies {
    tag: &'static str,
    /// Whether to write the open form.
    open: bool,
    known: BTreeMap<*const Body, Nested>,
    texts: BTreeMap<Digest, String>,
}

/// A nested body's digest, and its parameters and states in its own order of first use.
#[derive(Clone)]
struct Nested {
    digest: Digest,
    params: Vec<ParamId>,
    states: Vec<StateId>,
}

impl Bodies {
    fn nested(&mut self, body: &Body) -> Nested {
        if let Some(known) = self.known.get(&std::ptr::from_ref(body)) {
            return known.clone();
        }
        let w = Writer::write(body, self);
        let digest = Digest::of(self.tag, &w.text);
        let nested = Nested { digest, params: w.params.order, states: w.states.order };
        self.texts.insert(digest, w.text);
        self.known.insert(std::ptr::from_ref(body), nested.clone());
        nested
    }

    /// All bodies by digest, then the top body.
    fn listed(&self, top: &str, tag: &str) -> (String, Digest) {
        let digest = Digest::of(tag, top);
        let mut text = String::new();
        for (digest, body) in &self.texts {
            let _ = write!(text, "body {digest}\n{body}end\n");
        }
        let _ = write!(text, "graph {digest}\n{top}end\n");
        (text, digest)
    }
}

/// Numbers assigned at first use.
struct Numbers<Id> {
    order: Vec<Id>,
    numbers: BTreeMap<Id, usize>,
}

impl<Id: Ord + Copy> Numbers<Id> {
    fn new() -> Self {
        Numbers { order: Vec::new(), numbers: BTreeMap::new() }
    }

    fn get(&mut self, id: Id) -> usize {
        *self.numbers.entry(id).or_insert_with(|| {
            self.order.push(id);
            self.order.len() - 1
        })
    }
}

/// Numbers a body's nodes, parameters and states by first use while writing its text.
struct Writer<'a> {
    body: &'a Body,
    text: String,
    next: usize,
    numbers: BTreeMap<u32, usize>,
    params: Numbers<ParamId>,
    states: Numbers<StateId>,
}

impl<'a> Writer<'a> {
    fn write(body: &'a Body, bodies: &mut Bodies) -> Writer<'a> {
        let mut w = Writer {
            body,
            text: String::new(),
            next: 0,
            numbers: BTreeMap::new(),
            params: Numbers::new(),
            states: Numbers::new(),
        };
        for id in body.reachable() {
            if let Some(node) = body.nodes.get(id as usize) {
                w.node(id, node, bodies);
            }
        }
        let outputs: Vec<String> = body.outputs.iter().map(|o| w.operand(*o)).collect();
        let _ = writeln!(w.text, "return {}", outputs.join(" "));
        w
    }

    fn operand(&self, out: Out) -> String {
        let number = self.numbers.get(&out.node).copied().unwrap_or(usize::MAX);
        let several = self.body.nodes.get(out.node as usize).is_some_and(|n| n.types.len() > 1);
        if several { format!("%{number}.{}", out.port) } else { format!("%{number}") }
    }

    fn line(&mut self, text: &str) -> usize {
        let number = self.next;
        self.next += 1;
        let _ = writeln!(self.text, "%{number} = {text}");
        number
    }

    fn node(&mut self, id: u32, node: &Node, bodies: &mut Bodies) {
        let operands: Vec<String> = node.inputs.iter().map(|o| self.operand(*o)).collect();
        let operands = operands.join(" ");
        let number = match &node.kind {
            NodeKind::Input(index) => {
                let ty = node.types.first().map_or_else(String::new, type_text);
                self.line(&format!("input {index} {{{ty}}}"))
            }
            NodeKind::Param(param) => {
                let n = self.params.get(*param);
                let text = self.body.params.get(param.0 as usize).map_or_else(String::new, |p| {
                    let at = match (bodies.open, p.path.as_str()) {
                        (false, _) => String::new(),
                        // The body's own path.
                        (true, "") => "at ., ".to_owned(),
                        (true, path) => format!("at {path}, "),
                    };
                    format!("param {n} {{{at}init {}, shape {}}}", p.init, shape(&p.shape))
                });
                self.line(&text)
            }
            NodeKind::Op { primitive, attrs, state } => {
                let mut operands = operands;
                if let Some(id) = state {
                    let n = self.states.get(*id);
                    let (_, carried) = match self.body.states.get(id.0 as usize) {
                        Some(state) => state,
                        None => return,
                    };
                    let at = self.line(&format!("state {n} {{{carried}}}"));
                    let _ = write!(operands, " %{at}");
                }
                let attrs: Vec<String> = attrs.iter().map(|(k, v)| format!("{k} {v}")).collect();
                self.line(&format!(
                    "{}@{} {{{}}} ({operands})",
                    primitive.name,
                    primitive.revision,
                    attrs.join(", ")
                ))
            }
            NodeKind::Slot { name, fill, .. } if fill.outputs.is_empty() => {
                self.line(&format!("slot {{{name}, empty}} ({operands})"))
            }
            NodeKind::Slot { name, fill, params, states } => {
                let nested = bodies.nested(fill);
                let used = self.used(&nested, params, states);
                self.line(&format!("slot {{{name}, fill {}}} ({operands}){used}", nested.digest))
            }
            NodeKind::Layer { index: _, body, params, states } => {
                let nested = bodies.nested(body);
                let used = self.used(&nested, params, states);
                self.line(&format!("layer {{body {}}} ({operands}){used}", nested.digest))
            }
        };
        self.numbers.insert(id, number);
    }

    /// Maps a nested body's parameters and states to the enclosing numbers, in the nested order.
    fn used(&mut self, nested: &Nested, params: &[ParamId], states: &[StateId]) -> String {
        let mut text = String::new();
        for (i, id) in nested.params.iter().enumerate() {
            let Some(outer) = params.get(id.0 as usize) else { continue };
            let n = self.params.get(*outer);
            let _ = write!(text, "{}{n}", if i == 0 { " params " } else { " " });
        }
        for (i, id) in nested.states.iter().enumerate() {
            let Some(outer) = states.get(id.0 as usize) else { continue };
            let n = self.states.get(*outer);
            let _ = write!(text, "{}{n}", if i == 0 { " states " } else { " " });
        }
        text
    }
}
