//! Indexes the fields of an arch by path across layers: one entry per field for all layers.
//!
//! Two cells are equal only if their values are equal and, for a value that names a definition, if the definitions have equal
//! digests.

use std::collections::{BTreeMap, BTreeSet};

use dsl::Span;

use super::definitions::Definitions;
use crate::experiment::split_layer;
use compiler::elaborate::Field;

/// `None` for fields of the arch itself.
pub(super) type Layer = Option<usize>;

/// A cell: its general path (`arch.layers.*.mixer.heads`) and its layer.
pub(super) type FieldAt = (String, Layer);

/// One field of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) value: String,
    /// Whether it had to be written, because it differs from the value that would follow.
    pub(super) written: bool,
    pub(super) span: Span,
}

/// Cells by general path, then layer.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    cells: BTreeMap<String, BTreeMap<Layer, Cell>>,
}

impl Index {
    /// `idle` holds the paths of fields that were written although the same value would follow.
    pub(super) fn new(fields: &[Field], idle: &BTreeSet<String>) -> Index {
        let mut cells: BTreeMap<String, BTreeMap<Layer, Cell>> = BTreeMap::new();
        for field in fields {
            let (path, layer) = match split_layer(&field.path) {
                Some((layer, "")) => ("arch.layers.*".to_owned(), Some(layer)),
                Some((layer, rest)) => (format!("arch.layers.*.{rest}"), Some(layer)),
                None => (format!("arch.{}", field.path), None),
            };
            let Field { path: full, value, written, span } = field;
            let written = *written && !idle.contains(full);
            let cell = Cell { value: value.clone(), written, span: *span };
            cells.entry(path).or_default().insert(layer, cell);
        }
        Index { cells }
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &String> {
        self.cells.keys()
    }

    pub(super) fn get(&self, path: &str, layer: Layer) -> Option<&Cell> {
        self.cells.get(path)?.get(&layer)
    }

    /// All values of fields.
    pub(super) fn values(&self) -> BTreeSet<&str> {
        let cells = self.cells.values().flat_map(BTreeMap::values);
        cells.map(|cell| cell.value.as_str()).collect()
    }

    pub(super) fn has_layer(&self, layer: Layer) -> bool {
        layer.is_none() || self.get("arch.layers.*", layer).is_some()
    }

    fn layers(&self, path: &str) -> impl Iterator<Item = Layer> {
        self.cells.get(path).into_iter().flat_map(|cells| cells.keys().copied())
    }
}

/// The slot that a path ends in: `A` of `arch.layers.*.slots.A`.
pub(super) fn slot_of(path: &str) -> Option<&str> {
    let (_, slot) = path.rsplit_once(".slots.")?;
    (!slot.contains('.')).then_some(slot)
}

/// Two arms' fields for comparison.
pub(super) struct Pair<'a> {
    pub(super) a: &'a Index,
    pub(super) b: &'a Index,
    pub(super) definitions: [&'a Definitions; 2],
}

impl Pair<'_> {
    /// The layers in which either arm has this path.
    pub(super) fn layers(&self, path: &str) -> BTreeSet<Layer> {
        self.a.layers(path).chain(self.b.layers(path)).collect()
    }

    /// Every general path of either arm.
    pub(super) fn paths(&self) -> BTreeSet<&String> {
        self.a.paths().chain(self.b.paths()).collect()
    }

    /// The layers in which the arms differ at a path.
    pub(super) fn differing(&self, path: &str) -> Vec<Layer> {
        self.layers(path).into_iter().filter(|layer| self.differ(path, *layer)).collect()
    }

    pub(super) fn differ(&self, path: &str, layer: Layer) -> bool {
        match self.values(path, layer) {
            [Some(a), Some(b)] => a != b || self.defined_differently(a),
            [None, None] => false,
            [Some(_), None] | [None, Some(_)] => true,
        }
    }

    /// Both values. An undeclared slot equals an empty one.
    pub(super) fn values(&self, path: &str, layer: Layer) -> [Option<&str>; 2] {
        let empty = slot_of(path).map(|_| "empty");
        let unfilled = |index: &Index| empty.filter(|_| index.has_layer(layer));
        let [a, b] = [self.a, self.b].map(|index| index.get(path, layer));
        [
            a.map(|cell| cell.value.as_str()).or(unfilled(self.a)),
            b.map(|cell| cell.value.as_str()).or(unfilled(self.b)),
        ]
    }

    /// Whether the arms use one name for different definitions.
    pub(super) fn defined_differently(&self, name: &str) -> bool {
        let [a, b] = self.definitions;
        a.digest(name) != b.digest(name)
    }

    /// Whether a value is a choice rather than a consequence shared by both arms: one arm had to write it,
    /// or the arms' definitions give it different defaults.
    pub(super) fn free(&self, path: &str, layer: Layer) -> bool {
        let [a, b] = [self.a, self.b].map(|index| index.get(path, layer));
        self.written(path, layer)
            || a.is_some() && b.is_some() && self.ruled_differently(path, layer)
    }

    /// Whether either arm had to write the value.
    pub(super) fn written(&self, path: &str, layer: Layer) -> bool {
        [self.a, self.b].iter().any(|index| index.get(path, layer).is_some_and(|c| c.written))
    }

    /// Whether the definitions of the two arms give a value different defaults.
    fn ruled_differently(&self, path: &str, layer: Layer) -> bool {
        let Some((holder, name)) = path.rsplit_once('.') else { return false };
        let rule = |index: &Index, definitions: &Definitions| {
            definitions.rule(&index.get(holder, layer)?.value, name)
        };
        let [ours, theirs] = self.definitions;
        rule(self.a, ours) != rule(self.b, theirs)
    }
}
