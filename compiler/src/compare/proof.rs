//! The second proof of slots: both arms without them are one arch.
//!
//! In: the treatment and both arms. Out: digests that a person can compare, and whether the two proofs
//! agree. Must stay true: erasure starts from arm a's own fills, not from those that substitution put
//! there; where it cannot be carried out there is no second proof, and the reason is said; a
//! disagreement is a fault of this program; either makes the verdict confounded.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::index::Layer;
use super::substitute::Substituted;
use super::treatment::Entry;
use super::{Cell, Erased, Judge, Proof};
use crate::canonical::identify;
use crate::erase::erase;
use crate::program::Compiled;
use crate::tree::{Applied, ArchTree};

impl Judge<'_> {
    /// The digests, and why there is no second proof where there has to be one.
    pub(super) fn proof(
        &self,
        entries: &[Entry],
        made: Option<&Substituted>,
    ) -> (Proof, Option<String>) {
        let theirs = &self.archs[1].identity;
        let slots: BTreeSet<(u32, &str)> = entries
            .iter()
            .flat_map(|entry| &entry.cells)
            .filter_map(|(path, layers)| Some((path.strip_prefix("arch.layers.*.slots.")?, layers)))
            .filter(|(slot, _)| !slot.contains('.'))
            .flat_map(|(slot, layers)| layers.iter().flatten().map(move |n| (*n as u32, slot)))
            .collect();
        let (erased, why) = match made.filter(|_| !slots.is_empty()) {
            Some(made) => match self.erased(&made.places, &slots) {
                Ok(erased) => (Some(erased), None),
                Err(why) => (None, Some(why)),
            },
            None => (None, None),
        };
        let proof = Proof {
            graph: [made.map(|made| made.arch.identity.graph), Some(theirs.graph)],
            manifest: [made.map(|made| made.arch.identity.manifest), Some(theirs.manifest)],
            erased,
            consistent: true,
        };
        (proof, why)
    }

    /// Both arms without the slots of the treatment; of a, with b's values at the rest of it.
    fn erased(
        &self,
        places: &BTreeSet<Cell>,
        slots: &BTreeSet<(u32, &str)>,
    ) -> Result<Erased, String> {
        let gone = |layer: u32, name: &str| slots.contains(&(layer, name));
        let without = |arch: &Compiled| {
            let gone = |layer: Option<u32>, name: &str| layer.is_some_and(|n| gone(n, name));
            identify(&erase(&arch.graph, &gone))
        };
        let names: BTreeSet<&str> = slots.iter().map(|(_, name)| *name).collect();
        let shown = names.iter().copied().collect::<Vec<_>>().join(", ");
        // The fills of arm a go first: with them the rest of the treatment may be no arch at all.
        let bare = emptied(self.trees[0], &gone);
        let fails = |why: String| {
            format!("there is no second proof: arm a without its fills of {shown}: {why}")
        };
        let empty = self.compile(&bare).map_err(fails)?.identity;
        let ours = without(self.archs[0]);
        if (empty.graph, empty.manifest) != (ours.graph, ours.manifest) {
            let why = "its graph without them and its fields without them are two archs";
            return Err(fails(why.to_owned()));
        }
        let rest: BTreeSet<Cell> = places
            .iter()
            .filter(|(path, layer)| {
                let below = path.strip_prefix("arch.layers.*.slots.");
                let slot = below.map(|below| below.split('.').next().unwrap_or(below));
                let of = slot.zip(*layer).map(|(slot, layer)| gone(layer as u32, slot));
                !of.unwrap_or(false)
            })
            .cloned()
            .collect();
        let a = self.with_cells(&bare, &rest).map_err(fails)?.identity;
        let b = without(self.archs[1]);
        Ok(Erased {
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

/// A tree without the fills of some slots of its layers.
fn emptied(tree: &ArchTree, gone: &dyn Fn(u32, &str) -> bool) -> ArchTree {
    let mut out = tree.clone();
    let mut done: BTreeMap<(*const Applied, Vec<String>), Rc<Applied>> = BTreeMap::new();
    for (number, layer) in out.layers.iter_mut().enumerate() {
        let names = layer.applied.slots.keys().filter(|name| gone(number as u32, name));
        let names: Vec<String> = names.cloned().collect();
        let key = (Rc::as_ptr(&layer.applied), names);
        if let Some(known) = done.get(&key) {
            layer.applied = known.clone();
            continue;
        }
        let mut bare = (*layer.applied).clone();
        bare.slots.retain(|name, _| !key.1.contains(name));
        let bare = Rc::new(bare);
        done.insert(key, bare.clone());
        layer.applied = bare;
    }
    out
}
