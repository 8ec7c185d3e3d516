//! Lists the differences that remain after the treatment was replaced, to explain a verdict.
//!
//! Nothing here affects a verdict, but every difference that affects one is listed here.

use std::collections::{BTreeMap, BTreeSet};

use super::definitions::differing_definitions;
use super::index::{FieldAt, Layer, Pair};
use super::judge::Judge;
use super::model::Change;
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
                let has_layer = left.a.has_layer(layer) && left.b.has_layer(layer);
                let excused = failed && (cells.contains(&cell) || self.part_of(path, layer, cells));
                if differs && has_layer && !excused {
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
            let listed = remaining.get(path);
            let layers: Vec<Layer> = pair
                .differing(path)
                .into_iter()
                .filter(|layer| !listed.is_some_and(|layers| layers.contains(layer)))
                .filter(|layer| {
                    let [a, b] = pair.values(path, *layer);
                    a != b
                })
                .filter(|layer| !cells.contains(&(path.clone(), *layer)))
                .filter(|layer| !self.part_of(path, *layer, cells))
                .filter(|layer| {
                    self.indices.iter().all(|i| i.has_layer(*layer)) && left.a.has_layer(*layer)
                })
                .collect();
            consequences.extend(self.cell_changes(path, &layers));
        }
    }

    /// Differences that no field explains: if arch a still differs after it also takes every remaining free
    /// field, the definitions themselves differ.
    pub(super) fn unexplained(
        &self,
        arch: &Compiled,
        remaining: &BTreeMap<String, Vec<Layer>>,
        declared: &BTreeSet<FieldAt>,
    ) -> Vec<Change> {
        let pair = self.pair();
        let cells: BTreeSet<FieldAt> = remaining
            .iter()
            .flat_map(|(path, layers)| layers.iter().map(move |layer| (path.clone(), *layer)))
            .filter(|(path, layer)| pair.free(path, *layer))
            .collect();
        let all = self.transplanted(&arch.tree, &cells).and_then(|tree| self.compile(&tree));
        if all.is_ok_and(|all| self.archs_equal(&all)) {
            return Vec::new();
        }
        let treated: BTreeSet<&str> = declared
            .iter()
            .flat_map(|(path, layer)| self.indices.map(|index| index.get(path, *layer)))
            .flatten()
            .map(|cell| cell.value.as_str())
            .collect();
        let mut definitions = differing_definitions(self.definitions, &self.sources);
        let beside = |change: &Change| {
            let name = change.path.strip_prefix("definition ").unwrap_or("");
            !treated.contains(name)
        };
        // Leave out treated definitions, unless they are the only explanation.
        if definitions.iter().any(beside) {
            definitions.retain(beside);
        }
        definitions
    }
}
