//! From an arch's tree to its graph: expands every definition and checks every shape.
//!
//! Depth, steps, nodes and sizes are bounded before allocation. A parameter's path is the instance names from the arch
//! down and nothing else. Every failure has a diagnostic, and no graph is returned with a failed part left out.

#![expect(clippy::wildcard_enum_match_arm, reason = "any other value is named in an error")]

mod blame;
mod body;
mod building;
mod call;
mod eval;
mod frame;
mod layers;
mod number;
mod observe;
mod prim;
mod sites;
mod slot;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dsl::limits::MAX_ERRORS;
use dsl::{Diagnostic, Diagnostics, Label, Span};

use crate::arch::Aliases;
use crate::arrange::arranged;
use crate::carry;
use crate::diag;
use crate::graph::{Body, Graph, NodeKind, Out};
use crate::names::TOKENS;
use crate::op::{self, Type};
use crate::resolve::Library;
use crate::tree::Value;
use crate::tree::{Applied, ArchTree, ROLES};
use building::{Building, Passing};
use frame::Slots;
pub use observe::{Observed, Seen};

/// Maximum depth of calls between definitions.
pub const MAX_DEPTH: usize = 32;
/// Maximum nesting of expressions, and of the calls in them.
pub const MAX_EVALUATIONS: usize = 400;
/// Maximum expressions evaluated and calls made; equal layers count once.
pub const MAX_STEPS: usize = 400_000;
/// Maximum nodes of the whole graph, layers unrolled.
pub const MAX_NODES: usize = 4_000_000;
/// Maximum parameters and states of the whole graph.
pub const MAX_TENSORS: usize = 300_000;
/// Maximum configuration values of the whole arch, layers unrolled.
pub const MAX_FIELDS: usize = 400_000;
/// Maximum total length of all paths of parameters, states and fields.
pub const MAX_PATHS: usize = 1 << 25;
/// Maximum channels per token of any tensor, and rows of any table.
pub const MAX_WIDTH: i64 = 1 << 26;
/// Maximum elements of any parameter.
pub const MAX_ELEMENTS: i64 = 1 << 48;
/// Maximum elements of all parameters together.
pub const MAX_TOTAL: i64 = 1 << 56;

/// One configuration value of the arch, by path.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// `vocab`, `layers.3.mixer.rope.dims`, `layers.3.slots.A`.
    pub path: String,
    /// The value as the language writes it.
    pub value: String,
    /// Written by someone (free), or a default (derived from written values).
    pub written: bool,
    /// Place where it was written, or where the default stands.
    pub span: Span,
}

/// The result of elaboration.
#[derive(Clone, Debug)]
pub struct Elaborated {
    /// In text order. Only [`Elaborated::graph`] may read it.
    declared: Graph,
    /// All configuration values, in the order found.
    pub fields: Vec<Field>,
}

impl Elaborated {
    /// The graph, in canonical order. Sorting happens here, so callers that only need fields skip it.
    pub fn graph(self) -> Graph {
        let Graph { top, vocab, dim } = self.declared;
        Graph { top: arranged(top), vocab, dim }
    }
}

/// Unfolds the definitions of an arch into a graph and checks every shape. None if there are errors.
pub fn elaborate(
    library: &Library,
    tree: &ArchTree,
    diagnostics: &mut Diagnostics,
) -> Option<Elaborated> {
    elaborate_as(library, tree, diagnostics, false, None)
}

/// The same, with a record of what each expression evaluated to. An editor shows it.
pub(crate) fn elaborate_observed(
    library: &Library,
    tree: &ArchTree,
    diagnostics: &mut Diagnostics,
    observed: &mut Observed,
) -> Option<Elaborated> {
    elaborate_as(library, tree, diagnostics, false, Some(observed))
}

/// The graph with every declared slot, including empty ones. Only for [`crate::canonical::open_form`]:
/// no other code handles an empty slot. Every arch that elaborates has one.
pub(crate) fn elaborate_open(library: &Library, tree: &ArchTree) -> Option<Graph> {
    elaborate_as(library, tree, &mut Diagnostics::new(), true, None).map(Elaborated::graph)
}

fn elaborate_as(
    library: &Library,
    tree: &ArchTree,
    diagnostics: &mut Diagnostics,
    open: bool,
    observed: Option<&mut Observed>,
) -> Option<Elaborated> {
    let before = diagnostics.len();
    let mut e = Elaborator {
        library,
        tree,
        diagnostics,
        before,
        aliases: Aliases::new(),
        arch: BTreeMap::new(),
        pending: Vec::new(),
        nodes: 0,
        paths: 0,
        steps: 0,
        evaluations: 0,
        stopped: false,
        uses_layer: false,
        layer: None,
        fan_in: None,
        stack: Vec::new(),
        widths: Vec::new(),
        open,
        reads: None,
        observed,
    };
    let errors = e.errors();
    let result = e.run();
    let good = e.errors() == errors;
    once_each(diagnostics, before);
    result.filter(|_| good)
}

/// Reports an error in a definition once, although several layers use the definition.
fn once_each(diagnostics: &mut Diagnostics, from: usize) {
    let mut seen = BTreeSet::new();
    let new = diagnostics.split_off(from.min(diagnostics.len()));
    diagnostics.extend(new.into_iter().filter(|d| {
        let at = d.labels.first().map(|l| l.span);
        seen.insert((d.code, d.message.clone(), at))
    }));
}

struct Elaborator<'a> {
    library: &'a Library,
    tree: &'a ArchTree,
    diagnostics: &'a mut Diagnostics,
    /// The number of diagnostics before elaboration.
    before: usize,
    aliases: Aliases,
    arch: BTreeMap<String, Value>,
    /// Fields of the arch that are being evaluated, outermost first.
    pending: Vec<&'static str>,
    nodes: usize,
    paths: usize,
    steps: usize,
    evaluations: usize,
    /// A bound was exceeded, or enough errors were reported.
    stopped: bool,
    /// Whether the layer being elaborated asked for its own number.
    uses_layer: bool,
    layer: Option<i64>,
    /// The value of `fan_in` while an init rule is evaluated.
    fan_in: Option<i64>,
    /// Names of the definitions being called, outermost first.
    stack: Vec<String>,
    /// The positional integers of the `split` being called.
    widths: Vec<i64>,
    /// Whether empty slots become nodes.
    open: bool,
    /// What the current fill has read from the arch: its fields and rows of its init table.
    reads: Option<BTreeSet<String>>,
    /// Receives what expressions evaluate to.
    observed: Option<&'a mut Observed>,
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

    /// Counts a step; `None` once a bound was exceeded.
    fn step(&mut self, span: Span) -> Option<()> {
        self.steps += 1;
        if self.stopped {
            return None;
        }
        if self.steps > MAX_STEPS {
            self.stopped = true;
            self.diagnostics.push(diag::too_many_steps(span, MAX_STEPS));
            return None;
        }
        if self.diagnostics.len() > self.before + MAX_ERRORS {
            self.stopped = true;
            return None;
        }
        Some(())
    }

    fn run(&mut self) -> Option<Elaborated> {
        let tree = self.tree;
        let mut top = Building::default();
        top.top = true;
        self.arch.insert("layers".to_owned(), Value::Int(tree.layers.len() as i64));
        self.arch_fields(&mut top);
        let (vocab, dim) = (self.size("vocab")?, self.size("dim")?);
        for (role, setting) in &tree.init {
            let value = match setting.value.written() {
                Ok((expr, ..)) => dsl::print_expr(expr),
                Err(applied) => applied.name().to_owned(),
            };
            let path = format!("init.{role}");
            top.add_field(Field { path, value, written: true, span: setting.span });
        }

        top.body.inputs.push(Type::tokens());
        let tokens = top.body.push(NodeKind::Input(0), vec![], vec![Type::tokens()], tree.span);
        let mut x = self.embedding(&mut top, Out::first(tokens))?;
        let now = BTreeMap::from([(TOKENS.to_owned(), Out::first(tokens))]);
        top.passing = Some(Passing { now, ..Passing::default() });
        x = self.layers(&mut top, x, dim)?;

        let Some(head) = tree.head.clone() else {
            self.diagnostics.push(diag::missing_config(tree.span, &tree.name, "head"));
            return None;
        };
        let span = head.span;
        let path = "head".to_owned();
        top.add_field(Field {
            path: path.clone(),
            value: head.name().to_owned(),
            written: true,
            span,
        });
        let before = self.diagnostics.len();
        let outputs = self.holder_call(&mut top, &head, x, &path, Some(&path));
        self.point_at_layer(before, span);
        let outputs = outputs?;
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
        self.pass(&mut top);
        self.observe_params(&top);
        let (top, fields) = self.finish(top);
        let elements = top.params.iter().map(|p| p.shape.iter().product::<i64>());
        let total = elements.fold(0i64, i64::saturating_add);
        if total > MAX_TOTAL {
            self.diagnostics.push(diag::too_many_elements(tree.span, MAX_TOTAL));
        }
        self.unused_rows(&top);
        Some(Elaborated { declared: Graph { top, vocab, dim }, fields })
    }

    /// Leaves layers only the tensors that pass between them, and refuses what then has no use.
    fn pass(&mut self, top: &mut Building) {
        if !carry::carries(&top.body) {
            return;
        }
        let before = carry::unread(&top.body);
        top.body = carry::passed(std::mem::take(&mut top.body));
        for id in carry::unread(&top.body).difference(&before) {
            let Some(param) = top.body.params.get(id.0 as usize) else { continue };
            let span = top.param_spans.get(id.0 as usize).copied().unwrap_or(self.tree.span);
            self.diagnostics.push(diag::unused_result(&param.path, span));
        }
        if let Some(index) = carry::passed_over(&top.body)
            && let Some(layer) = self.tree.layers.get(index as usize)
        {
            let applied = &layer.applied;
            let error = diag::layer_passed_over(applied.span, applied.name(), index);
            self.diagnostics.push(error);
        }
    }

    fn arch_fields(&mut self, top: &mut Building) {
        for field in crate::tree::ARCH_FIELDS {
            let Some(value) = self.arch_field(field) else { continue };
            let span = self.tree.fields.get(field).map_or(self.tree.span, |s| s.span);
            let (path, value) = (field.to_owned(), value.text());
            top.add_field(Field { path, value, written: true, span });
        }
    }

    /// A field of the arch, evaluated at its first use.
    fn arch_field(&mut self, field: &'static str) -> Option<Value> {
        self.has_read(field);
        if let Some(known) = self.arch.get(field) {
            return Some(known.clone());
        }
        let setting = self.tree.fields.get(field)?;
        let wrong = |got: &str| {
            let want = match field {
                "norm_eps" => "a number of 0 or more".to_owned(),
                _ => format!("an integer between 1 and {MAX_WIDTH}"),
            };
            diag::bad_arch_field(setting.value_span(), field, got, &want)
        };
        if self.pending.contains(&field) {
            self.diagnostics.push(wrong("computed from itself"));
            return None;
        }
        let Ok((expr, file, around)) = setting.value.written() else {
            self.diagnostics.push(wrong("a definition"));
            return None;
        };
        self.pending.push(field);
        let value = self.eval_arch(expr, file, around);
        self.pending.pop();
        let value = value?;
        let good = match (field, &value) {
            ("norm_eps", v) => v.as_decimal().is_some_and(|d| !d.is_negative()),
            (_, Value::Int(n)) => (1..=MAX_WIDTH).contains(n),
            _ => false,
        };
        if !good {
            self.diagnostics.push(wrong(&value.describe()));
            return None;
        }
        self.arch.insert(field.to_owned(), value.clone());
        Some(value)
    }

    /// Records what a fill depends on besides its own definition and the width of its slot.
    fn has_read(&mut self, what: &str) {
        if let Some(reads) = &mut self.reads {
            reads.insert(what.to_owned());
        }
    }

    fn size(&mut self, field: &'static str) -> Option<i64> {
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

    fn embedding(&mut self, top: &mut Building, tokens: Out) -> Option<Out> {
        let embed = op::find("embed")?;
        let applied =
            Rc::new(Applied::bare(crate::tree::Callable::Primitive(embed), self.tree.span));
        let outs = self.holder_call(top, &applied, tokens, "embed", None)?;
        outs.first().copied()
    }

    /// Calls a definition directly below the arch, with its own table of slots.
    fn holder_call(
        &mut self,
        b: &mut Building,
        applied: &Rc<Applied>,
        x: Out,
        path: &str,
        field: Option<&str>,
    ) -> Option<Vec<Out>> {
        let slots = Rc::new(Slots {
            holder: applied.clone(),
            field: join(field.unwrap_or(""), "slots"),
            declared: RefCell::new(BTreeSet::new()),
        });
        let call = frame::Call {
            span: applied.span,
            tensors: vec![x],
            passed: BTreeMap::new(),
            init: None,
            path: path.to_owned(),
            draws: path.to_owned(),
            field: field.map(Rc::from),
            slots: slots.clone(),
            fill: None,
            again: false,
        };
        let outs = self.call_applied(b, applied, call)?;
        let declared = slots.declared.borrow();
        for (name, setting) in &applied.slots {
            if !declared.contains(name) {
                let what = format!("`{}`", applied.name());
                let declared: Vec<&str> = declared.iter().map(String::as_str).collect();
                self.diagnostics.push(diag::unknown_slot(setting.span, name, &what, &declared));
            }
        }
        Some(outs)
    }

    /// Adds the layer (or head) to errors inside a definition.
    fn point_at_layer(&mut self, from: usize, layer: Span) {
        for d in self.diagnostics.iter_mut().skip(from) {
            let inside = d.labels.iter().any(|label| label.span.is_in(layer));
            if !inside {
                d.labels.push(Label { span: layer, text: "for this".to_owned(), around: true });
            }
        }
    }

    /// Keeps only the first error about one setting, which every kind of layer would repeat.
    fn say_once(&mut self, from: usize) {
        let content =
            |d: &Diagnostic| (d.message.clone(), d.labels.first().map(|label| label.span));
        let mut known: Vec<_> = self.diagnostics.iter().take(from).map(content).collect();
        let new = self.diagnostics.split_off(from.min(self.diagnostics.len()));
        for diagnostic in new {
            let content = content(&diagnostic);
            if !known.contains(&content) {
                known.push(content);
                self.diagnostics.push(diagnostic);
            }
        }
    }

    /// Finishes a body. A parameter that no output depends on is an error: it would be initialised, stored and
    /// never trained.
    fn finish(&mut self, b: Building) -> (Body, Vec<Field>) {
        let reachable = b.body.reachable();
        let mut used = vec![false; b.body.params.len()];
        for node in reachable.iter().filter_map(|node| b.body.nodes.get(*node as usize)) {
            let ids: &[crate::graph::ParamId] = match &node.kind {
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
        (b.body, b.fields)
    }

    /// Reports rows of the init table that are not one of the usual roles and that nothing uses.
    fn unused_rows(&mut self, top: &Body) {
        let mut roles: BTreeSet<&str> = ROLES.into_iter().collect();
        roles.extend(top.params.iter().map(|p| p.role.as_str()));
        let names: Vec<&str> = roles.iter().copied().collect();
        let idle = self.tree.init.iter().filter(|(role, _)| !roles.contains(role.as_str()));
        for (role, setting) in idle.take(MAX_ERRORS) {
            self.diagnostics.push(diag::unused_init_row(setting.span, role, &names));
        }
    }
}

fn shown(body: &Body, outs: &[Out]) -> String {
    outs.iter().map(|o| body.ty(*o).to_string()).collect::<Vec<_>>().join(", ")
}
