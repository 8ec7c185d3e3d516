//! The second proof for slots: without them, both arms are one architecture.
//!
//! Erasure starts from an arm's own fills, not from those that substitution inserted. If erasure fails, the reason is a
//! confound.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::definitions::differing_definitions;
use super::direction::Direction;
use super::index::{FieldAt, Layer};
use super::judge::Judge;
use super::model::{Change, Erased};
use super::treatment::TreatmentEntry;
use compiler::canonical::identify;
use compiler::erase::erase;
use compiler::program::Compiled;
use compiler::tree::{Applied, ArchTree};

impl Judge<'_> {
    /// Compares the digests without slots to the result of the directions. `reversed` is the judge
    /// of the second direction.
    pub(super) fn erasures(
        &self,
        entries: &[TreatmentEntry],
        directions: [&Direction; 2],
        reversed: &Judge<'_>,
    ) -> (Option<Erased>, Vec<Change>) {
        let slots: BTreeSet<Slot<'_>> = entries
            .iter()
            .flat_map(|entry| &entry.cells)
            .filter_map(|(path, layers)| Some((slot_below(path)?, layers)))
            .filter(|(slot, _)| !slot.contains('.'))
            .flat_map(|(slot, layers)| layers.iter().map(move |layer| (numbered(*layer), slot)))
            .collect();
        if slots.is_empty() {
            return (None, Vec::new());
        }
        let mut shown = None;
        let mut unlike = Vec::new();
        for (judge, direction) in [self, reversed].into_iter().zip(directions) {
            let Some(substituted) = &direction.substituted else { continue };
            // If the substitution failed, its own differences already explain why.
            let deciding = direction.arch_equal;
            match judge.erased(&substituted.cells, &slots) {
                Ok(erased) => {
                    if deciding && !erased.equal() {
                        unlike.push(Change::of_arms(format!(
                            "with slots {} erased, the arms are different architectures, although each becomes the other with its fills",
                            erased.slots.join(", ")
                        )));
                    }
                    let forward = judge.letters == self.letters;
                    shown = shown.or_else(|| Some(if forward { erased } else { erased.flipped() }));
                }
                Err(reason) if deciding => unlike.push(Change::of_arms(reason)),
                Err(_) => {}
            }
        }
        if !unlike.is_empty() {
            unlike.extend(differing_definitions(self.definitions, &self.sources));
        }
        (shown, unlike)
    }

    /// Both arms without the slots of the treatment; arm a has b's values at the rest of the treatment.
    fn erased(
        &self,
        cells: &BTreeSet<FieldAt>,
        slots: &BTreeSet<Slot<'_>>,
    ) -> Result<Erased, String> {
        let gone = |layer: Option<u32>, name: &str| slots.contains(&(layer, name));
        let without = |arch: &Compiled| identify(&erase(&arch.graph, &gone));
        let called = |(layer, name): &Slot<'_>| match layer {
            Some(_) => (*name).to_owned(),
            None => format!("head.slots.{name}"),
        };
        let names: BTreeSet<String> = slots.iter().map(called).collect();
        let shown = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        // Remove arm a's fills first: with them, the rest of the treatment may not compile.
        let bare = emptied(self.trees[0], &gone);
        let fails = |reason: String| {
            let letter = self.letters[0];
            format!("arm {letter} without its fills of {shown} cannot be judged: {reason}")
        };
        let empty = self.compile(&bare).map_err(fails)?.identity;
        let ours = without(self.archs[0]);
        if (empty.graph, empty.manifest) != (ours.graph, ours.manifest) {
            let reason =
                "its graph and its fields without these fills describe different architectures";
            return Err(fails(reason.to_owned()));
        }
        let rest: BTreeSet<FieldAt> = cells
            .iter()
            .filter(|(path, layer)| {
                let slot = slot_below(path).map(|below| below.split('.').next().unwrap_or(below));
                !slot.is_some_and(|slot| gone(numbered(*layer), slot))
            })
            .cloned()
            .collect();
        let a = self.with_cells(&bare, &rest).map_err(fails)?.identity;
        let b = without(self.archs[1]);
        Ok(Erased {
            slots: names.into_iter().collect(),
            graph: [a.graph, b.graph],
            manifest: [a.manifest, b.manifest],
        })
    }
}

/// A slot: its layer (`None` for the head) and its name.
type Slot<'a> = (Option<u32>, &'a str);

/// The part of a path below the slots of a layer or of the head: `A`, `A.kernel`.
fn slot_below(path: &str) -> Option<&str> {
    ["arch.layers.*.slots.", "arch.head.slots."].iter().find_map(|slots| path.strip_prefix(slots))
}

fn numbered(layer: Layer) -> Option<u32> {
    layer.map(|layer| layer as u32)
}

/// A tree with the fills of some slots removed.
fn emptied(tree: &ArchTree, gone: &dyn Fn(Option<u32>, &str) -> bool) -> ArchTree {
    let mut out = tree.clone();
    if let Some(head) = &out.head
        && head.slots.keys().any(|name| gone(None, name))
    {
        let mut bare = (**head).clone();
        bare.slots.retain(|name, _| !gone(None, name));
        out.head = Some(Rc::new(bare));
    }
    let mut done: BTreeMap<(*const Applied, Vec<String>), Rc<Applied>> = BTreeMap::new();
    for (number, layer) in out.layers.iter_mut().enumerate() {
        let names = layer.applied.slots.keys().filter(|name| gone(Some(number as u32), name));
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
