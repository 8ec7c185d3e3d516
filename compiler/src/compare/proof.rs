//! The second proof for slots: both arms without them are one architecture.
//!
//! In: the treatment and both directions. Out: digests that a person can compare, and a confound where they
//! contradict the directions. Must stay true: erasure starts from an arm's own fills, not from those that
//! substitution put there; where it cannot be carried out, the reason is a confound.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::definitions::differing_definitions;
use super::direction::Direction;
use super::treatment::Entry;
use super::{Cell, Change, Erased, Judge};
use crate::canonical::identify;
use crate::erase::erase;
use crate::program::Compiled;
use crate::tree::{Applied, ArchTree};

impl Judge<'_> {
    /// The digests without the slots, and what they show beside the directions. `reversed` is the judge
    /// of the second direction.
    pub(super) fn erasures(
        &self,
        entries: &[Entry],
        directions: [&Direction; 2],
        reversed: &Judge<'_>,
    ) -> (Option<Erased>, Vec<Change>) {
        let slots: BTreeSet<(u32, &str)> = entries
            .iter()
            .flat_map(|entry| &entry.cells)
            .filter_map(|(path, layers)| Some((path.strip_prefix("arch.layers.*.slots.")?, layers)))
            .filter(|(slot, _)| !slot.contains('.'))
            .flat_map(|(slot, layers)| layers.iter().flatten().map(move |n| (*n as u32, slot)))
            .collect();
        if slots.is_empty() {
            return (None, Vec::new());
        }
        let mut shown = None;
        let mut unlike = Vec::new();
        for (judge, direction) in [self, reversed].into_iter().zip(directions) {
            let Some(made) = &direction.made else { continue };
            // Where the substitution failed already, its own differences explain why.
            let deciding = direction.arch_equal;
            match judge.erased(&made.places, &slots) {
                Ok(erased) => {
                    if deciding && !erased.equal() {
                        unlike.push(Change::whole(format!(
                            "slots {} erased, the arms are different architectures, although each becomes the other with its fills",
                            erased.slots.join(", ")
                        )));
                    }
                    let forward = judge.letters == self.letters;
                    shown = shown.or_else(|| Some(if forward { erased } else { erased.flipped() }));
                }
                Err(why) if deciding => unlike.push(Change::whole(why)),
                Err(_) => {}
            }
        }
        if !unlike.is_empty() {
            unlike.extend(differing_definitions(self.definitions, &self.sources));
        }
        (shown, unlike)
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
            let letter = self.letters[0];
            format!("arm {letter} without its fills of {shown} cannot be judged: {why}")
        };
        let empty = self.compile(&bare).map_err(fails)?.identity;
        let ours = without(self.archs[0]);
        if (empty.graph, empty.manifest) != (ours.graph, ours.manifest) {
            let why =
                "its graph without them and its fields without them are different architectures";
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
