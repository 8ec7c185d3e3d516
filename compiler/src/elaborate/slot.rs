//! Slots: the identity, or a fill over the concatenated channels of the operands.
//!
//! An empty slot leaves nothing in the graph, except in the open form, where every slot is a node that lists the path
//! of its fill's parameters and what its fill reads of the arch.

use std::collections::BTreeSet;
use std::rc::Rc;

use dsl::{Expr, Name, Span};

use super::frame::Call;
use super::frame::Frame;
use super::{Building, Elaborator, Field, join};
use crate::diag;
use crate::graph::{Body, NodeKind, Out, Param, ParamId};
use crate::op::Type;
use crate::tree::{Applied, Value};

/// The fill of a slot as a body of its own.
struct FillBody {
    body: Body,
    fields: Vec<Field>,
    /// What it read of the arch.
    reads: BTreeSet<String>,
}

impl Elaborator<'_> {
    pub(super) fn slot(
        &mut self,
        name: &Name,
        args: &[Expr],
        span: Span,
        f: &mut Frame,
        b: &mut Building,
    ) -> Option<Value> {
        let (operands, types) = self.slot_operands(args, f, b)?;
        if f.fill.is_some() {
            self.diagnostics.push(diag::slot_outside(span, &name.text));
            return None;
        }
        let width = self.slot_width(name, &types, span)?;
        self.check_case(name, f);
        let slots = f.slots.clone();
        let field = join(&slots.field, &name.text);
        slots.declared.borrow_mut().insert(name.text.clone());
        self.observe_slot(name, &field);
        let setting = slots.holder.slots.get(&name.text);
        let at = setting.map_or(span, |s| s.span);
        let Some(fill) = setting.and_then(|s| s.fill.clone()) else {
            let value = "empty".to_owned();
            b.add_field(Field { path: field, value, written: setting.is_some(), span: at });
            return Some(Value::Tensors(match self.open {
                true => empty_slot(name, operands, types, span, f, b),
                false => operands,
            }));
        };
        let call = Call {
            span: at,
            tensors: Vec::new(),
            passed: Default::default(),
            init: None,
            path: String::new(),
            draws: f.draws_of(name, name.span),
            field: Some(Rc::from(field.as_str())),
            slots: slots.clone(),
            fill: Some(name.text.clone()),
            again: false,
        };
        let FillBody { body, fields, reads } = self.fill_body(name, &fill, width, span, call)?;
        b.add_field(Field { path: field, value: fill.name().to_owned(), written: true, span: at });
        fields.into_iter().for_each(|field| b.add_field(field));
        let instance = join(&f.path, &name.text);
        let params = self.fill_params(name, &body, &instance, (span, at), f, b)?;
        if !params.is_empty() {
            self.remember_instance(name, false, f);
        }
        let mut states = Vec::new();
        for (path, state) in &body.states {
            states.push(b.add_state(join(&instance, path), state.clone()));
        }
        let label = match self.open {
            true => open_label(name, &instance, reads),
            false => name.text.clone(),
        };
        let kind = NodeKind::Slot { name: label, fill: Rc::new(body), params, states };
        self.push(b, kind, operands, types, span).map(Value::Tensors)
    }

    fn slot_operands(
        &mut self,
        args: &[Expr],
        f: &mut Frame,
        b: &mut Building,
    ) -> Option<(Vec<Out>, Vec<Type>)> {
        let mut operands: Vec<Out> = Vec::new();
        for arg in args {
            match self.eval(arg, f, b)? {
                Value::Tensors(outs) => operands.extend(outs),
                other => {
                    let got = other.describe();
                    self.diagnostics.push(diag::not_a_tensor(arg.span, &got));
                    return None;
                }
            }
        }
        let types = operands.iter().map(|o| b.body.ty(*o).clone()).collect();
        Some((operands, types))
    }

    /// The channels of all operands together.
    fn slot_width(&mut self, name: &Name, types: &[Type], span: Span) -> Option<i64> {
        let mut width = 0i64;
        for ty in types {
            match (ty.time && !ty.tokens, ty.dims.as_slice()) {
                (true, [c]) => width = width.saturating_add(*c),
                _ => {
                    self.diagnostics.push(diag::slot_shape(span, &name.text, &ty.to_string()));
                    return None;
                }
            }
        }
        Some(width)
    }

    /// Calls the fill in a body of its own, over an input of this width.
    fn fill_body(
        &mut self,
        name: &Name,
        fill: &Rc<Applied>,
        width: i64,
        span: Span,
        call: Call,
    ) -> Option<FillBody> {
        let mut inner = Building::default();
        let ty = Type::seq([width]);
        inner.body.inputs.push(ty.clone());
        let tensors = self.push(&mut inner, NodeKind::Input(0), vec![], vec![ty.clone()], span)?;
        let at = call.span;
        let outer = self.reads.replace(Default::default());
        let outs = self.call_applied(&mut inner, fill, Call { tensors, ..call });
        let reads = std::mem::replace(&mut self.reads, outer).unwrap_or_default();
        let outs = outs?;
        match outs.as_slice() {
            [out] if *inner.body.ty(*out) == ty => {}
            outs => {
                let got = super::shown(&inner.body, outs);
                let want = ty.to_string();
                self.diagnostics.push(diag::fill_result(at, &name.text, &got, &want));
                return None;
            }
        }
        inner.body.outputs = outs;
        let (body, fields) = self.finish(inner);
        Some(FillBody { body, fields, reads })
    }

    /// The fill's parameters in the body that has the slot, added or, in a repeated call of a shared instance, found.
    fn fill_params(
        &mut self,
        name: &Name,
        fill: &Body,
        instance: &str,
        (span, at): (Span, Span),
        f: &Frame,
        b: &mut Building,
    ) -> Option<Vec<ParamId>> {
        let mut params = Vec::new();
        for param in &fill.params {
            let path = join(instance, &param.path);
            let id = match b.by_path.get(&path).copied() {
                Some(id) if f.again && !f.instances.contains_key(&name.text) => {
                    self.same_param(b, id, &param.shape, Some(&param.init), at)?
                }
                Some(id) => {
                    let before = b.param_spans.get(id.0 as usize).copied().unwrap_or(span);
                    self.diagnostics.push(diag::instance_twice(&path, span, before));
                    return None;
                }
                None => b.add_param(Param { path, ..param.clone() }, at),
            };
            params.push(id);
        }
        Some(params)
    }
}

/// The node of an empty slot in the open form.
fn empty_slot(
    name: &Name,
    operands: Vec<Out>,
    types: Vec<Type>,
    span: Span,
    f: &Frame,
    b: &mut Building,
) -> Vec<Out> {
    let ports = 0..types.len() as u32;
    let kind = NodeKind::Slot {
        name: format!("{}, at {}", name.text, join(&f.path, &name.text)),
        fill: Rc::new(Body::default()),
        params: Vec::new(),
        states: Vec::new(),
    };
    let node = b.body.push(kind, operands, types, span);
    ports.map(|port| Out { node, port }).collect()
}

/// The name of a filled slot in the open form.
fn open_label(name: &Name, instance: &str, reads: BTreeSet<String>) -> String {
    let mut label = format!("{}, at {instance}", name.text);
    if !reads.is_empty() {
        let reads: Vec<String> = reads.into_iter().collect();
        label += &format!(", reads {}", reads.join(" "));
    }
    label
}
