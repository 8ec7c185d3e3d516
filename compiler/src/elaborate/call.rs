//! Calls of definitions: arguments, configuration, bodies. A value that a caller passes cannot be set from outside.

use std::collections::BTreeMap;
use std::rc::Rc;

use dsl::{Arg, BinaryOp, Diagnostic, Expr, ExprKind, Name, Span};

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

    fn arguments(
        &mut self,
        callee: &Callable,
        span: Span,
        args: &[Arg],
        f: &mut Frame,
        b: &mut Building,
    ) -> Option<Arguments> {
        let arity = match callee {
            Callable::Primitive(p) => p.tensors,
            Callable::Def(item) => Arity::Exactly(item.def.tensors.len()),
        };
        let names: Vec<&str> = callee.config_names();
        let by_position: Vec<&str> = callee.positional();
        let variadic = matches!(callee, Callable::Primitive(p) if p.name == "split");
        let mut tensors = Vec::new();
        let mut passed: BTreeMap<String, (Value, Span)> = BTreeMap::new();
        let mut init = None;
        let mut position = 0usize;
        let mut widths = Vec::new();
        let mut failed = false;
        for arg in args {
            if let Some(name) = &arg.name
                && name.text == "init"
                && matches!(callee, Callable::Primitive(_))
                && names.contains(&"init")
            {
                if init.is_some() {
                    self.diagnostics.push(diag::argument_twice("init", arg.value.span));
                    failed = true;
                }
                init = Some((arg.value.clone(), f.around(mentions(&arg.value)), f.file));
                continue;
            }
            let Some(value) = self.eval(&arg.value, f, b) else {
                failed = true;
                continue;
            };
            let place = arg.value.span;
            match (&arg.name, value) {
                (None, Value::Tensors(outs)) => tensors.extend(outs),
                (Some(name), value @ Value::Tensors(_)) if callee.takes_tensor(&name.text) => {
                    if passed.insert(name.text.clone(), (value, place)).is_some() {
                        self.diagnostics.push(diag::argument_twice(&name.text, place));
                        failed = true;
                    }
                }
                (Some(name), Value::Tensors(_)) => {
                    self.diagnostics.push(diag::tensor_as_config(place, &name.text));
                    failed = true;
                }
                (None, Value::Int(n)) if variadic && !tensors.is_empty() => widths.push(n),
                (None, value) if variadic && !tensors.is_empty() => {
                    let got = value.describe();
                    self.diagnostics.push(diag::wrong_kind(
                        place,
                        "this width",
                        &got,
                        "an integer",
                    ));
                    failed = true;
                }
                (None, value) => {
                    let wants_more = match arity {
                        Arity::Exactly(n) | Arity::AtLeast(n) => tensors.len() < n,
                        Arity::UpTo(n) => tensors.len() + 1 < n,
                    };
                    if wants_more {
                        // The missing tensor may be one that failed.
                        if !failed {
                            let got = value.describe();
                            self.diagnostics.push(diag::not_a_tensor(place, &got));
                        }
                        return None;
                    }
                    match by_position.get(position) {
                        Some(name) => {
                            passed.insert((*name).to_owned(), (value, place));
                            position += 1;
                        }
                        None => {
                            self.diagnostics.push(diag::too_many_arguments(
                                place,
                                callee.name(),
                                &names,
                            ));
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
            Arity::UpTo(n) => {
                let fits = tensors.len() == n || tensors.len() + 1 == n;
                (fits, format!("{} or {n} tensors", n - 1))
            }
            Arity::AtLeast(n) => (tensors.len() >= n, format!("at least {n} tensors")),
        };
        if !fits {
            self.diagnostics.push(diag::tensor_count(span, callee.name(), tensors.len(), &want));
            return None;
        }
        if variadic {
            self.widths = widths;
        }
        Some(Arguments { tensors, passed, init })
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
        let mut failed = false;
        for param in &item.def.config {
            let name = &param.name.text;
            let field: Option<Rc<str>> = call.field.as_deref().map(|at| Rc::from(join(at, name)));
            let setting = applied.config.get(name);
            let (value, written, span) = match (call.passed.get(name), setting) {
                // Passed by a definition, so not a field of the arch.
                (Some((value, at)), None) => {
                    self.observe_setting(&param.name, value, (true, *at), None, b);
                    frame.bind(name, value.clone());
                    continue;
                }
                (Some((_, given)), Some(setting)) => {
                    self.diagnostics.push(diag::set_by_caller(
                        setting.span,
                        name,
                        applied.name(),
                        *given,
                    ));
                    failed = true;
                    frame.break_off(name);
                    continue;
                }
                (None, Some(setting)) => match setting.value.written() {
                    Err(inner) => (Some(Value::Def(inner.clone(), None)), true, setting.span),
                    Ok((expr, file, around)) => {
                        (self.eval_arch(expr, file, around), true, setting.span)
                    }
                },
                (None, None) => match &param.default {
                    Some(default) => (self.eval(default, frame, b), false, default.span),
                    None => {
                        self.diagnostics.push(diag::missing_config(
                            call.span,
                            applied.name(),
                            name,
                        ));
                        failed = true;
                        frame.break_off(name);
                        continue;
                    }
                },
            };
            let text = match &value {
                // A parameter is identified by its path, whatever its number.
                Some(Value::Instance(id)) => {
                    b.body.params.get(id.0 as usize).map_or(String::new(), |p| p.path.clone())
                }
                Some(value) => value.text(),
                None => String::new(),
            };
            let value = match value {
                Some(Value::Ratio(r, at)) => {
                    let found = match &param.default {
                        Some(default) if !written => {
                            self.inexact_default(b, name, default, applied, frame)
                        }
                        Some(_) | None => None,
                    };
                    let plain =
                        || diag::inexact_division(at, &r.num.to_string(), &r.den.to_string());
                    self.diagnostics.push(found.unwrap_or_else(plain));
                    None
                }
                Some(Value::Tensors(_)) => {
                    self.diagnostics.push(diag::tensor_as_config(span, name));
                    None
                }
                Some(Value::Def(inner, _)) => Some(Value::Def(inner, field.clone())),
                other => other,
            };
            let Some(value) = value else {
                failed = true;
                frame.break_off(name);
                continue;
            };
            self.observe_setting(&param.name, &value, (written, span), field.as_deref(), b);
            if let Some(path) = field {
                b.add_field(Field { path: path.to_string(), value: text, written, span });
            }
            frame.bind(name, value);
        }
        (!failed).then_some(())
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
        let near: Vec<String> = match divides {
            true => {
                let below = (1..n).rev().find(|d| a % d == 0);
                let above = (n + 1..=a.min(n.saturating_mul(64))).find(|d| a % d == 0);
                below.into_iter().chain(above).map(|d| d.to_string()).collect()
            }
            false => Vec::new(),
        };
        let help = match near.is_empty() {
            true => format!("set `{name}` as well, or `{set}` so that `{rule}` is exact"),
            false => format!(
                "set `{set}` to a number that divides `{what}`, such as {}; or set `{name}` as well",
                near.join(" or ")
            ),
        };
        let place = (setting.place(), default.span);
        let names = mentioned.iter().map(String::as_str).chain([name]);
        Some(diag::inexact_default(place, name, &rule, (a, n), &help).about(names))
    }
}
