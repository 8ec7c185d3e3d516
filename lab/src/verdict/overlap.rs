//! Refuses treatments with entries that overlap, are incomplete or change nothing.
//!
//! A factor counts once. A field that only one arm has is declared together with the field that brings it, and the refusal
//! names that field as a treatment writes it.

use std::collections::{BTreeMap, BTreeSet};

use super::direction::Direction;
use super::index::{FieldAt, Index, Layer, slot_of};
use super::judge::Judge;
use super::refusal::Refusal;
use super::treatment::TreatmentEntry;
use compiler::program::Compiled;

impl Judge<'_> {
    /// Refuses fields declared twice, and fields that only another entry brings.
    pub(super) fn check_overlap(&self, entries: &[TreatmentEntry]) -> Result<(), Refusal> {
        let mut seen: BTreeMap<FieldAt, &str> = BTreeMap::new();
        let mut fields: BTreeMap<&str, &str> = BTreeMap::new();
        for entry in entries {
            for cell in entry.cells_at() {
                if let Some(before) = seen.insert(cell, &entry.text) {
                    return Err(Refusal::twice(&entry.text, before));
                }
            }
            for field in &entry.fields {
                if let Some(before) = fields.insert(field, &entry.text) {
                    return Err(Refusal::twice(&entry.text, before));
                }
            }
        }
        let deeper = |layer: Layer| match layer {
            // A layer that one arm lacks is declared through `arch.layers`.
            Some(_) => self.indices.iter().all(|i| i.get("arch.layers.*", layer).is_some()),
            None => false,
        };
        for ((path, layer), text) in &seen {
            let everywhere = self.indices.iter().all(|index| index.get(path, *layer).is_some());
            if everywhere || !deeper(*layer) || path.ends_with(".share") {
                continue;
            }
            if let Some(slot) = slot_of(path) {
                // An undeclared slot counts as empty; the definition that declares it must be in the treatment, too.
                let beside = |(other, at): &FieldAt| *at == *layer && !other.contains(".slots.");
                if seen.keys().any(beside) {
                    continue;
                }
                return Err(Refusal::undeclared_slot(text, slot, &self.declaring(*layer)));
            }
            // Only one arm writes it, below a parent that both have, such as the init of a fill.
            let holder = path.rsplit_once('.').map(|(holder, _)| holder);
            let both = |i: &Index| holder.is_some_and(|holder| i.get(holder, *layer).is_some());
            if self.indices.iter().all(|i| both(i))
                && !holder.is_some_and(|holder| self.pair().differ(holder, *layer))
            {
                continue;
            }
            let mut above = path.as_str();
            while let Some((parent, _)) = above.rsplit_once('.') {
                if let Some(before) = seen.get(&(parent.to_owned(), *layer)) {
                    return Err(Refusal::twice(text, before));
                }
                above = parent;
            }
            return Err(Refusal::one_sided(text, path));
        }
        Ok(())
    }

    /// Fields that may declare a slot in one arm only: definitions in which the arms differ, as a treatment
    /// writes them.
    fn declaring(&self, layer: Layer) -> Vec<String> {
        let pair = self.pair();
        let mut fields = Vec::new();
        for path in pair.paths() {
            let short = path.strip_prefix("arch.layers.*.").unwrap_or(path);
            let [Some(a), Some(b)] = pair.values(path, layer) else { continue };
            let defined = |i: usize, name: &str| self.definitions[i].has(name);
            if slot_of(path).is_none() && pair.differ(path, layer) && defined(0, a) && defined(1, b)
            {
                fields.push(short.to_owned());
            }
        }
        fields
    }

    /// Whether a slot of an entry is filled in both arms, with different settings.
    fn differs_below(&self, entry: &TreatmentEntry) -> bool {
        let pair = self.pair();
        entry.cells_at().filter(|(path, _)| slot_of(path).is_some()).any(|(path, layer)| {
            let below = format!("{path}.");
            let inner = pair.paths().into_iter().filter(|inner| inner.starts_with(&below));
            inner.into_iter().any(|inner| {
                self.indices.iter().all(|index| index.get(inner, layer).is_some())
                    && pair.differ(inner, layer)
            })
        })
    }

    /// Refuses entries that change nothing in either arm.
    pub(super) fn check_idle(
        &self,
        entries: &[TreatmentEntry],
        directions: &[Direction; 2],
        reversed: &Judge<'_>,
    ) -> Result<(), Refusal> {
        for entry in entries.iter().filter(|entry| entry.fields.is_empty()) {
            let cells: BTreeSet<FieldAt> = entry.cells_at().collect();
            let idle = |judge: &Judge<'_>, direction: &Direction| {
                let Some(substituted) = &direction.substituted else { return false };
                let others: BTreeSet<FieldAt> =
                    substituted.cells.difference(&cells).cloned().collect();
                let without = judge.with_cells(judge.trees[0], &others);
                without.is_ok_and(|without| same_arch(&without, &substituted.arch))
            };
            let [forward, backward] = directions;
            // A setting below a treated slot differs. It is outside the treatment and is a confound, although the
            // fills' names alone change nothing.
            if self.differs_below(entry) {
                continue;
            }
            if idle(self, forward) && idle(reversed, backward) {
                let in_one = |(_, layer): FieldAt| self.indices.iter().any(|i| !i.has_layer(layer));
                if let [Some(a), Some(b)] = self.pair().values("arch.layers", None)
                    && entry.cells_at().all(in_one)
                {
                    return Err(Refusal::other_layers(&entry.text, a, b));
                }
                return Err(Refusal::without_effect(&entry.text));
            }
        }
        Ok(())
    }
}

fn same_arch(a: &Compiled, b: &Compiled) -> bool {
    (a.identity.graph, a.identity.manifest) == (b.identity.graph, b.identity.manifest)
}
