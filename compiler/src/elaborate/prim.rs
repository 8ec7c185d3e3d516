//! Calls of primitives: configuration to attributes, owned parameters, states.

use std::rc::Rc;

use dsl::{Decimal, Diagnostic, Span};

use super::frame::{Call, InitExpr};
use super::number::exact;
use super::{Building, Elaborator, Field, MAX_ELEMENTS, MAX_WIDTH, join};
use crate::diag;
use crate::graph::{NodeKind, Out, Param, ParamId};
use crate::number::InitRule;
use crate::op::{self, Attr, Attrs, Config, ConfigKind, Default, Primitive, Type};
use crate::tree::{Applied, Setting, Value};

/// The operands and configuration of a primitive in one call.
struct Configured {
    attrs: Attrs,
    /// The operands, with those that are given by name.
    tensors: Vec<Out>,
    /// The parameter of another instance that is used as the weight.
    weight: Option<ParamId>,
    init: Option<InitExpr>,
    /// The path and the span of an init rule that was set from outside.
    init_field: Option<(String, Span)>,
    /// Values from settings and from the call, with their spans.
    given: Vec<(&'static Config, Span)>,
}

/// One configuration value, whether someone wrote it, and where.
struct ConfigValue {
    value: Value,
    written: bool,
    span: Span,
}

impl Elaborator<'_> {
    /// A node without parameters, from an operator or a reshape.
    pub(super) fn primitive_node(
        &mut self,
        name: &str,
        attrs: Attrs,
        inputs: Vec<Out>,
        span: Span,
        b: &mut Building,
    ) -> Option<Value> {
        let primitive = op::find(name)?;
        let types: Vec<Type> = inputs.iter().map(|o| b.body.ty(*o).clone()).collect();
        let shaped = match (primitive.shape)(&attrs, &types) {
            Ok(shaped) => shaped,
            Err(error) => {
                self.diagnostics.push(mismatch(span, error));
                return None;
            }
        };
        let kind = NodeKind::Op { primitive, attrs: shaped.attrs, state: None };
        self.push(b, kind, inputs, shaped.outputs, span).map(Value::Tensors)
    }

    /// Appends a node after checking its results against the bounds.
    pub(super) fn push(
        &mut self,
        b: &mut Building,
        kind: NodeKind,
        inputs: Vec<Out>,
        types: Vec<Type>,
        span: Span,
    ) -> Option<Vec<Out>> {
        for ty in &types {
            let width = ty.dims.iter().try_fold(1i64, |n, d| n.checked_mul(*d));
            let limit = if ty.time { MAX_WIDTH } else { MAX_ELEMENTS };
            if width.is_none_or(|n| n > limit) {
                self.diagnostics.push(diag::too_large(
                    span,
                    "a tensor here",
                    &ty.to_string(),
                    limit,
                ));
                return None;
            }
        }
        self.step(span)?;
        let count = types.len() as u32;
        let node = b.body.push(kind, inputs, types, span);
        Some((0..count).map(|port| Out { node, port }).collect())
    }

    pub(super) fn call_primitive(
        &mut self,
        b: &mut Building,
        primitive: &'static Primitive,
        applied: &Rc<Applied>,
        call: Call,
    ) -> Option<Vec<Out>> {
        let mut configured = self.configure_primitive(b, primitive, applied, &call)?;
        let Configured { attrs, tensors, .. } = &configured;
        let types: Vec<Type> = tensors.iter().map(|o| b.body.ty(*o).clone()).collect();
        let shaped = match (primitive.shape)(attrs, &types) {
            Ok(shaped) => shaped,
            Err(error) => {
                let blamed = blamed(primitive, attrs, &types, &configured.given);
                if blamed.is_empty() {
                    self.diagnostics.push(mismatch(call.span, error));
                }
                for (at, error) in blamed {
                    self.diagnostics.push(mismatch(at, error));
                }
                return None;
            }
        };
        let mut inputs = configured.tensors;
        for (i, owned) in shaped.params.iter().enumerate() {
            let id = match configured.weight.filter(|_| i == 0) {
                Some(id) => self.shared_weight(b, id, owned, &configured.init, call.span)?,
                None => self.owned_param(b, owned, &configured.init, &call)?,
            };
            inputs.push(b.param_node(id, call.span));
            if let Some((path, span)) = configured.init_field.take()
                && let Some(param) = b.body.params.get(id.0 as usize)
            {
                let value = param.init.to_string();
                b.add_field(Field { path, value, written: true, span });
            }
        }
        let state = shaped.state.clone().map(|state| b.add_state(call.path.clone(), state));
        let mut attrs = shaped.attrs;
        if primitive.name == op::DROPOUT {
            attrs.insert(op::DRAWN_AT, Attr::Path(Rc::from(call.draws)));
        }
        let kind = NodeKind::Op { primitive, attrs, state };
        self.push(b, kind, inputs, shaped.outputs, call.span)
    }

    /// Reads the whole configuration, so that every error in it is reported.
    fn configure_primitive(
        &mut self,
        b: &mut Building,
        primitive: &'static Primitive,
        applied: &Applied,
        call: &Call,
    ) -> Option<Configured> {
        let mut configured = Configured {
            attrs: Attrs::new(),
            tensors: call.tensors.clone(),
            weight: None,
            init: call.init.clone(),
            init_field: None,
            given: Vec::new(),
        };
        let widths = std::mem::take(&mut self.widths);
        let mut failed = false;
        for config in primitive.config {
            let setting = applied.config.get(config.name);
            let field = call.field.as_deref().map(|at| join(at, config.name));
            let result = match config.kind {
                ConfigKind::Init => match setting {
                    Some(setting) => self.init_setting(primitive, setting, field, &mut configured),
                    None => Some(()),
                },
                ConfigKind::Tensor => self.tensor_argument(config, setting, call, &mut configured),
                ConfigKind::Ints => {
                    configured.attrs.insert(config.name, Attr::Ints(widths.clone()));
                    Some(())
                }
                _ => match self.config_value(primitive, config, setting, call, &mut configured) {
                    Some(Some(value)) => {
                        self.set_attribute(b, config, value, field, &mut configured)
                    }
                    Some(None) => {
                        if config.kind != ConfigKind::Weight {
                            configured.attrs.insert(config.name, Attr::None);
                        }
                        Some(())
                    }
                    None => None,
                },
            };
            failed |= result.is_none();
        }
        (!failed).then_some(configured)
    }

    /// An init rule set from outside, which a call that passes one does not allow.
    fn init_setting(
        &mut self,
        primitive: &Primitive,
        setting: &Setting,
        field: Option<String>,
        configured: &mut Configured,
    ) -> Option<()> {
        match (setting.value.written(), &configured.init) {
            (_, Some((given, ..))) => {
                let (at, given) = (setting.span, given.span);
                self.diagnostics.push(diag::set_by_caller(at, "init", primitive.name, given));
                None
            }
            (Err(inner), None) => {
                let got = format!("the definition `{}`", inner.name());
                self.diagnostics.push(diag::not_an_init(setting.span, &got));
                None
            }
            (Ok((expr, file, around)), None) => {
                configured.init = Some((expr.clone(), around.clone(), file));
                configured.init_field = field.map(|path| (path, setting.span));
                Some(())
            }
        }
    }

    /// A tensor that the call gives by name.
    fn tensor_argument(
        &mut self,
        config: &Config,
        setting: Option<&Setting>,
        call: &Call,
        configured: &mut Configured,
    ) -> Option<()> {
        match (call.passed.get(config.name), setting) {
            (Some((value, span)), None) => {
                let tensor = self.tensor(value, *span)?;
                configured.tensors.push(tensor);
                configured.attrs.insert(config.name, Attr::Bool(true));
                Some(())
            }
            (_, Some(setting)) => {
                let (got, want) = ("a value from outside", "a tensor of the call");
                self.diagnostics.push(diag::wrong_kind(setting.span, config.name, got, want));
                None
            }
            (None, None) => Some(()),
        }
    }

    /// The value that the call, a setting or the default gives. `None` after an error, `Some(None)` for an absent value.
    fn config_value(
        &mut self,
        primitive: &Primitive,
        config: &'static Config,
        setting: Option<&Setting>,
        call: &Call,
        configured: &mut Configured,
    ) -> Option<Option<ConfigValue>> {
        let (value, written, span) = match (call.passed.get(config.name), setting) {
            (Some((value, span)), None) => {
                configured.given.push((config, *span));
                (value.clone(), true, *span)
            }
            (Some((_, passed)), Some(setting)) => {
                let at = setting.span;
                self.diagnostics.push(diag::set_by_caller(
                    at,
                    config.name,
                    primitive.name,
                    *passed,
                ));
                return None;
            }
            (None, Some(setting)) => match setting.value.written() {
                Err(inner) => (Value::Def(inner.clone(), None), true, setting.span),
                Ok((expr, file, around)) => {
                    configured.given.push((config, expr.span));
                    (self.eval_arch(expr, file, around)?, true, setting.span)
                }
            },
            (None, None) => match self.default(config, primitive, call.span)? {
                Some(value) => (value, false, call.span),
                None => return Some(None),
            },
        };
        Some(Some(ConfigValue { value, written, span }))
    }

    /// Sets the attribute, or the weight that the call shares, and records the field.
    fn set_attribute(
        &mut self,
        b: &mut Building,
        config: &Config,
        ConfigValue { value, written, span }: ConfigValue,
        field: Option<String>,
        configured: &mut Configured,
    ) -> Option<()> {
        if config.kind == ConfigKind::Weight {
            let Value::Instance(id) = value else {
                self.wrong(config, &value, span);
                return None;
            };
            configured.weight = Some(id);
            return Some(());
        }
        let Some(attr) = attribute(config.kind, &value) else {
            let at = configured.given.iter().find(|(known, _)| known.name == config.name);
            self.wrong(config, &value, at.map_or(span, |(_, at)| *at));
            return None;
        };
        if let Some(path) = field {
            b.add_field(Field { path, value: attr.to_string(), written, span });
        }
        configured.attrs.insert(config.name, attr);
        Some(())
    }

    fn wrong(&mut self, config: &Config, got: &Value, span: Span) {
        if let Value::Ratio(r, at) = got {
            self.diagnostics.push(diag::inexact_division(
                *at,
                &r.num.to_string(),
                &r.den.to_string(),
            ));
            return;
        }
        let want = match config.kind {
            ConfigKind::Int => "an integer".to_owned(),
            ConfigKind::OptionalInt => "an integer or `none`".to_owned(),
            ConfigKind::Decimal | ConfigKind::Number => "a number".to_owned(),
            ConfigKind::OptionalDecimal | ConfigKind::OptionalNumber => {
                "a number or `none`".to_owned()
            }
            ConfigKind::Tensor => "a tensor".to_owned(),
            ConfigKind::Bool => "true or false".to_owned(),
            ConfigKind::Word(words) => format!("one of {}", words.join(", ")),
            ConfigKind::Ints => "integers".to_owned(),
            ConfigKind::Weight => "the name of an instance that owns a parameter".to_owned(),
            ConfigKind::Init => "an init rule".to_owned(),
        };
        self.diagnostics.push(diag::wrong_kind(span, config.name, &got.describe(), &want));
    }

    /// `None` after an error, `Some(None)` for an absent value.
    fn default(
        &mut self,
        config: &Config,
        primitive: &Primitive,
        span: Span,
    ) -> Option<Option<Value>> {
        Some(match config.default {
            Default::Int(n) => Some(Value::Int(n)),
            Default::Decimal(mantissa, exponent) => {
                Decimal::new(i128::from(mantissa), exponent).ok().map(Value::Decimal)
            }
            Default::Bool(v) => Some(Value::Bool(v)),
            Default::Word(w) => Some(Value::Word(w)),
            Default::Absent => None,
            Default::ArchField(field) => match self.arch_field(field) {
                Some(value) => Some(value),
                None => {
                    if !self.tree.fields.contains_key(field) {
                        self.diagnostics.push(diag::missing_arch_field(self.tree.span, field));
                    }
                    return None;
                }
            },
            Default::Required => {
                let example = primitive.example();
                let (callee, name) = (primitive.name, config.name);
                self.diagnostics.push(diag::missing_operand(span, callee, name, example));
                return None;
            }
        })
    }

    /// Another instance's weight, initialised by its owner's rule.
    fn shared_weight(
        &mut self,
        b: &Building,
        id: ParamId,
        owned: &op::Owned,
        init: &Option<InitExpr>,
        span: Span,
    ) -> Option<ParamId> {
        let rule = match init {
            Some(_) => {
                Some(self.init_of(owned.role, "", owned.fan_in, init.clone(), span, None)?)
            }
            None => None,
        };
        self.same_param(b, id, &owned.shape, rule.as_ref(), span)
    }

    /// The existing parameter, if it has the shape and rule given here.
    pub(super) fn same_param(
        &mut self,
        b: &Building,
        id: ParamId,
        shape: &[i64],
        rule: Option<&InitRule>,
        span: Span,
    ) -> Option<ParamId> {
        let param = b.body.params.get(id.0 as usize)?;
        if param.shape != shape {
            let (got, want) = (dims(shape), dims(&param.shape));
            self.diagnostics.push(diag::shared_differs(&param.path, span, &got, &want));
            return None;
        }
        if let Some(rule) = rule
            && *rule != param.init
        {
            let (got, want) = (rule.to_string(), param.init.to_string());
            self.diagnostics.push(diag::shared_start(&param.path, span, &got, &want));
            return None;
        }
        Some(id)
    }

    fn owned_param(
        &mut self,
        b: &mut Building,
        owned: &op::Owned,
        init: &Option<InitExpr>,
        call: &Call,
    ) -> Option<ParamId> {
        let path = join(&call.path, owned.suffix);
        // A call's own rule applies to its weight; a bias uses the table.
        let given = init.clone().filter(|_| owned.suffix.is_empty());
        if let Some(id) = b.by_path.get(&path).copied() {
            if !call.again {
                let before = b.param_spans.get(id.0 as usize).copied().unwrap_or(call.span);
                self.diagnostics.push(diag::instance_twice(&path, call.span, before));
                return None;
            }
            let rule = match given {
                Some(_) => {
                    Some(self.init_of(owned.role, &path, owned.fan_in, given, call.span, None)?)
                }
                None => None,
            };
            return self.same_param(b, id, &owned.shape, rule.as_ref(), call.span);
        }
        self.check_size(&owned.shape, &path, call.span)?;
        let rule = self.init_of(owned.role, &path, owned.fan_in, given, call.span, None)?;
        let param = Param {
            path,
            shape: owned.shape.clone(),
            init: rule,
            role: owned.role.to_owned(),
            slot: call.fill.clone(),
        };
        self.observe_param(call.span, &param.path);
        Some(b.add_param(param, call.span))
    }

    pub(super) fn check_size(&mut self, shape: &[i64], path: &str, span: Span) -> Option<()> {
        let elements = shape.iter().try_fold(1i64, |n, d| n.checked_mul(*d));
        if elements.is_none_or(|n| n > MAX_ELEMENTS) {
            let what = format!("parameter `{path}`");
            self.diagnostics.push(diag::too_large(span, &what, &dims(shape), MAX_ELEMENTS));
            return None;
        }
        Some(())
    }

    /// A parameter's init rule: its call's, or the arch's for its role.
    pub(super) fn init_of(
        &mut self,
        role: &str,
        path: &str,
        fan_in: i64,
        given: Option<InitExpr>,
        span: Span,
        shape: Option<&str>,
    ) -> Option<InitRule> {
        if given.is_none() && self.reads.is_some() {
            self.has_read(&format!("init.{role}"));
        }
        let (expr, around, file) = match given {
            Some(given) => given,
            None => match self.tree.init.get(role).map(|s| s.value.written()) {
                Some(Ok((expr, file, around))) => (expr.clone(), around.clone(), file),
                Some(Err(applied)) => {
                    let got = format!("the definition `{}`", applied.name());
                    self.diagnostics.push(diag::not_an_init(applied.span, &got));
                    return None;
                }
                None => {
                    self.diagnostics.push(diag::no_init(role, path, span, shape));
                    return None;
                }
            },
        };
        let mut frame = self.arch_frame(file, &around);
        let outer = self.fan_in.replace(fan_in);
        let value = self.eval(&expr, &mut frame, &mut Building::default());
        self.fan_in = outer;
        match value? {
            Value::Init(rule) => Some(rule),
            other => {
                let got = other.describe();
                self.diagnostics.push(diag::not_an_init(expr.span, &got));
                None
            }
        }
    }
}

fn attribute(kind: ConfigKind, value: &Value) -> Option<Attr> {
    match (kind, value) {
        (ConfigKind::Int | ConfigKind::OptionalInt, Value::Int(n)) => Some(Attr::Int(*n)),
        (
            ConfigKind::OptionalInt | ConfigKind::OptionalDecimal | ConfigKind::OptionalNumber,
            Value::Word("none"),
        ) => Some(Attr::None),
        (ConfigKind::Decimal | ConfigKind::OptionalDecimal, number) => {
            number.as_decimal().map(Attr::Decimal)
        }
        (ConfigKind::Number | ConfigKind::OptionalNumber, number) => exact(number),
        (ConfigKind::Bool, Value::Bool(v)) => Some(Attr::Bool(*v)),
        (ConfigKind::Word(words), Value::Word(w)) => words.contains(w).then_some(Attr::Word(w)),
        _ => None,
    }
}

fn dims(shape: &[i64]) -> String {
    let parts: Vec<String> = shape.iter().map(i64::to_string).collect();
    format!("[{}]", parts.join(", "))
}

fn mismatch(span: Span, error: op::Mismatch) -> Diagnostic {
    let op::Mismatch { message, help, about } = error;
    diag::mismatch(span, message, help, about)
}

/// The settings that break a call: without one of them the call would be valid. Each comes with its
/// error; empty if the call fails with the defaults too.
fn blamed(
    primitive: &Primitive,
    attrs: &Attrs,
    types: &[Type],
    given: &[(&'static Config, Span)],
) -> Vec<(Span, op::Mismatch)> {
    let mut plain = attrs.clone();
    for (config, _) in given {
        let default = match config.default {
            Default::Int(n) => Attr::Int(n),
            Default::Decimal(mantissa, exponent) => {
                match Decimal::new(i128::from(mantissa), exponent) {
                    Ok(decimal) => Attr::Decimal(decimal),
                    Err(_) => continue,
                }
            }
            Default::Bool(truth) => Attr::Bool(truth),
            Default::Word(word) => Attr::Word(word),
            Default::Absent => Attr::None,
            Default::ArchField(_) | Default::Required => continue,
        };
        plain.insert(config.name, default);
    }
    if (primitive.shape)(&plain, types).is_err() {
        return Vec::new();
    }
    let mut blamed = Vec::new();
    for (config, at) in given {
        let (Some(attr), Some(default)) =
            (attrs.get(config.name).cloned(), plain.get(config.name).cloned())
        else {
            continue;
        };
        plain.insert(config.name, attr);
        if let Err(error) = (primitive.shape)(&plain, types) {
            blamed.push((*at, error));
            plain.insert(config.name, default);
        }
    }
    blamed
}
