//! Records what each expression of an arch evaluates to, for a person who reads the text. Nothing that decides a graph
//! reads it.

use std::collections::BTreeMap;

use dsl::{Name, Span};

use super::{Building, Elaborator, Field};
use crate::graph::Param;
use crate::tree::Value;

/// Most different values that are kept for one place.
const MAX_VALUES: usize = 6;

/// What an arch's text evaluates to, by place.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The values of an expression, or of a name where it is bound, each once.
    pub values: BTreeMap<Span, Vec<Seen>>,
    /// The parameters of the arch.
    pub params: Vec<Param>,
    /// The place of the call or statement that declares a parameter, and the end of the parameter's path: the instances
    /// from the layer, the head or the fill of a slot down.
    pub declared: BTreeMap<Span, Vec<String>>,
    /// The place of the name that a field sets: a configuration name or a slot, by the path that is left when layers
    /// are not numbered (`layers.mixer.heads`).
    pub names: BTreeMap<String, Span>,
    /// All configuration values; empty if the arch has errors.
    pub fields: Vec<Field>,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The value as the language writes it, or the shapes of tensors.
    pub text: String,
    /// For configuration: whether someone wrote it, and the place of what was written or of the default.
    pub origin: Option<(bool, Span)>,
}

/// A field's path without the numbers of layers. A body does not know the number of its layer either.
pub(crate) fn unnumbered(path: &str) -> String {
    let parts = path.split('.').filter(|part| !part.starts_with(|c: char| c.is_ascii_digit()));
    parts.collect::<Vec<_>>().join(".")
}

impl Observed {
    fn add(&mut self, span: Span, seen: Seen) {
        let known = self.values.entry(span).or_default();
        if known.len() < MAX_VALUES && !known.contains(&seen) {
            known.push(seen);
        }
    }

    /// The place of the name that a field with this path sets.
    pub fn setting(&self, path: &str) -> Option<Span> {
        let path = unnumbered(path);
        let below = path.strip_prefix("layers.").unwrap_or(&path);
        self.names.get(below).copied()
    }
}

impl Elaborator<'_> {
    pub(super) fn observe(&mut self, span: Span, value: &Value, b: &Building) {
        if let Some(observed) = &mut self.observed {
            observed.add(span, Seen { text: text(value, b), origin: None });
        }
    }

    /// A configuration value, where its definition declares it.
    pub(super) fn observe_setting(
        &mut self,
        name: &Name,
        value: &Value,
        origin: (bool, Span),
        field: Option<&str>,
        b: &Building,
    ) {
        if let Some(observed) = &mut self.observed {
            observed.add(name.span, Seen { text: text(value, b), origin: Some(origin) });
            if let Some(path) = field {
                observed.names.entry(unnumbered(path)).or_insert(name.span);
            }
        }
    }

    pub(super) fn observe_slot(&mut self, name: &Name, field: &str) {
        if let Some(observed) = &mut self.observed {
            observed.names.entry(unnumbered(field)).or_insert(name.span);
        }
    }

    /// A parameter, where it is declared.
    pub(super) fn observe_param(&mut self, span: Span, path: &str) {
        if let Some(observed) = &mut self.observed {
            let known = observed.declared.entry(span).or_default();
            if known.len() < MAX_VALUES && known.iter().all(|known| known != path) {
                known.push(path.to_owned());
            }
        }
    }

    pub(super) fn observe_params(&mut self, top: &Building) {
        if let Some(observed) = &mut self.observed {
            observed.params.clone_from(&top.body.params);
        }
    }
}

fn text(value: &Value, b: &Building) -> String {
    match value {
        Value::Tensors(outs) => super::shown(&b.body, outs),
        Value::Instance(id) => {
            b.body.params.get(id.0 as usize).map_or(String::new(), |p| p.path.clone())
        }
        other => other.text(),
    }
}
