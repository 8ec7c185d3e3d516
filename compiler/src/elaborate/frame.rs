//! The meaning of names inside one call.
//!
//! A name is looked up in the body, the definition's configuration, the arch's fields, the file with its imports and
//! std, in that order; but a call of a primitive's name always refers to the primitive. Shadowing is the same as in the
//! static check (`crate::names`), because the canonical text is written with its rules.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dsl::{Expr, FileId, Name, Span, Statement};

use super::sites::Sites;
use super::{Building, Elaborator, join};
use crate::arch;
use crate::diag;
use crate::graph::Out;
use crate::names::{self, ARCH_NAMES, FUNCTIONS};
use crate::number::InitRule;
use crate::op;
use crate::resolve::Entity;
use crate::tree::Value;
use crate::tree::{Applied, Around, Callable};

/// An init rule as written. Evaluated once the parameter's `fan_in` is known.
pub(super) type InitExpr = (Expr, Around, FileId);

/// The inputs of a call, whatever its callee.
pub(super) struct Call {
    pub(super) span: Span,
    pub(super) tensors: Vec<Out>,
    /// Configuration given in the call itself, by name.
    pub(super) passed: BTreeMap<String, (Value, Span)>,
    pub(super) init: Option<InitExpr>,
    pub(super) path: String,
    /// The path that keys draws: from the layer down, with a number for each call of one name, whatever it owns.
    pub(super) draws: String,
    pub(super) field: Option<Rc<str>>,
    pub(super) slots: Rc<Slots>,
    pub(super) fill: Option<String>,
    /// In a repeated call of a shared instance: reuse existing parameters.
    pub(super) again: bool,
}

pub(super) struct Frame {
    /// The file that names are looked up in.
    pub(super) file: FileId,
    pub(super) names: BTreeMap<String, Value>,
    /// Instance path of this call; empty at the root of a body.
    pub(super) path: String,
    /// The path that keys draws.
    pub(super) draws: String,
    pub(super) sites: Sites,
    pub(super) slots: Rc<Slots>,
    /// The slot of this fill, if the frame is one.
    pub(super) fill: Option<String>,
    /// In a shared instance: use parameters that already exist.
    pub(super) again: bool,
    /// Names of instances with parameters so far, and whether each is from `share`.
    pub(super) instances: BTreeMap<String, (Span, bool)>,
    pub(super) shared: BTreeMap<String, (Rc<Applied>, Option<Rc<str>>)>,
    /// Parts of parameter paths in lower case: two may not differ in case only.
    cases: BTreeMap<String, (String, Span)>,
    /// Every name bound so far, even in a branch that was not taken: it shadows definitions.
    bound: BTreeSet<String>,
    /// Instance names so far. They shadow definitions where a value is expected.
    named: BTreeSet<String>,
    /// Configuration without a value because of an error that was reported.
    broken: BTreeSet<String>,
    /// The tensors that this body carries, as it first saw them.
    pub(super) carried: Vec<(Name, Out)>,
}

/// The fills of the enclosing layer (or head), and which of its slots were declared.
pub(super) struct Slots {
    pub(super) holder: Rc<Applied>,
    /// The path of its slots in the fields: `slots`, `head.slots`.
    pub(super) field: String,
    pub(super) declared: RefCell<BTreeSet<String>>,
}

pub(super) enum Callee {
    Applied(Rc<Applied>, Option<Rc<str>>),
    Shared(Rc<Applied>, Option<Rc<str>>),
    Function,
}

impl Frame {
    pub(super) fn new(file: FileId, path: String, slots: Rc<Slots>) -> Frame {
        Frame {
            file,
            names: BTreeMap::new(),
            path,
            draws: String::new(),
            sites: Sites::new(),
            slots,
            fill: None,
            again: false,
            instances: BTreeMap::new(),
            shared: BTreeMap::new(),
            cases: BTreeMap::new(),
            bound: BTreeSet::new(),
            named: BTreeSet::new(),
            broken: BTreeSet::new(),
            carried: Vec::new(),
        }
    }

    pub(super) fn bind(&mut self, name: &str, value: Value) {
        self.names.insert(name.to_owned(), value);
        self.broken.remove(name);
        self.bound.insert(name.to_owned());
    }

    /// Shadows definitions with that name without giving it a value.
    pub(super) fn hide(&mut self, name: &str) {
        self.bound.insert(name.to_owned());
    }

    /// Marks a name as broken, so that its uses do not report the same error again.
    pub(super) fn break_off(&mut self, name: &str) {
        self.names.remove(name);
        self.broken.insert(name.to_owned());
        self.hide(name);
    }

    pub(super) fn name_instance(&mut self, name: &str) {
        self.named.insert(name.to_owned());
    }

    /// Binds the instances of an expression that is not evaluated, without values.
    pub(super) fn pass_over(&mut self, value: &Expr) {
        self.bound.extend(names::bound_in(value));
    }

    /// Binds the names of a branch that is not taken, without values.
    pub(super) fn skip(&mut self, statements: &[Statement]) {
        self.bound.extend(names::bound_by(statements));
    }

    /// The path that keys the draws of a call whose instance has this name.
    pub(super) fn draws_of(&self, name: &Name, span: Span) -> String {
        let path = join(&self.draws, &name.text);
        match self.sites.get(&span).copied() {
            Some(number @ 2..) => format!("{path}#{number}"),
            Some(_) | None => path,
        }
    }

    /// The names of this body that an expression in it mentions. Tensors are left out: they are not configuration.
    pub(super) fn around(&self, mentioned: BTreeSet<String>) -> Around {
        let names: BTreeMap<String, Option<Value>> = mentioned
            .into_iter()
            .filter(|name| self.bound.contains(name))
            .map(|name| {
                let value = self.names.get(&name).filter(|v| !matches!(v, Value::Tensors(_)));
                (name, value.cloned())
            })
            .collect();
        (!names.is_empty()).then(|| Rc::new(names))
    }
}

impl Elaborator<'_> {
    /// The frame for an expression in an arch: it sees the arch's fields, its own file, and the
    /// enclosing body if it is written in one.
    pub(super) fn arch_frame(&self, file: FileId, around: &Around) -> Frame {
        let holder = Rc::new(Applied::bare(Callable::Primitive(op::ALL[0]), self.tree.span));
        let field = String::new();
        let slots = Rc::new(Slots { holder, field, declared: RefCell::default() });
        let mut frame = Frame::new(file, String::new(), slots);
        for (name, value) in around.iter().flat_map(|around| around.iter()) {
            match value {
                Some(value) => frame.bind(name, value.clone()),
                None => frame.hide(name),
            }
        }
        frame
    }

    /// Records the instance name of a call that owns parameters.
    pub(super) fn remember_instance(&mut self, name: &Name, shared: bool, f: &mut Frame) {
        self.check_case(name, f);
        f.instances.entry(name.text.clone()).or_insert((name.span, shared));
    }

    /// Checks names that are parts of parameter paths: instances, raw parameters, slots.
    pub(super) fn check_case(&mut self, name: &Name, f: &mut Frame) {
        let (first, before) = f
            .cases
            .entry(name.text.to_lowercase())
            .or_insert_with(|| (name.text.clone(), name.span));
        if *first != name.text {
            self.diagnostics.push(diag::instance_case(&name.text, name.span, first, *before));
        }
    }

    /// Resolves a callee. Only callables count: a configured number shadows other definitions of its
    /// name, but not a function.
    pub(super) fn callee(&mut self, name: &Name, f: &Frame) -> Option<Callee> {
        let text = name.text.as_str();
        if let Some((applied, field)) = f.shared.get(text) {
            return Some(Callee::Shared(applied.clone(), field.clone()));
        }
        if let Some(Value::Def(applied, field)) = f.names.get(text) {
            return Some(Callee::Applied(applied.clone(), field.clone()));
        }
        // A call of a primitive's name is the primitive, even inside the mixer with the same name.
        if let Some(callable) = crate::tree::primitive(text) {
            return Some(Callee::Applied(Rc::new(Applied::bare(callable, name.span)), None));
        }
        if f.broken.contains(text) {
            return None;
        }
        if !f.bound.contains(text) {
            match self.library.lookup(f.file, text) {
                Some(Entity::Def(item)) => {
                    let applied = Applied::bare(Callable::Def(item), name.span);
                    return Some(Callee::Applied(Rc::new(applied), None));
                }
                Some(Entity::Alias(alias, home)) => {
                    let applied = self.alias(home, &alias)?;
                    return Some(Callee::Applied(applied, None));
                }
                Some(Entity::Init(..)) => {
                    self.diagnostics.push(diag::not_callable(name, "an init table"));
                    return None;
                }
                Some(Entity::Arch(..)) => {
                    self.diagnostics.push(diag::not_callable(name, "an arch"));
                    return None;
                }
                None => {}
            }
        }
        if FUNCTIONS.contains(&text) || InitRule::NAMES.contains(&text) {
            return Some(Callee::Function);
        }
        match f.names.get(text) {
            Some(value) => self.diagnostics.push(diag::not_callable(name, &value.describe())),
            None => self.diagnostics.push(diag::name_used_before(text, name.span)),
        }
        None
    }

    pub(super) fn alias(&mut self, home: FileId, alias: &dsl::Alias) -> Option<Rc<Applied>> {
        arch::alias(self.library, home, alias, &mut self.aliases, self.diagnostics)
    }

    /// Resolves a name where a value is expected.
    pub(super) fn name(
        &mut self,
        name: &str,
        span: Span,
        f: &mut Frame,
        b: &mut Building,
    ) -> Option<Value> {
        if let Some(known) = self.body_name(name, span, f, b) {
            return known;
        }
        if let Some(known) = self.arch_name(name, span, b) {
            return known;
        }
        match self.library.lookup(f.file, name) {
            Some(Entity::Def(item)) => {
                return Some(Value::Def(Rc::new(Applied::bare(Callable::Def(item), span)), None));
            }
            Some(Entity::Alias(alias, home)) => {
                return Some(Value::Def(self.alias(home, &alias)?, None));
            }
            Some(Entity::Init(..) | Entity::Arch(..)) => {
                self.diagnostics.push(diag::not_a_definition(span));
                return None;
            }
            None => {}
        }
        if let Some(word) = op::WORDS.iter().find(|w| **w == name) {
            return Some(Value::Word(word));
        }
        if let Some(Ok(rule)) = InitRule::build(name, &[]) {
            return Some(Value::Init(rule));
        }
        if let Some(primitive) = crate::tree::primitive(name) {
            return Some(Value::Def(Rc::new(Applied::bare(primitive, span)), None));
        }
        self.diagnostics.push(diag::name_used_before(name, span));
        None
    }

    /// A name of the body. `None` if it has no such name, `Some(None)` after an error.
    fn body_name(
        &mut self,
        name: &str,
        span: Span,
        f: &Frame,
        b: &Building,
    ) -> Option<Option<Value>> {
        if let Some(value) = f.names.get(name) {
            return Some(Some(value.clone()));
        }
        if f.broken.contains(name) {
            return Some(None);
        }
        if !f.named.contains(name) && !f.bound.contains(name) {
            return None;
        }
        let instance = b.by_path.get(&join(&f.path, name));
        if instance.is_none() {
            self.diagnostics.push(diag::name_used_before(name, span));
        }
        Some(instance.map(|id| Value::Instance(*id)))
    }

    /// A name that every arch has. `None` if it is not one, `Some(None)` after an error.
    fn arch_name(&mut self, name: &str, span: Span, b: &mut Building) -> Option<Option<Value>> {
        match (name, self.fan_in, self.layer) {
            ("fan_in", Some(n), _) => return Some(Some(Value::Int(n))),
            ("layer", _, Some(n)) => {
                self.uses_layer = true;
                return Some(Some(Value::Int(n)));
            }
            _ => {}
        }
        if let Some(field) = crate::tree::ARCH_FIELDS.into_iter().find(|field| *field == name) {
            let value = self.arch_field(field);
            if value.is_none() && !self.tree.fields.contains_key(name) {
                self.diagnostics.push(diag::missing_arch_field(self.tree.span, name));
            }
            return Some(value);
        }
        if let Some(value) = self.arch.get(name).cloned() {
            self.has_read(name);
            return Some(Some(value));
        }
        if name == "embed"
            && b.top
            && let Some(id) = b.by_path.get("embed")
        {
            return Some(Some(Value::Instance(*id)));
        }
        if name == names::TOKENS {
            let tokens = b.passed(name, span);
            if tokens.is_none() {
                self.diagnostics.push(diag::carry_outside(span, name));
            }
            return Some(tokens.map(|out| Value::Tensors(vec![out])));
        }
        if name == "fan_in" || ARCH_NAMES.contains(&name) {
            self.diagnostics.push(diag::name_used_before(name, span));
            return Some(None);
        }
        None
    }
}
