//! Differences in the cells of an arch: equal ones in several layers are merged.

use std::collections::BTreeMap;

use super::index::{Cell, Index, Layer, slot_of};
use super::model::{Change, Subject};
use super::sources::Sources;
use crate::experiment::layer_sets;

/// Cells of one general path, grouped by their change.
///
/// `canon` says for a slot's path and layer whether it holds a Canon layer or nothing in either arm; `called`
/// writes the name of a definition so that two definitions with one name can be distinguished.
pub(super) fn layered(
    path: &str,
    layers: &[Layer],
    indices: [&Index; 2],
    sources: &Sources<'_>,
    canon: &dyn Fn(&str, Layer) -> bool,
    called: &dyn Fn(usize, &str) -> String,
) -> Vec<Change> {
    type Key = (Option<String>, Option<String>, [bool; 2]);
    let mut groups: BTreeMap<Key, Vec<Layer>> = BTreeMap::new();
    for layer in layers {
        let cells = indices.map(|index| index.get(path, *layer));
        let [a, b] = [0, 1].map(|i| {
            let called = |value: &str| called(i, value);
            let alone = cells[1 - i].is_none();
            cells[i].map(|cell| shown(path, *layer, cell, indices[i], alone, &called))
        });
        let defaults = cells.map(|cell| cell.is_some_and(|cell| !cell.written));
        groups.entry((a, b, defaults)).or_default().push(*layer);
    }
    let mut changes = Vec::new();
    for ((a, b, defaults), layers) in groups {
        let first = layers.first().copied().flatten();
        let places =
            indices.map(|index| index.get(path, first).map(|cell| sources.arch(cell.span)));
        let canon = slot_of(path).is_some() && layers.iter().all(|layer| canon(path, *layer));
        let change = |written: String| Change {
            path: written,
            subject: Subject::Cell { general: path.to_owned(), canon },
            a: a.clone(),
            b: b.clone(),
            defaults,
            places: places.clone(),
            note: String::new(),
        };
        let numbers: Vec<usize> = layers.iter().copied().flatten().collect();
        if numbers.is_empty() {
            changes.push(change(path.to_owned()));
        }
        for set in layer_sets(&numbers) {
            changes.push(change(path.replacen('*', &set, 1)));
        }
    }
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    changes
}

/// A value. A fill, or a definition without a counterpart in the other arm, is shown with its settings.
fn shown(
    path: &str,
    layer: Layer,
    cell: &Cell,
    index: &Index,
    alone: bool,
    called: &dyn Fn(&str) -> String,
) -> String {
    let value = called(&cell.value);
    let slot = path.contains(".slots.");
    if !(alone || slot) {
        return value;
    }
    let prefix = format!("{path}.");
    let settings: Vec<String> = index
        .paths()
        .filter_map(|other| {
            let name = other.strip_prefix(&prefix)?;
            Some(format!("{name} {}", index.get(other, layer)?.value))
        })
        .collect();
    if settings.is_empty() { value } else { format!("{value} ({})", settings.join(", ")) }
}
