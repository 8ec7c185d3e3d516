//! Calls of definitions: arguments, configuration, bodies.
//!
//! In: a call and the names around it. Out: its results. Must stay true: tensors come first, then
//! configuration; what a caller passes cannot be set from outside; each configuration value of
//! something the arch holds is recorded as a field, written or by default.

use std::collections::BTreeMap;
use std::rc::Rc;

use dsl::{Arg, Expr, Name, Span, Statement};

use super::{Building, Elaborator, Field, Frame, MAX_DEPTH, Slots, join};
use crate::diag;
use crate::graph::{Out, Param};
use crate::names::FUNCTIONS;
use crate::op::Arity;
use crate::resolve::Entity;
use crate::tree::{Applied, Callable, DefItem, SettingValue};
use crate::value::{InitRule, Value};

/// Everything a call is made with, whatever it calls.
pub(super) struct Call {
    pub(super) span: Span,
    pub(super) tensors: Vec<Out>,
    /// Configuration given in the call itself, by name.
    pub(super) passed: BTreeMap<String, (Value, Span)>,
    /// An init rule given in the call: evaluated once the parameter's `fan_in` is known.
    pub(super) init: Option<(Expr, Rc<BTreeMap<String, Value>>, dsl::FileId)>,
    pub(super) path: String,
    pub(super) field: Option<Rc<str>>,
    pub(super) slots: Rc<Slots>,
    pub(super) fill: Option<String>,
    /// Parameters that exist already are this call's too.
    pub(super) shared: bool,
}

impl Elaborator<'_> {
    pub(super) fn call(
        &mut self,
        span: Span,
        callee: &Name,
        instance: Option<&Name>,
        args: &[Arg],
        f: &mut Frame,
        b: &mut Building,
    ) -> Option<Value> {
        let (applied, field, shared) = match self.callee(callee, f)? {
            Callee::Applied(applied, field) => (applied, field, false),
            Callee::Shared(applied) => (applied, None, true),
            Callee::Function => {
                let mut values = Vec::new();
                for arg in args {
                    values.push(self.eval(&arg.value, f, b)?);
                }
                return if FUNCTIONS.contains(&callee.text.as_str()) {
                    self.function(callee, &values, span)
                } else {
                    self.init_rule(callee, &values, span)
                };
            }
        };
        let (tensors, passed, init) = self.arguments(&applied.callee, span, args, f, b)?;
        let name = instance.unwrap_or(callee);
        let call = Call {
            span,
            tensors,
            passed,
            init,
            path: join(&f.path, &name.text),
            field,
            slots: f.slots.clone(),
            fill: f.fill.clone(),
            shared,
        };
        let owned = b.body.params.len();
        let clash = f.instances.get(&name.text).copied();
        let outs = self.call_applied_checked(b, &applied, call, clash.filter(|_| !shared), &name.text)?;
        if b.body.params.len() > owned || shared {
            self.remember_instance(name, f);
        }
        Some(Value::Tensors(outs))
    }

    /// Calls, and reports a second owner of one instance name as that rather than as a path.
    fn call_applied_checked(
        &mut self,
        b: &mut Building,
        applied: &Rc<Applied>,
        call: Call,
        clash: Option<Span>,
        name: &str,
    ) -> Option<Vec<Out>> {
        let span = call.span;
        let (before, path) = (b.body.params.len(), call.path.clone());
        let owns_before = b.by_path.keys().any(|p| *p == path || p.starts_with(&format!("{path}.")));
        match clash.filter(|_| owns_before) {
            None => self.call_applied(b, applied, call),
            Some(first) => {
                // Elaborate under a name of its own so that a call without parameters is fine.
                let other = Call { path: format!("{path}\u{1}"), ..call };
                let outs = self.call_applied(b, applied, other)?;
                if b.body.params.len() > before {
                    self.diagnostics.push(diag::instance_twice(name, span, first));
                    return None;
                }
                Some(outs)
            }
        }
    }

    fn remember_instance(&mut self, name: &Name, f: &mut Frame) {
        let lower = name.text.to_lowercase();
        let other = f
            .instances
            .iter()
            .find(|(n, _)| **n != name.text && n.to_lowercase() == lower)
            .map(|(n, s)| (n.clone(), *s));
        if let Some((other, before)) = other {
            self.diagnostics.push(diag::instance_case(&name.text, name.span, &other, before));
        }
        f.instances.entry(name.text.clone()).or_insert(name.span);
    }

    fn init_rule(&mut self, callee: &Name, args: &[Value], span: Span) -> Option<Value> {
        let mut roots = Vec::new();
        for arg in args {
            match super::eval::as_root(arg) {
                Some(root) => roots.push(root),
                None => {
                    let got = arg.describe();
                    self.diagnostics.push(diag::wrong_kind(span, &callee.text, &got, "given numbers"));
                    return None;
                }
            }
        }
        match InitRule::build(&callee.text, &roots)? {
            Ok(rule) => {
                if let Some(why) = rule.problem() {
                    self.diagnostics.push(diag::bad_init(span, &rule.to_string(), why));
                    return None;
                }
                Some(Value::Init(rule))
            }
            Err(want) => {
                let got = roots.len();
                self.diagnostics.push(diag::init_arguments(span, &callee.text, got, want));
                None
            }
        }
    }

    /// Calls look among what can be called: a configured number of the same name does not hide it.
    fn callee(&mut self, name: &Name, f: &Frame) -> Option<Callee> {
        if let Some(applied) = f.shared.get(&name.text) {
            return Some(Callee::Shared(applied.clone()));
        }
        if let Some(Value::Def(applied, field)) = f.names.get(&name.text) {
            return Some(Callee::Applied(applied.clone(), field.clone()));
        }
        // A primitive's name called is the primitive, also inside the mixer that shares its name.
        if let Some(callable) = crate::tree::primitive(&name.text) {
            return Some(Callee::Applied(Rc::new(Applied::bare(callable, name.span)), None));
        }
        match self.library.lookup(f.file, &name.text) {
            Some(Entity::Def(item)) => {
                let applied = Applied::bare(Callable::Def(item), name.span);
                return Some(Callee::Applied(Rc::new(applied), None));
            }
            Some(Entity::Alias(alias, home)) => {
                let library = self.library;
                let applied = crate::arch::definition(library, home, &alias.value, self.diagnostics)?;
                return Some(Callee::Applied(applied, None));
            }
            Some(Entity::Init(..) | Entity::Arch(..)) => {
                self.diagnostics.push(diag::not_callable(name, "not something to call"));
                return None;
            }
            None => {}
        }
        if FUNCTIONS.contains(&name.text.as_str()) || InitRule::NAMES.contains(&name.text.as_str()) {
            return Some(Callee::Function);
        }
        if let Some(value) = f.names.get(&name.text) {
            let got = value.describe();
            self.diagnostics.push(diag::not_callable(name, &got));
        }
        None
    }

    #[expect(clippy::type_complexity, reason = "the three kinds of argument, used once")]
    fn arguments(
        &mut self,
        callee: &Callable,
        span: Span,
        args: &[Arg],
        f: &mut Frame,
        b: &mut Building,
    ) -> Option<(
        Vec<Out>,
        BTreeMap<String, (Value, Span)>,
        Option<(Expr, Rc<BTreeMap<String, Value>>, dsl::FileId)>,
    )> {
        let arity = match callee {
            Callable::Primitive(p) => p.tensors,
            Callable::Def(item) => Arity::Exactly(item.def.tensors.len()),
        };
        let names: Vec<&str> = callee.config_names();
        let variadic = matches!(callee, Callable::Primitive(p) if p.name == "split");
        let mut tensors = Vec::new();
        let mut passed: BTreeMap<String, (Value, Span)> = BTreeMap::new();
        let mut init = None;
        let mut position = 0usize;
        let mut widths = Vec::new();
        let mut failed = false;
        for arg in args {
            let primitive = matches!(callee, Callable::Primitive(_));
            if let Some(name) = &arg.name
                && name.text == "init"
                && primitive
            {
                let names = Rc::new(f.names.clone());
                init = Some((arg.value.clone(), names, f.file));
                continue;
            }
            let Some(value) = self.eval(&arg.value, f, b) else {
                failed = true;
                continue;
            };
            let place = arg.value.span;
            match (&arg.name, value) {
                (None, Value::Tensors(outs)) => tensors.extend(outs),
                (Some(name), Value::Tensors(_)) => {
                    self.diagnostics.push(diag::tensor_as_config(place, &name.text));
                    failed = true;
                }
                (None, Value::Int(n)) if variadic => widths.push(n),
                (None, value) => {
                    let wants_more = match arity {
                        Arity::Exactly(n) | Arity::AtLeast(n) => tensors.len() < n,
                    };
                    if wants_more {
                        let got = value.describe();
                        self.diagnostics.push(diag::not_a_tensor(place, &got));
                        return None;
                    }
                    match names.get(position) {
                        Some(name) => {
                            passed.insert((*name).to_owned(), (value, place));
                            position += 1;
                        }
                        None => {
                            self.diagnostics.push(diag::too_many_arguments(place, callee.name(), &names));
                            failed = true;
                        }
                    }
                }
                (Some(name), value) => {
                    if !names.contains(&name.text.as_str()) {
                        self.diagnostics.push(diag::unknown_argument(name, callee.name(), &names));
                        failed = true;
                    } else if passed.insert(name.text.clone(), (value, place)).is_some() {
                        self.diagnostics.push(diag::argument_twice(&name.text, place));
                        failed = true;
                    }
                }
            }
        }
        if failed {
            return None;
        }
        let (fits, want) = match arity {
            Arity::Exactly(1) => (tensors.len() == 1, "1 tensor".to_owned()),
            Arity::Exactly(n) => (tensors.len() == n, format!("{n} tensors")),
            Arity::AtLeast(n) => (tensors.len() >= n, format!("at least {n} tensors")),
        };
        if !fits {
            self.diagnostics.push(diag::tensor_count(span, callee.name(), tensors.len(), &want));
            return None;
        }
        if variadic {
            self.widths = widths;
        }
        Some((tensors, passed, init))
    }

    pub(super) fn call_applied(
        &mut self,
        b: &mut Building,
        applied: &Rc<Applied>,
        call: Call,
    ) -> Option<Vec<Out>> {
        match &applied.callee {
            Callable::Primitive(primitive) => self.call_primitive(b, primitive, applied, call),
            Callable::Def(item) => self.call_def(b, item, applied, call),
        }
    }

    fn call_def(
        &mut self,
        b: &mut Building,
        item: &Rc<DefItem>,
        applied: &Rc<Applied>,
        call: Call,
    ) -> Option<Vec<Out>> {
        self.stack.push(item.def.name.text.clone());
        if self.stack.len() > MAX_DEPTH {
            self.diagnostics.push(diag::too_deep(call.span, MAX_DEPTH, &self.stack));
            return None;
        }
        let result = self.call_body(b, item, applied, call);
        self.stack.pop();
        result
    }

    fn call_body(
        &mut self,
        b: &mut Building,
        item: &Rc<DefItem>,
        applied: &Rc<Applied>,
        call: Call,
    ) -> Option<Vec<Out>> {
        let def = &item.def;
        let mut frame = Frame {
            file: item.file,
            names: BTreeMap::new(),
            path: call.path,
            instances: BTreeMap::new(),
            shared: BTreeMap::new(),
            slots: call.slots,
            fill: call.fill,
        };
        let mut failed = false;
        for param in &def.config {
            let name = &param.name.text;
            let field = call.field.as_deref().map(|at| join(at, name));
            let setting = applied.config.get(name);
            let (value, written, span) = match (call.passed.get(name), setting) {
                (Some((value, span)), None) => {
                    frame.names.insert(name.clone(), value.clone());
                    // Given by a definition, so no field of the arch.
                    let _ = span;
                    continue;
                }
                (Some((_, given)), Some(setting)) => {
                    self.diagnostics.push(diag::set_by_caller(setting.span, name, applied.name(), *given));
                    failed = true;
                    continue;
                }
                (None, Some(setting)) => match &setting.value {
                    SettingValue::Def(inner) => {
                        let held = field.as_deref().map(Rc::from);
                        (Some(Value::Def(inner.clone(), held)), true, setting.span)
                    }
                    SettingValue::Expr(expr, file) => {
                        (self.eval_arch(expr, *file), true, setting.span)
                    }
                    SettingValue::Known(value) => (Some(value.clone()), true, setting.span),
                },
                (None, None) => match &param.default {
                    Some(default) => (self.eval(default, &mut frame, b), false, default.span),
                    None => {
                        self.diagnostics.push(diag::missing_config(call.span, applied.name(), name));
                        failed = true;
                        continue;
                    }
                },
            };
            let Some(value) = value else {
                failed = true;
                continue;
            };
            let value = match value {
                Value::Ratio(r, at) => {
                    self.diagnostics.push(diag::inexact_division(at, &r.num.to_string(), &r.den.to_string()));
                    failed = true;
                    continue;
                }
                Value::Tensors(_) => {
                    self.diagnostics.push(diag::tensor_as_config(span, name));
                    failed = true;
                    continue;
                }
                Value::Def(inner, _) => Value::Def(inner, field.as_deref().map(Rc::from)),
                other => other,
            };
            if let Some(path) = field {
                b.fields.push(Field { path, value: value.text(), written, span });
            }
            frame.names.insert(name.clone(), value);
        }
        if failed {
            return None;
        }
        for (name, out) in def.tensors.iter().zip(&call.tensors) {
            frame.names.insert(name.text.clone(), Value::Tensors(vec![*out]));
        }
        self.statements(&def.body.statements, &mut frame, b)?;
        let mut outs = Vec::new();
        for expr in &def.body.result {
            match self.eval(expr, &mut frame, b)? {
                Value::Tensors(more) => outs.extend(more),
                other => {
                    let got = other.describe();
                    self.diagnostics.push(diag::not_a_tensor(expr.span, &got));
                    return None;
                }
            }
        }
        Some(outs)
    }

    fn statements(&mut self, list: &[Statement], f: &mut Frame, b: &mut Building) -> Option<()> {
        let mut failed = false;
        for statement in list {
            // After a failure later statements would only repeat it.
            if !failed && self.statement(statement, f, b).is_none() {
                failed = true;
            }
        }
        (!failed).then_some(())
    }

    fn statement(&mut self, statement: &Statement, f: &mut Frame, b: &mut Building) -> Option<()> {
        match statement {
            Statement::Let { names, value, span } => {
                let value = self.eval(value, f, b)?;
                match (names.as_slice(), value) {
                    ([name], Value::Tensors(outs)) if outs.len() == 1 => {
                        f.names.insert(name.text.clone(), Value::Tensors(outs));
                    }
                    (names, Value::Tensors(outs)) => {
                        if names.len() != outs.len() {
                            let (got, want) = (outs.len(), names.len());
                            self.diagnostics.push(diag::result_count(*span, "this", got, want));
                            return None;
                        }
                        for (name, out) in names.iter().zip(outs) {
                            f.names.insert(name.text.clone(), Value::Tensors(vec![out]));
                        }
                    }
                    ([name], Value::Ratio(r, at)) => {
                        let (num, den) = (r.num.to_string(), r.den.to_string());
                        self.diagnostics.push(diag::inexact_division(at, &num, &den));
                        let _ = name;
                        return None;
                    }
                    ([name], value) => {
                        f.names.insert(name.text.clone(), value);
                    }
                    (names, _) => {
                        self.diagnostics.push(diag::result_count(*span, "this", 1, names.len()));
                        return None;
                    }
                }
            }
            Statement::Param { name, dims, init, span } => {
                let out = self.raw_param(name, dims, init.as_ref(), *span, f, b)?;
                f.names.insert(name.text.clone(), Value::Tensors(vec![out]));
            }
            Statement::Share { name, callee, entries, span: _ } => {
                let applied = self.configured(callee, entries.as_deref().unwrap_or(&[]), f, b)?;
                f.shared.insert(name.text.clone(), applied);
            }
            Statement::If { condition, then, otherwise, span: _ } => {
                let taken = if self.boolean(condition, f, b)? { then } else { otherwise };
                self.statements(taken, f, b)?;
            }
        }
        Some(())
    }

    fn raw_param(
        &mut self,
        name: &Name,
        dims: &[Expr],
        init: Option<&Expr>,
        span: Span,
        f: &mut Frame,
        b: &mut Building,
    ) -> Option<Out> {
        let mut shape = Vec::new();
        for dim in dims {
            match self.eval(dim, f, b)? {
                Value::Int(n) if n > 0 => shape.push(n),
                other => {
                    let got = other.describe();
                    self.diagnostics.push(diag::wrong_kind(dim.span, "this size", &got, "a positive integer"));
                    return None;
                }
            }
        }
        let fan_in = shape.last().copied().unwrap_or(1);
        let given = init.map(|e| (e.clone(), Rc::new(f.names.clone()), f.file));
        let path = join(&f.path, &name.text);
        let rule = self.init_of(&name.text, &path, fan_in, given, span)?;
        self.check_size(&shape, &path, span)?;
        if b.by_path.contains_key(&path) {
            let before = f.instances.get(&name.text).copied().unwrap_or(span);
            self.diagnostics.push(diag::instance_twice(&name.text, span, before));
            return None;
        }
        self.remember_instance(name, f);
        let param =
            Param { path, shape, init: rule, role: name.text.clone(), slot: f.fill.clone() };
        let id = b.add_param(param, span);
        Some(b.param_node(id, span))
    }
}

enum Callee {
    Applied(Rc<Applied>, Option<Rc<str>>),
    Shared(Rc<Applied>),
    Function,
}
