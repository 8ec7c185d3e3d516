//! Entries of a dictionary while it is made, and the limit of what one result may hold.

use std::collections::HashMap;
use std::sync::Arc;

use crate::value::Value;

/// Most bytes of one result.
pub(crate) const LARGEST: usize = 8 << 20;

/// Entries of a dictionary as they come: of two equal keys the last value counts, in the first one's place.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    entries: Vec<(Value, Value)>,
    /// Where each text is; other keys are searched.
    texts: HashMap<Arc<str>, usize>,
}

impl Entries {
    pub(crate) fn insert(&mut self, key: Value, value: Value) {
        let at = match &key {
            Value::Str(text) => self.texts.get(text).copied(),
            key => self.entries.iter().position(|(other, _)| other.equals(key)),
        };
        if let Some((_, old)) = at.and_then(|at| self.entries.get_mut(at)) {
            *old = value;
            return;
        }
        if let Value::Str(text) = &key {
            self.texts.insert(Arc::clone(text), self.entries.len());
        }
        self.entries.push((key, value));
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn into_map(self) -> Value {
        Value::map(self.entries)
    }

    pub(crate) fn into_inner(self) -> Vec<(Value, Value)> {
        self.entries
    }
}
