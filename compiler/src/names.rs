//! The names that an item mentions and binds, for cycle detection and the check of undefined names. Scopes are the same
//! as in `elaborate`.

use std::collections::BTreeSet;

use dsl::{ArchBody, Body, Segment, Select, Span, Statement};
use dsl::{Arg, Entry, Expr, ExprKind, Item, LayerList, LayerWhat, Name};

use crate::diag::Use;
use crate::number::InitRule;
use crate::op;

/// Fields of the enclosing arch that any body may read; `embed` is the token table's instance, `tokens` the token ids.
pub const ARCH_NAMES: [&str; 7] = ["dim", "vocab", "norm_eps", "layer", "layers", "embed", TOKENS];

/// The token ids, in any layer and the head.
pub(crate) const TOKENS: &str = "tokens";

/// Functions on numbers.
pub const FUNCTIONS: [&str; 6] = ["floor", "ceil_to", "sqrt", "rsqrt", "min", "max"];

/// Names of the definitions that an item mentions, without locals.
pub fn references(item: &Item) -> Vec<Name> {
    let mut walk = Walk::default();
    walk.item(item);
    walk.mentions.into_iter().map(|mention| mention.name).collect()
}

/// The same for an expression in an arch.
pub(crate) fn references_in(expr: &Expr) -> Vec<Name> {
    let mut walk = Walk::default();
    walk.expr(expr);
    walk.mentions.into_iter().map(|mention| mention.name).collect()
}

/// Every name in an expression, whatever its meaning.
pub fn mentions(expr: &Expr) -> BTreeSet<String> {
    let mut walk = Walk { all: true, ..Walk::default() };
    walk.expr(expr);
    walk.mentions.into_iter().map(|mention| mention.name.text).collect()
}

/// Every name that an item binds, including instances.
pub(crate) fn binds(item: &Item) -> Vec<String> {
    let mut walk = Walk::default();
    walk.item(item);
    walk.bound.log.into_iter().map(|(_, name)| name).collect()
}

/// The names that statements bind, for the branch of an `if` that is not taken.
pub(crate) fn bound_by(statements: &[Statement]) -> Vec<String> {
    let mut walk = Walk::default();
    walk.statements(statements);
    walk.bound.log.into_iter().map(|(_, name)| name).collect()
}

/// The instances in an expression that is not evaluated.
pub(crate) fn bound_in(expr: &Expr) -> Vec<String> {
    let mut walk = Walk::default();
    walk.expr(expr);
    walk.bound.log.into_iter().map(|(_, name)| name).collect()
}

/// Whether it is a function on numbers.
pub fn is_function(name: &str) -> bool {
    FUNCTIONS.contains(&name)
}

/// Whether it is the rule of an initial distribution.
pub fn is_rule(name: &str) -> bool {
    InitRule::NAMES.contains(&name)
}

/// Whether the name is built into the language.
pub(crate) fn is_built_in(name: &str) -> bool {
    op::find(name).is_some()
        || op::WORDS.contains(&name)
        || FUNCTIONS.contains(&name)
        || InitRule::NAMES.contains(&name)
}

/// The kind of a bound name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Binds {
    /// A tensor, a configuration value, a shared instance.
    Value,
    /// An instance: only its weight can be named, never a call of it.
    Instance,
}

/// The bindings of a body so far. The branches of an `if` do not see each other.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    names: BTreeSet<(Binds, String)>,
    pub(crate) log: Vec<(Binds, String)>,
}

impl Bound {
    pub(crate) fn insert(&mut self, what: Binds, name: &str) {
        let entry = (what, name.to_owned());
        if !self.names.contains(&entry) {
            self.names.insert(entry.clone());
            self.log.push(entry);
        }
    }

    /// Whether the name, used in this context, refers to a local rather than a definition.
    pub(crate) fn hides(&self, name: &str, context: Use) -> bool {
        let has = |what| self.names.contains(&(what, name.to_owned()));
        match context {
            Use::Call | Use::Def => has(Binds::Value),
            Use::Value => {
                has(Binds::Value)
                    || has(Binds::Instance)
                    || name == "fan_in"
                    || ARCH_NAMES.contains(&name)
            }
        }
    }

    pub(crate) fn mark(&self) -> usize {
        self.log.len()
    }

    /// Removes the bindings made since the mark.
    pub(crate) fn hide(&mut self, mark: usize) -> Vec<(Binds, String)> {
        let hidden = self.log.split_off(mark.min(self.log.len()));
        for entry in &hidden {
            self.names.remove(entry);
        }
        hidden
    }

    pub(crate) fn show(&mut self, hidden: Vec<(Binds, String)>) {
        for (what, name) in hidden {
            self.insert(what, &name);
        }
    }
}

#[derive(Default)]
pub(crate) struct Walk {
    /// Whether bound names count as mentions.
    all: bool,
    pub(crate) bound: Bound,
    pub(crate) mentions: Vec<Mention>,
    /// Names used as an init table.
    pub(crate) tables: Vec<Span>,
    /// Names used as the base of an arch.
    pub(crate) bases: Vec<Span>,
    /// Names of shared instances, which can be called.
    pub(crate) shared: BTreeSet<String>,
}

/// A name that the body does not bind.
pub(crate) struct Mention {
    pub(crate) name: Name,
    pub(crate) context: Use,
    /// The number of names bound before it.
    pub(crate) bound: usize,
}

impl Walk {
    fn name(&mut self, name: &Name, context: Use) {
        // A call of a primitive's name is the primitive, even if a mixer has the same name.
        let primitive = context == Use::Call && op::find(&name.text).is_some();
        if self.all || !(primitive || self.bound.hides(&name.text, context)) {
            let bound = self.bound.mark();
            self.mentions.push(Mention { name: name.clone(), context, bound });
        }
    }

    fn bind(&mut self, name: &Name) {
        self.bound.insert(Binds::Value, &name.text);
    }

    pub(crate) fn item(&mut self, item: &Item) {
        match item {
            Item::Def(def) => {
                for param in &def.config {
                    if let Some(default) = &param.default {
                        self.expr(default);
                    }
                    self.bind(&param.name);
                }
                for tensor in &def.tensors {
                    self.bind(tensor);
                }
                self.body(&def.body);
            }
            Item::Alias(alias) => self.expr(&alias.value),
            Item::Init(table) => self.entries(&table.entries),
            Item::Arch(arch) => match &arch.body {
                ArchBody::Fields(entries) => self.entries(entries),
                ArchBody::With { base, edits } => {
                    self.bases.push(base.span);
                    self.name(base, Use::Def);
                    self.entries(edits);
                }
            },
        }
    }

    fn body(&mut self, body: &Body) {
        self.statements(&body.statements);
        for expr in &body.result {
            self.expr(expr);
        }
    }

    fn statements(&mut self, statements: &[Statement]) {
        for statement in statements {
            match statement {
                Statement::Let { names, value, span: _ } => {
                    self.expr(value);
                    names.iter().for_each(|n| self.bind(n));
                }
                Statement::Param { name, dims, init, span: _ } => {
                    dims.iter().chain(init).for_each(|e| self.expr(e));
                    self.bind(name);
                }
                Statement::Share { name, callee, entries, span: _ } => {
                    self.name(callee, Use::Def);
                    self.entries(entries.as_deref().unwrap_or(&[]));
                    self.bind(name);
                    self.shared.insert(name.text.clone());
                }
                Statement::Carry { name, value, otherwise, span: _ } => {
                    let mark = self.bound.mark();
                    self.expr(value);
                    let hidden = self.bound.hide(mark);
                    self.bind(name);
                    self.statements(otherwise);
                    self.bound.show(hidden);
                }
                Statement::If { condition, then, otherwise, span: _ } => {
                    self.expr(condition);
                    let mark = self.bound.mark();
                    self.statements(then);
                    let hidden = self.bound.hide(mark);
                    self.statements(otherwise);
                    self.bound.show(hidden);
                }
            }
        }
    }

    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Int(_) | ExprKind::Decimal(_) | ExprKind::Bool(_) => {}
            ExprKind::Name(text) => {
                self.name(&Name { text: text.clone(), span: expr.span }, Use::Value);
            }
            ExprKind::Applied { def, entries } => {
                self.name(def, Use::Def);
                self.entries(entries);
            }
            ExprKind::Call { callee, instance, args } => {
                self.name(callee, Use::Call);
                for Arg { name: _, value } in args {
                    self.expr(value);
                }
                // The instance can be used later as a shared weight.
                if let Some(name) = instance {
                    self.bound.insert(Binds::Instance, &name.text);
                }
            }
            ExprKind::Slot { name: _, args } => args.iter().for_each(|a| self.expr(a)),
            ExprKind::Unary(_, inner) => self.expr(inner),
            ExprKind::Binary(_, a, b) => {
                self.expr(a);
                self.expr(b);
            }
        }
    }

    fn entries(&mut self, entries: &[Entry]) {
        for entry in entries {
            match entry {
                Entry::Set { path, value, .. } | Entry::Replace { path, value, .. } => {
                    self.path(path);
                    let at_init =
                        matches!(path.segments.as_slice(), [Segment::Name(n)] if n.text == "init");
                    if at_init && matches!(value.kind, ExprKind::Name(_)) {
                        self.tables.push(value.span);
                    }
                    self.expr(value);
                }
                Entry::Nested { path, entries, .. } => {
                    self.path(path);
                    self.entries(entries);
                }
                Entry::Layers { value, .. } => self.layers(value),
                Entry::Fill { slots, with, .. } => {
                    slots.iter().for_each(|p| self.path(p));
                    self.expr(with);
                }
                Entry::Canon { slots, entries, .. } => {
                    slots.iter().for_each(|p| self.path(p));
                    self.entries(entries.as_deref().unwrap_or(&[]));
                }
                Entry::Empty { slots, .. } => slots.iter().for_each(|p| self.path(p)),
            }
        }
    }

    fn path(&mut self, path: &dsl::Path) {
        for segment in &path.segments {
            if let Segment::Layers { select: Select::Is { path: _, def }, .. } = segment {
                self.name(def, Use::Def);
            }
        }
    }

    fn layers(&mut self, list: &LayerList) {
        if let Some(count) = &list.count {
            self.expr(count);
        }
        match &list.what {
            LayerWhat::One { layer, .. } => self.expr(layer),
            LayerWhat::List(items) => items.iter().for_each(|l| self.layers(l)),
        }
    }
}
