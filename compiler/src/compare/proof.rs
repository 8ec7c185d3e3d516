//! The second proof of slots: both arms without them are one arch.
//!
//! In: the treatment and both arms. Out: digests that a person can compare, and whether the two proofs
//! agree. Must stay true: erasure starts from arm a's own fills, not from those that substitution put
//! there; a disagreement is a fault of this program and makes the verdict confounded.

use std::collections::{BTreeMap, BTreeSet};

use super::index::Layer;
use super::treatment::Entry;
use super::{Cell, Erased, Judge, Proof, Substituted};
use crate::canonical::identify;
use crate::erase::erase;
use crate::program::Compiled;

impl Judge<'_> {
    pub(super) fn proof(&self, entries: &[Entry], made: Option<&Substituted>) -> Proof {
        let theirs = &self.archs[1].identity;
        let slots: BTreeSet<(u32, &str)> = entries
            .iter()
            .flat_map(|entry| &entry.cells)
            .filter_map(|(path, layers)| Some((path.strip_prefix("arch.layers.*.slots.")?, layers)))
            .filter(|(slot, _)| !slot.contains('.'))
            .flat_map(|(slot, layers)| layers.iter().flatten().map(move |n| (*n as u32, slot)))
            .collect();
        let erased = (!slots.is_empty()).then(|| self.erased(entries, &slots)).flatten();
        Proof {
            graph: [made.map(|made| made.arch.identity.graph), Some(theirs.graph)],
            manifest: [made.map(|made| made.arch.identity.manifest), Some(theirs.manifest)],
            erased,
            consistent: true,
        }
    }

    /// Both arms without the slots of the treatment; of a, with b's values at the rest of it.
    fn erased(&self, entries: &[Entry], slots: &BTreeSet<(u32, &str)>) -> Option<Erased> {
        let rest: BTreeSet<Cell> = entries
            .iter()
            .flat_map(Entry::places)
            .filter(|(path, _)| {
                let slot = path.strip_prefix("arch.layers.*.slots.");
                slot.is_none_or(|slot| slot.contains('.'))
            })
            .collect();
        let ours = self.with_cells(&rest).ok()?;
        let without = |arch: &Compiled| {
            let gone = |layer: Option<u32>, name: &str| {
                layer.is_some_and(|layer| slots.contains(&(layer, name)))
            };
            identify(&erase(&arch.graph, &gone))
        };
        let (a, b) = (without(&ours), without(self.archs[1]));
        let names: BTreeSet<&str> = slots.iter().map(|(_, name)| *name).collect();
        Some(Erased {
            slots: names.into_iter().map(str::to_owned).collect(),
            graph: [a.graph, b.graph],
            manifest: [a.manifest, b.manifest],
        })
    }

    /// Substitution and erasure must say the same of the slots: if only slots differed, erasing them
    /// leaves equal archs, and if erasing them does, what is left differs inside them.
    pub(super) fn consistent(
        &self,
        proof: &Proof,
        arch_equal: bool,
        entries: &[Entry],
        remaining: &BTreeMap<String, Vec<Layer>>,
    ) -> bool {
        let Some(erased) = &proof.erased else { return true };
        let equal = erased.graph[0] == erased.graph[1] && erased.manifest[0] == erased.manifest[1];
        let inside = |path: &str| {
            let slots = entries.iter().flat_map(|entry| &entry.cells).map(|(path, _)| path);
            slots.into_iter().any(|slot| path.starts_with(&format!("{slot}.")))
        };
        match (arch_equal, equal) {
            (true, true) | (false, false) => true,
            (true, false) => false,
            (false, true) => remaining.keys().any(|path| inside(path)),
        }
    }
}
