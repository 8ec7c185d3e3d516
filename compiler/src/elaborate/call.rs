//! Calls of definitions: arguments, configuration, bodies. A value that a caller passes cannot be set from outside.

use std::collections::BTreeMap;
use std::rc::Rc;

use dsl::{Arg, BinaryOp, ConfigParam, Diagnostic, Expr, ExprKind, Name, Span};

use super::frame::{Call, Callee, Frame, InitExpr};
use super::number::{as_root, out_of_range};
use super::sites::sites;
use super::{Building, Elaborator, Field, MAX_DEPTH, join};
use crate::diag;
use crate::graph::Out;
use crate::names::{FUNCTIONS, mentions};
use crate::number::InitRule;
use crate::op::Arity;
use crate::tree::Value;
use crate::tree::{Applied, Callable, DefItem};

/// The arguments of a call, by kind.
struct Arguments {
    tensors: Vec<Out>,
    passed: BTreeMap<String, (Value, Span)>,
    init: Option<InitExpr>,
}

/// The arguments of a call read so far, and what its callee takes.
struct ArgumentList<'a> {
    callee: &'a Callable,
    arity: Arity,
    names: Vec<&'a str>,
    /// The configuration names that later arguments without a name set.
    by_position: std::vec::IntoIter<&'a str>,
    /// Whether integers after the tensors are widths of results.
    variadic: bool,
    tensors: Vec<Out>,
    passed: BTreeMap<String, (Value, Span)>,
    init: Option<InitExpr>,
    widths: Vec<i64>,
    failed: bool,
}

impl<'a> ArgumentList<'a> {
    fn new(callee: &'a Callable) -> ArgumentList<'a> {
        ArgumentList {
            callee,
            arity: match callee {
                Callable::Primitive(p) => p.tensors,
                Callable::Def(item) => Arity::Exactly(item.def.tensors.len()),
            },
            names: callee.config_names(),
            by_position: callee.positional().into_iter(),
            variadic: matches!(callee, Callable::Primitive(p) if p.name == "split"),
            tensors: Vec::new(),
            passed: BTreeMap::new(),
            init: None,
            widths: Vec::new(),
            failed: false,
        }
    }

    /// Whether an argument without a name must be a tensor.
    fn wants_tensor(&self) -> bool {
        match self.arity {
            Arity::Exactly(n) | Arity::AtLeast(n) => self.tensors.len() < n,
            Arity::UpTo(n) => self.tensors.len() + 1 < n,
        }
    }
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
            Callee::Shared(applied, field) => (applied, field, true),
            Callee::Function => return self.function_call(callee, args, span, f, b),
        };
        let Arguments { tensors, passed, init } =
            self.arguments(&applied.callee, span, args, f, b)?;
        if let Some(instance) = instance {
            if shared {
                self.diagnostics.push(diag::shared_named(instance, &callee.text));
                return None;
            }
            f.name_instance(&instance.text);
        }
        let name = instance.unwrap_or(callee);
        let path = join(&f.path, &name.text);
        let taken = f.instances.get(&name.text).copied();
        // A second call with the same name is valid if it owns no parameters: try it at a separate path.
        let second = taken.filter(|_| !shared);
        let call = Call {
            span,
            tensors,
            passed,
            init,
            draws: f.draws_of(name, callee.span),
            path: if second.is_some() { format!("{path}#") } else { path.clone() },
            field,
            slots: f.slots.clone(),
            fill: f.fill.clone(),
            again: shared || f.again,
        };
        let before = b.body.params.len();
        let outs = self.call_applied(b, &applied, call)?;
        let clash = match (second, taken) {
            (Some((first, _)), _) if b.body.params.len() > before => Some(first),
            (None, Some((first, false))) if b.owns(&path) => Some(first),
            (None, None) if b.owns(&path) => {
                self.remember_instance(name, shared, f);
                None
            }
            _ => None,
        };
        if let Some(first) = clash {
            self.diagnostics.push(diag::instance_twice(&name.text, span, first));
            return None;
        }
        Some(Value::Tensors(outs))
    }

    fn function_call(
        &mut self,
        callee: &Name,
        args: &[Arg],
        span: Span,
        f: &mut Frame,
        b: &mut Building,
    ) -> Option<Value> {
        let mut values = Vec::new();
        for arg in args {
            if let Some(name) = &arg.name {
                // Taking it by position could silently swap numbers.
                self.diagnostics.push(diag::unknown_argument(name, &callee.text, &[]));
                return None;
            }
            values.push(self.eval(&arg.value, f, b)?);
        }
        if FUNCTIONS.contains(&callee.text.as_str()) {
            self.function(callee, &values, span)
        } else {
            self.init_rule(callee, &values, span)
        }
    }

    fn init_rule(&mut self, callee: &Name, args: &[Value], span: Span) -> Option<Value> {
        let mut roots = Vec::new();
        for arg in args {
            match as_root(arg) {
                Some(root) => roots.push(root),
                None if out_of_range(arg) => return self.too_wide(&arg.text(), span),
                None => {
                    let got = arg.describe();
                    self.diagnostics.push(diag::wrong_kind(
                        span,
                        &callee.text,
                        &got,
                        "given numbers",
                    ));
                    return None;
                }
            }
        }
        match InitRule::build(&callee.text, &roots)? {
            Ok(rule) => {
                if let Some(problem) = rule.problem() {
                    self.diagnostics.push(diag::bad_init(span, &rule.to_string(), problem));
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

    fn arguments(
        &mut self,
        callee: &Callable,
        span: Span,
        args: &[Arg],
        f: &mut Frame,
        b: &mut Building,
    ) -> Option<Arguments> {
        let mut list = ArgumentList::new(callee);
        for arg in args {
            if let Some(name) = &arg.name
                && name.text == "init"
                && matches!(callee, Callable::Primitive(_))
                && list.names.contains(&"init")
            {
                if list.init.is_some() {
                    self.diagnostics.push(diag::argument_twice("init", arg.value.span));
                    list.failed = true;
                }
                list.init = Some((arg.value.clone(), f.around(mentions(&arg.value)), f.file));
                continue;
            }
            match (&arg.name, self.eval(&arg.value, f, b)) {
                (_, None) => list.failed = true,
                (Some(name), Some(value)) => {
                    self.argument_by_name(name, value, arg.value.span, &mut list);
                }
                (None, Some(value)) => {
                    self.argument_by_position(value, arg.value.span, &mut list)?;
                }
            }
        }
        if list.failed {
            return None;
        }
        let tensors = list.tensors.len();
        let (fits, want) = match list.arity {
            Arity::Exactly(1) => (tensors == 1, "1 tensor".to_owned()),
            Arity::Exactly(n) => (tensors == n, format!("{n} tensors")),
            Arity::UpTo(n) => {
                let fits = tensors == n || tensors + 1 == n;
                (fits, format!("{} or {n} tensors", n - 1))
            }
            Arity::AtLeast(n) => (tensors >= n, format!("at least {n} tensors")),
        };
        if !fits {
            self.diagnostics.push(diag::tensor_count(span, callee.name(), tensors, &want));
            return None;
        }
        if list.variadic {
            self.widths = list.widths;
        }
        Some(Arguments { tensors: list.tensors, passed: list.passed, init: list.init })
    }

    fn argument_by_name(&mut self, name: &Name, value: Value, span: Span, list: &mut ArgumentList) {
        let callee = list.callee;
        let is_tensor = matches!(value, Value::Tensors(_));
        let error = if is_tensor && !callee.takes_tensor(&name.text) {
            diag::tensor_as_config(span, &name.text)
        } else if !is_tensor && !list.names.contains(&name.text.as_str()) {
            diag::unknown_argument(name, callee.name(), &list.names)
        } else if list.passed.insert(name.text.clone(), (value, span)).is_some() {
            diag::argument_twice(&name.text, span)
        } else {
            return;
        };
        self.diagnostics.push(error);
        list.failed = true;
    }

    /// `None` after an error that leaves the meaning of the later arguments open.
    fn argument_by_position(
        &mut self,
        value: Value,
        span: Span,
        list: &mut ArgumentList,
    ) -> Option<()> {
        let is_width = list.variadic && !list.tensors.is_empty();
        match value {
            Value::Tensors(outs) => list.tensors.extend(outs),
            Value::Int(n) if is_width => list.widths.push(n),
            value if is_width => {
                let got = value.describe();
                self.diagnostics.push(diag::wrong_kind(span, "this width", &got, "an integer"));
                list.failed = true;
            }
            value => {
                if list.wants_tensor() {
                    // The missing tensor may be one that failed.
                    if !list.failed {
                        let got = value.describe();
                        self.diagnostics.push(diag::not_a_tensor(span, &got));
                    }
                    return None;
                }
                match list.by_position.next() {
                    Some(name) => {
                        list.passed.insert(name.to_owned(), (value, span));
                    }
                    None => {
                        let name = list.callee.name();
                        self.diagnostics.push(diag::too_many_arguments(span, name, &list.names));
                        list.failed = true;
                    }
                }
            }
        }
        Some(())
    }

    pub(super) fn call_applied(
        &mut self,
        b: &mut Building,
        applied: &Rc<Applied>,
        call: Call,
    ) -> Option<Vec<Out>> {
        if !Rc::ptr_eq(applied, &call.slots.holder)
            && let Some((name, setting)) = applied.slots.iter().next()
        {
            self.diagnostics.push(diag::slot_below(setting.span, name, applied.name()));
            return None;
        }
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
        self.step(call.span)?;
        let (got, want) = (call.tensors.len(), item.def.tensors.len());
        if got != want {
            let want = if want == 1 { "1 tensor".to_owned() } else { format!("{want} tensors") };
            self.diagnostics.push(diag::tensor_count(call.span, applied.name(), got, &want));
            return None;
        }
        self.stack.push(item.def.name.text.clone());
        let result = if self.stack.len() > MAX_DEPTH {
            self.diagnostics.push(diag::too_deep(call.span, MAX_DEPTH, &self.stack));
            None
        } else {
            let before = self.diagnostics.len();
            let result = self.call_body(b, item, applied, call);
            self.point_at_settings(before, item, applied);
            result
        };
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
        let mut frame = Frame::new(item.file, call.path.clone(), call.slots.clone());
        frame.draws.clone_from(&call.draws);
        frame.sites = sites(&def.body);
        frame.fill.clone_from(&call.fill);
        frame.again = call.again;
        let configured = self.configuration(b, item, applied, &call, &mut frame);
        for (name, out) in def.tensors.iter().zip(&call.tensors) {
            self.observe(name.span, &Value::Tensors(vec![*out]), b);
            frame.bind(&name.text, Value::Tensors(vec![*out]));
        }
        let mut good = configured.and(self.statements(&def.body.statements, &mut frame, b));
        good = self.pass_on(&frame, b).and(good);
        let mut outs = Vec::new();
        for expr in &def.body.result {
            match self.eval(expr, &mut frame, b) {
                Some(Value::Tensors(more)) => outs.extend(more),
                Some(other) => {
                    let got = other.describe();
                    self.diagnostics.push(diag::not_a_tensor(expr.span, &got));
                    good = None;
                }
                None => good = None,
            }
        }
        good.map(|()| outs)
    }

    /// Binds each configuration name to the value from the call, the value set from outside, or its
    /// default.
    fn configuration(
        &mut self,
        b: &mut Building,
        item: &Rc<DefItem>,
        applied: &Rc<Applied>,
        call: &Call,
        frame: &mut Frame,
    ) -> Option<()> {
        let mut good = Some(());
        for param in &item.def.config {
            if self.configure(b, param, applied, call, frame).is_none() {
                good = None;
                frame.break_off(&param.name.text);
            }
        }
        good
    }

    fn configure(
        &mut self,
        b: &mut Building,
        param: &ConfigParam,
        applied: &Applied,
        call: &Call,
        frame: &mut Frame,
    ) -> Option<()> {
        let name = &param.name.text;
        let setting = applied.config.get(name);
        // Passed by a definition, so not a field of the arch.
        if let (Some((value, at)), None) = (call.passed.get(name), setting) {
            self.observe_setting(&param.name, value, (true, *at), None, b);
            frame.bind(name, value.clone());
            return Some(());
        }
        let (value, written, span) = self.set_or_default(b, param, applied, call, frame)?;
        let text = match &value {
            // A parameter is identified by its path, whatever its number.
            Value::Instance(id) => {
                b.body.params.get(id.0 as usize).map_or(String::new(), |p| p.path.clone())
            }
            value => value.text(),
        };
        let field: Option<Rc<str>> = call.field.as_deref().map(|at| Rc::from(join(at, name)));
        let value = match value {
            Value::Ratio(r, at) => {
                let blamed = match &param.default {
                    Some(default) if !written => {
                        self.inexact_default(b, name, default, applied, frame)
                    }
                    Some(_) | None => None,
                };
                let plain = || diag::inexact_division(at, &r.num.to_string(), &r.den.to_string());
                self.diagnostics.push(blamed.unwrap_or_else(plain));
                return None;
            }
            Value::Tensors(_) => {
                self.diagnostics.push(diag::tensor_as_config(span, name));
                return None;
            }
            Value::Def(inner, _) => Value::Def(inner, field.clone()),
            other => other,
        };
        self.observe_setting(&param.name, &value, (written, span), field.as_deref(), b);
        if let Some(path) = field {
            b.add_field(Field { path: path.to_string(), value: text, written, span });
        }
        frame.bind(name, value);
        Some(())
    }

    /// The value that is set from outside or by default, whether it is set, and its span.
    fn set_or_default(
        &mut self,
        b: &mut Building,
        param: &ConfigParam,
        applied: &Applied,
        call: &Call,
        frame: &mut Frame,
    ) -> Option<(Value, bool, Span)> {
        let name = &param.name.text;
        match (applied.config.get(name), call.passed.get(name), &param.default) {
            (Some(setting), Some((_, passed)), _) => {
                let (at, callee) = (setting.span, applied.name());
                self.diagnostics.push(diag::set_by_caller(at, name, callee, *passed));
                None
            }
            (Some(setting), None, _) => match setting.value.written() {
                Err(inner) => Some((Value::Def(inner.clone(), None), true, setting.span)),
                Ok((expr, file, around)) => {
                    Some((self.eval_arch(expr, file, around)?, true, setting.span))
                }
            },
            (None, _, Some(default)) => Some((self.eval(default, frame, b)?, false, default.span)),
            (None, _, None) => {
                self.diagnostics.push(diag::missing_config(call.span, applied.name(), name));
                None
            }
        }
    }

    /// A default `a / b` that is not exact because of a setting. The error points at the setting, not at the
    /// definition.
    fn inexact_default(
        &mut self,
        b: &mut Building,
        name: &str,
        default: &Expr,
        applied: &Applied,
        frame: &mut Frame,
    ) -> Option<Diagnostic> {
        let ExprKind::Binary(BinaryOp::Div, over, under) = &default.kind else { return None };
        let mentioned = mentions(default);
        let (set, setting) = applied.config.iter().find(|(set, _)| mentioned.contains(*set))?;
        let over_value = self.eval(over, frame, b)?;
        let under_value = self.eval(under, frame, b)?;
        let (Value::Int(a), Value::Int(n)) = (over_value, under_value) else { return None };
        let rule = dsl::print_expr(default);
        let divides = matches!(&under.kind, ExprKind::Name(under) if under == set);
        let what = dsl::print_expr(over);
        let divisors: Vec<String> = match divides {
            true => {
                let below = (1..n).rev().find(|d| a % d == 0);
                let above = (n + 1..=a.min(n.saturating_mul(64))).find(|d| a % d == 0);
                below.into_iter().chain(above).map(|d| d.to_string()).collect()
            }
            false => Vec::new(),
        };
        let help = match divisors.is_empty() {
            true => format!("set `{name}` as well, or `{set}` so that `{rule}` is exact"),
            false => format!(
                "set `{set}` to a number that divides `{what}`, such as {}; or set `{name}` as well",
                divisors.join(" or ")
            ),
        };
        let spans = (setting.value_span(), default.span);
        let names = mentioned.iter().map(String::as_str).chain([name]);
        Some(diag::inexact_default(spans, name, &rule, (a, n), &help).about(names))
    }
}
