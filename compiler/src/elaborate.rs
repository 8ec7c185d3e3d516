//! PASS ArchTree → Graph: every definition unfolded, every shape checked.
//!
//! In: an arch's tree and the library. Out: its compute graph and its fields (each configuration
//! value under its path), or all independent errors. Must stay true: total (depth, nodes and sizes
//! are bounded before allocation); a parameter's path is the instance names from the arch down and
//! depends on nothing else; equal layers that ignore their number are elaborated once.

mod call;
mod eval;
mod prim;
mod slot;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use dsl::{Diagnostics, FileId, Span};

use crate::diag;
use crate::graph::{Body, Graph, NodeKind, Out, Param, ParamId, StateId};
use crate::op::{self, State, Type};
use crate::resolve::Library;
use crate::tree::{Applied, ArchTree, SettingValue};
use crate::value::Value;

/// How deep definitions may call one another.
pub const MAX_DEPTH: usize = 32;
/// Nodes of the whole graph, layers unrolled.
pub const MAX_NODES: usize = 4_000_000;
/// Channels per token of any tensor, rows of any table.
pub const MAX_WIDTH: i64 = 1 << 26;
/// Elements of any parameter.
pub const MAX_ELEMENTS: i64 = 1 << 48;

/// One configuration value of the arch, by path.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// `vocab`, `layers.3.mixer.rope.dims`, `layers.3.slots.A`.
    pub path: String,
    pub value: String,
    /// Written by someone (free), or a default (derived from what is written).
    pub written: bool,
    pub span: Span,
}

/// The result of elaboration.
#[derive(Clone, Debug)]
pub struct Elaborated {
    pub graph: Graph,
    pub fields: Vec<Field>,
}

pub fn elaborate(library: &Library, tree: &ArchTree, diagnostics: &mut Diagnostics) -> Option<Elaborated> {
    let mut e = Elaborator {
        library,
        tree,
        diagnostics,
        arch: BTreeMap::new(),
        nodes: 0,
        uses_layer: false,
        layer: None,
        fan_in: None,
        stack: Vec::new(),
        widths: Vec::new(),
    };
    let before = e.errors();
    let result = e.run();
    if e.errors() > before { None } else { result }
}

struct Elaborator<'a> {
    library: &'a Library,
    tree: &'a ArchTree,
    diagnostics: &'a mut Diagnostics,
    arch: BTreeMap<String, Value>,
    nodes: usize,
    /// Whether the layer being elaborated asked for its own number.
    uses_layer: bool,
    layer: Option<i64>,
    /// What `fan_in` means while an init rule is evaluated.
    fan_in: Option<i64>,
    /// Names of the definitions being called, outermost first.
    stack: Vec<String>,
    /// The positional integers of the `split` being called.
    widths: Vec<i64>,
}

/// A body under construction, with what its parameters are called.
#[derive(Default)]
struct Building {
    body: Body,
    by_path: BTreeMap<String, ParamId>,
    param_nodes: BTreeMap<ParamId, u32>,
    param_spans: Vec<Span>,
    fields: Vec<Field>,
    /// The top body: `embed` can be named here.
    top: bool,
}

/// What names mean inside one call.
struct Frame {
    /// Whose names the code may use.
    file: FileId,
    names: BTreeMap<String, Value>,
    /// Instance path of this call; empty at the root of a body.
    path: String,
    /// Instance names given so far, with what owns parameters.
    instances: BTreeMap<String, Span>,
    shared: BTreeMap<String, Rc<Applied>>,
    slots: Rc<Slots>,
    /// The slot whose fill this is.
    fill: Option<String>,
}

/// The fills of the layer (or head) around a call, and which of its slots were declared.
struct Slots {
    holder: Rc<Applied>,
    declared: RefCell<Vec<String>>,
}

/// A layer elaborated once, for all equal layers.
struct LayerBody {
    body: Rc<Body>,
    fields: Vec<Field>,
}

pub(crate) fn join(prefix: &str, rest: &str) -> String {
    match (prefix, rest) {
        ("", rest) => rest.to_owned(),
        (prefix, "") => prefix.to_owned(),
        (prefix, rest) if rest.starts_with('.') => format!("{prefix}{rest}"),
        (prefix, rest) => format!("{prefix}.{rest}"),
    }
}

impl Elaborator<'_> {
    fn errors(&self) -> usize {
        self.diagnostics.iter().filter(|d| d.is_error()).count()
    }

    fn run(&mut self) -> Option<Elaborated> {
        let tree = self.tree;
        let mut top = Building { top: true, ..Building::default() };
        self.arch_fields(&mut top);
        let (vocab, dim) = (self.size("vocab")?, self.size("dim")?);
        self.arch.insert("layers".to_owned(), Value::Int(tree.layers.len() as i64));
        for (role, setting) in &tree.init {
            let value = match &setting.value {
                SettingValue::Expr(expr, _) => dsl::print_expr(expr),
                SettingValue::Def(applied) => applied.name().to_owned(),
                SettingValue::Known(value) => value.text(),
            };
            let path = format!("init.{role}");
            top.fields.push(Field { path, value, written: true, span: setting.span });
        }

        top.body.inputs.push(Type::tokens());
        let tokens = top.body.push(NodeKind::Input(0), vec![], vec![Type::tokens()], tree.span);
        let mut x = self.embedding(&mut top, Out::first(tokens), dim)?;
        x = self.layers(&mut top, x, dim);

        let Some(head) = tree.head.clone() else {
            self.diagnostics.push(diag::missing_config(tree.span, &tree.name, "head"));
            return None;
        };
        let span = head.span;
        let path = "head".to_owned();
        top.fields.push(Field {
            path: path.clone(),
            value: head.name().to_owned(),
            written: true,
            span,
        });
        let outputs = self.holder_call(&mut top, &head, x, "head", Some("head"))?;
        let logits = Type::seq([vocab]);
        match outputs.as_slice() {
            [out] if *top.body.ty(*out) == logits => {}
            outs => {
                let got = shown(&top.body, outs);
                let want = logits.to_string();
                self.diagnostics.push(diag::head_result(span, head.name(), &got, &want));
                return None;
            }
        }
        top.body.outputs = outputs;
        self.unused(&top);
        Some(Elaborated { graph: Graph { top: top.body, vocab, dim }, fields: top.fields })
    }

    fn arch_fields(&mut self, top: &mut Building) {
        for field in crate::tree::ARCH_FIELDS {
            let Some(setting) = self.tree.fields.get(field) else { continue };
            let SettingValue::Expr(expr, file) = &setting.value else {
                self.diagnostics.push(diag::bad_arch_field(setting.span, field, "a definition", "a number"));
                continue;
            };
            let Some(value) = self.eval_arch(expr, *file) else { continue };
            let good = match (field, &value) {
                ("norm_eps", v) => v.as_decimal().is_some_and(|d| !d.is_negative()),
                (_, Value::Int(n)) => (1..=MAX_WIDTH).contains(n),
                _ => false,
            };
            if !good {
                let want = if field == "norm_eps" {
                    "a number of 0 or more".to_owned()
                } else {
                    format!("an integer between 1 and {MAX_WIDTH}")
                };
                let got = value.describe();
                self.diagnostics.push(diag::bad_arch_field(setting.span, field, &got, &want));
                continue;
            }
            top.fields.push(Field {
                path: field.to_owned(),
                value: value.text(),
                written: true,
                span: setting.span,
            });
            self.arch.insert(field.to_owned(), value);
        }
    }

    fn size(&mut self, field: &str) -> Option<i64> {
        match self.arch.get(field) {
            Some(Value::Int(n)) => Some(*n),
            _ => {
                if !self.tree.fields.contains_key(field) {
                    self.diagnostics.push(diag::missing_arch_field(self.tree.span, field));
                }
                None
            }
        }
    }

    fn embedding(&mut self, top: &mut Building, tokens: Out, _dim: i64) -> Option<Out> {
        let embed = op::find("embed")?;
        let applied = Rc::new(Applied::bare(crate::tree::Callable::Primitive(embed), self.tree.span));
        let outs = self.holder_call(top, &applied, tokens, "embed", None)?;
        outs.first().copied()
    }

    /// Calls what stands directly below the arch, with its own table of slots.
    fn holder_call(
        &mut self,
        b: &mut Building,
        applied: &Rc<Applied>,
        x: Out,
        path: &str,
        field: Option<&str>,
    ) -> Option<Vec<Out>> {
        let slots =
            Rc::new(Slots { holder: applied.clone(), declared: RefCell::new(Vec::new()) });
        let call = call::Call {
            span: applied.span,
            tensors: vec![x],
            passed: BTreeMap::new(),
            init: None,
            path: path.to_owned(),
            field: field.map(Rc::from),
            slots: slots.clone(),
            fill: None,
            shared: false,
        };
        let outs = self.call_applied(b, applied, call)?;
        let declared = slots.declared.borrow();
        for (name, setting) in &applied.slots {
            if !declared.contains(name) {
                let what = format!("`{}`", applied.name());
                self.diagnostics.push(diag::unknown_slot(setting.span, name, &what, &declared));
            }
        }
        Some(outs)
    }

    fn layers(&mut self, top: &mut Building, mut x: Out, dim: i64) -> Out {
        let tree = self.tree;
        let mut memo: BTreeMap<*const Applied, Option<Rc<LayerBody>>> = BTreeMap::new();
        let mut first_of: BTreeMap<u32, usize> = BTreeMap::new();
        let count = tree.layers.len().to_string();
        let path = "layers".to_owned();
        top.fields.push(Field { path, value: count, written: true, span: tree.span });
        for (index, layer) in tree.layers.iter().enumerate() {
            let key = Rc::as_ptr(&layer.applied);
            let known = memo.get(&key).cloned();
            let elaborated = match known {
                Some(known) => known,
                None => {
                    self.uses_layer = false;
                    self.layer = Some(index as i64);
                    let made = self.layer_body(&layer.applied, dim).map(Rc::new);
                    if !self.uses_layer {
                        memo.insert(key, made.clone());
                    }
                    made
                }
            };
            self.layer = None;
            let Some(elaborated) = elaborated else { continue };
            self.nodes += elaborated.body.nodes.len();
            if self.nodes > MAX_NODES {
                self.diagnostics.push(diag::too_many_nodes(layer.applied.span, MAX_NODES));
                return x;
            }
            let owner = match layer.share {
                Some(group) => *first_of.entry(group).or_insert(index),
                None => index,
            };
            let first = tree.layers.get(owner).map(|l| Rc::as_ptr(&l.applied));
            if first != Some(key) {
                self.diagnostics.push(diag::shared_layers_differ(layer.applied.span, owner, index));
                return x;
            }
            x = self.place_layer(top, x, index, owner, &layer.applied, &elaborated);
        }
        x
    }

    fn place_layer(
        &mut self,
        top: &mut Building,
        x: Out,
        index: usize,
        owner: usize,
        applied: &Rc<Applied>,
        elaborated: &LayerBody,
    ) -> Out {
        let span = applied.span;
        let prefix = format!("layers.{owner}");
        let mut params = Vec::with_capacity(elaborated.body.params.len());
        for param in &elaborated.body.params {
            let path = join(&prefix, &param.path);
            let id = match top.by_path.get(&path) {
                Some(id) => *id,
                None => top.add_param(Param { path, ..param.clone() }, span),
            };
            params.push(id);
        }
        let here = format!("layers.{index}");
        let mut states = Vec::with_capacity(elaborated.body.states.len());
        for (path, state) in &elaborated.body.states {
            states.push(top.add_state(join(&here, path), state.clone()));
        }
        let written = |path: String, value: String| Field { path, value, written: true, span };
        top.fields.push(written(here.clone(), applied.name().to_owned()));
        if owner != index {
            top.fields.push(written(format!("{here}.share"), owner.to_string()));
        }
        for field in &elaborated.fields {
            top.fields.push(Field { path: join(&here, &field.path), ..field.clone() });
        }
        let ty = top.body.ty(x).clone();
        let kind =
            NodeKind::Layer { index: index as u32, body: elaborated.body.clone(), params, states };
        Out::first(top.body.push(kind, vec![x], vec![ty], span))
    }

    fn layer_body(&mut self, applied: &Rc<Applied>, dim: i64) -> Option<LayerBody> {
        let mut b = Building::default();
        let ty = Type::seq([dim]);
        b.body.inputs.push(ty.clone());
        let x = b.body.push(NodeKind::Input(0), vec![], vec![ty.clone()], applied.span);
        let outs = self.holder_call(&mut b, applied, Out::first(x), "", Some(""))?;
        match outs.as_slice() {
            [out] if *b.body.ty(*out) == ty => {}
            outs => {
                let got = shown(&b.body, outs);
                let want = ty.to_string();
                self.diagnostics.push(diag::layer_result(applied.span, applied.name(), &got, &want));
                return None;
            }
        }
        b.body.outputs = outs;
        self.unused(&b);
        Some(LayerBody { body: Rc::new(b.body), fields: b.fields })
    }

    /// Parameters that no output depends on would be initialised, stored and never trained.
    fn unused(&mut self, b: &Building) {
        let mut used = vec![false; b.body.params.len()];
        for node in b.body.reachable() {
            let Some(node) = b.body.nodes.get(node as usize) else { continue };
            let ids: &[ParamId] = match &node.kind {
                NodeKind::Param(id) => std::slice::from_ref(id),
                NodeKind::Slot { params, .. } | NodeKind::Layer { params, .. } => params,
                NodeKind::Input(_) | NodeKind::Op { .. } => &[],
            };
            for id in ids {
                if let Some(used) = used.get_mut(id.0 as usize) {
                    *used = true;
                }
            }
        }
        for (i, param) in b.body.params.iter().enumerate() {
            if used.get(i) == Some(&false) {
                let span = b.param_spans.get(i).copied().unwrap_or(self.tree.span);
                self.diagnostics.push(diag::unused_result(&param.path, span));
            }
        }
    }
}

impl Building {
    fn add_param(&mut self, param: Param, span: Span) -> ParamId {
        let id = ParamId(self.body.params.len() as u32);
        self.by_path.insert(param.path.clone(), id);
        self.body.params.push(param);
        self.param_spans.push(span);
        id
    }

    fn add_state(&mut self, path: String, state: State) -> StateId {
        self.body.states.push((path, state));
        StateId((self.body.states.len() - 1) as u32)
    }

    /// The node that stands for a parameter in this body.
    fn param_node(&mut self, id: ParamId, span: Span) -> Out {
        if let Some(node) = self.param_nodes.get(&id) {
            return Out::first(*node);
        }
        let shape = self.body.params.get(id.0 as usize).map_or(Vec::new(), |p| p.shape.clone());
        let node = self.body.push(NodeKind::Param(id), vec![], vec![Type::constant(shape)], span);
        self.param_nodes.insert(id, node);
        Out::first(node)
    }
}

fn shown(body: &Body, outs: &[Out]) -> String {
    outs.iter().map(|o| body.ty(*o).to_string()).collect::<Vec<_>>().join(", ")
}
