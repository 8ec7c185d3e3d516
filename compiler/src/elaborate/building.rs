//! A body under construction. If two calls of one definition record the same field, it is stored once.

use std::collections::BTreeMap;

use dsl::Span;

use super::Field;
use crate::graph::{Body, NodeKind, Out, Param, ParamId, StateId};
use crate::op::{State, Type};

#[derive(Default)]
pub(super) struct Building {
    pub(super) body: Body,
    pub(super) by_path: BTreeMap<String, ParamId>,
    pub(super) param_spans: Vec<Span>,
    pub(super) fields: Vec<Field>,
    /// Whether this is the top body, where `embed` can be named.
    pub(super) top: bool,
    /// Tensors that pass between layers; `None` in the fill of a slot.
    pub(super) passing: Option<Passing>,
    param_nodes: BTreeMap<ParamId, u32>,
    field_places: BTreeMap<String, usize>,
}

/// The tensors that pass from layer to layer in addition to the stream, as one layer sees them.
#[derive(Default)]
pub(super) struct Passing {
    /// What the layers before left, and the token ids, by name.
    pub(super) given: BTreeMap<String, Type>,
    /// Their current values in this body.
    pub(super) now: BTreeMap<String, Out>,
    /// The names of the body's inputs after the first.
    pub(super) read: Vec<String>,
    /// Whether the body asked for any of them.
    pub(super) used: bool,
}

impl Building {
    /// The current value of a tensor that passes between layers: one of this body, or else an input.
    pub(super) fn passed(&mut self, name: &str, span: Span) -> Option<Out> {
        let passing = self.passing.as_mut()?;
        passing.used = true;
        if let Some(now) = passing.now.get(name) {
            return Some(*now);
        }
        let ty = passing.given.get(name)?.clone();
        passing.read.push(name.to_owned());
        let input = NodeKind::Input(self.body.inputs.len() as u32);
        self.body.inputs.push(ty.clone());
        let out = Out::first(self.body.push(input, vec![], vec![ty], span));
        self.pass(name, out);
        Some(out)
    }

    /// What later layers see under this name.
    pub(super) fn pass(&mut self, name: &str, out: Out) {
        if let Some(passing) = &mut self.passing {
            passing.now.insert(name.to_owned(), out);
        }
    }

    pub(super) fn add_param(&mut self, param: Param, span: Span) -> ParamId {
        let id = ParamId(self.body.params.len() as u32);
        self.by_path.insert(param.path.clone(), id);
        self.body.params.push(param);
        self.param_spans.push(span);
        id
    }

    /// Adds a layer's parameter to the top body. Its layer number makes the path unique, and it is never looked up.
    pub(super) fn place_param(&mut self, param: Param, span: Span) -> ParamId {
        self.body.params.push(param);
        self.param_spans.push(span);
        ParamId((self.body.params.len() - 1) as u32)
    }

    /// Whether a parameter has this path or one below it.
    pub(super) fn owns(&self, path: &str) -> bool {
        if self.by_path.contains_key(path) {
            return true;
        }
        let below = format!("{path}.");
        self.by_path.range(below.clone()..).next().is_some_and(|(p, _)| p.starts_with(&below))
    }

    /// Each call of a shared instance has its own state; [`crate::arrange`] makes their paths unique.
    pub(super) fn add_state(&mut self, path: String, state: State) -> StateId {
        self.body.states.push((path, state));
        StateId((self.body.states.len() - 1) as u32)
    }

    /// Records a field once. If two calls see different defaults, keeps both values.
    pub(super) fn add_field(&mut self, field: Field) {
        let known = self.field_places.get(&field.path).and_then(|at| self.fields.get_mut(*at));
        match known {
            None => {
                self.field_places.insert(field.path.clone(), self.fields.len());
                self.fields.push(field);
            }
            Some(known) => {
                if known.value.split("; ").all(|value| value != field.value) {
                    known.value = format!("{}; {}", known.value, field.value);
                }
            }
        }
    }

    /// The node for a parameter in this body.
    pub(super) fn param_node(&mut self, id: ParamId, span: Span) -> Out {
        if let Some(node) = self.param_nodes.get(&id) {
            return Out::first(*node);
        }
        let shape = self.body.params.get(id.0 as usize).map_or(Vec::new(), |p| p.shape.clone());
        let node = self.body.push(NodeKind::Param(id), vec![], vec![Type::constant(shape)], span);
        self.param_nodes.insert(id, node);
        Out::first(node)
    }
}
