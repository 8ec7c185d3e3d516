//! Lists the differences that remain after the treatment was replaced, to explain a verdict.
//!
//! In: both arms, and arm a with b's values at the treatment. Out: the fields that still differ, those
//! that no longer do, and definitions if no field explains the difference. Must stay true: nothing here affects a
//! verdict, but every difference that affects one is listed here.

use std::collections::{BTreeMap, BTreeSet};

use super::definitions::differing_definitions;
use super::index::{Index, Layer, Pair};
use super::{Change, FieldAt, Judge};
use compiler::program::Compiled;

impl Judge<'_> {
    /// Cells that still differ, by general path. A cell that only one arm has is listed with its parent;
    /// for layers that one arm lacks, only their number is listed.
    pub(super) fn remaining_cells(
        &self,
        left: &Pair<'_>,
        cells: &BTreeSet<FieldAt>,
        failed: bool,
    ) -> BTreeMap<String, Vec<Layer>> {
        let mut differing: BTreeSet<FieldAt> = BTreeSet::new();
        for path in left.paths() {
            for layer in left.differing(path) {
                let cell = (path.clone(), layer);
                // Definitions with one name are compared through the graphs.
                let [a, b] = left.values(path, layer);
                let differs = a != b;
                let here = |index: &Index| index.get("arch.layers.*", layer).is_some();
                let told = layer.is_none() || here(left.a) && here(left.b);
                let excused = failed && (cells.contains(&cell) || self.part_of(path, layer, cells));
                if differs && told && !excused {
                    differing.insert(cell);
                }
            }
        }
        let mut remaining: BTreeMap<String, Vec<Layer>> = BTreeMap::new();
        for (path, layer) in &differing {
            if !self.part_of(path, *layer, &differing) {
                remaining.entry(path.clone()).or_default().push(*layer);
            }
        }
        remaining
    }

    /// Whether only one arm has a cell because of one of its parents.
    fn part_of(&self, path: &str, layer: Layer, cells: &BTreeSet<FieldAt>) -> bool {
        if self.indices.iter().all(|index| index.get(path, layer).is_some()) {
            return false;
        }
        let mut above = path;
        while let Some((parent, _)) = above.rsplit_once('.') {
            if cells.contains(&(parent.to_owned(), layer)) {
                return true;
            }
            above = parent;
        }
        false
    }

    /// Arch fields that differed and no longer do, although nobody declared them: they follow.
    pub(super) fn vanished(
        &self,
        left: &Pair<'_>,
        cells: &BTreeSet<FieldAt>,
        remaining: &BTreeMap<String, Vec<Layer>>,
        consequences: &mut Vec<Change>,
    ) {
        let pair = self.pair();
        for path in pair.paths() {
            let told = remaining.get(path);
            let layers: Vec<Layer> = pair
                .differing(path)
                .into_iter()
                .filter(|layer| !told.is_some_and(|told| told.contains(layer)))
                .filter(|layer| {
                    let [a, b] = pair.values(path, *layer);
                    a != b
                })
                .filter(|layer| !cells.contains(&(path.clone(), *layer)))
                .filter(|layer| !self.part_of(path, *layer, cells))
                .filter(|layer| {
                    let here = |i: &Index| i.get("arch.layers.*", *layer).is_some();
                    layer.is_none() || (self.indices.iter().all(|i| here(i)) && here(left.a))
                })
                .collect();
            consequences.extend(self.cell_changes(path, &layers));
        }
    }

    /// Differences that no field explains: if arch a still differs after it also takes every remaining free
    /// field, the definitions themselves differ.
    pub(super) fn unexplained(
        &self,
        made: &Compiled,
        remaining: &BTreeMap<String, Vec<Layer>>,
        declared: &BTreeSet<FieldAt>,
    ) -> Vec<Change> {
        let pair = self.pair();
        let cells: BTreeSet<FieldAt> = remaining
            .iter()
            .flat_map(|(path, layers)| layers.iter().map(move |layer| (path.clone(), *layer)))
            .filter(|(path, layer)| pair.free(path, *layer))
            .collect();
        let all = self.transplanted(&made.tree, &cells).and_then(|tree| self.compile(&tree));
        if all.is_ok_and(|all| self.archs_equal(&all)) {
            return Vec::new();
        }
        let treated: BTreeSet<&str> = declared
            .iter()
            .flat_map(|(path, layer)| self.indices.map(|index| index.get(path, *layer)))
            .flatten()
            .map(|cell| cell.value.as_str())
            .collect();
        let mut found = differing_definitions(self.definitions, &self.sources);
        let beside = |change: &Change| {
            let name = change.path.strip_prefix("definition ").unwrap_or("");
            !treated.contains(name)
        };
        // Leave out treated definitions, unless they are the only explanation.
        if found.iter().any(beside) {
            found.retain(beside);
        }
        found
    }
}
