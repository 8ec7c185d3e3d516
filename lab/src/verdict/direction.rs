//! One direction of the proof: an arm with the other's values at the treatment.
//!
//! A direction whose result does not equal the other arm has at least one confound. If either direction is confounded, so is
//! the pair.

use std::collections::BTreeSet;

use super::definitions::first_difference;
use super::index::{FieldAt, Layer, Pair};
use super::judge::Judge;
use super::model::{Change, Replaced};
use super::substitute::Substituted;
use super::treatment::TreatmentEntry;
use crate::experiment::Experiment;

/// The result of giving one arm the other's values.
#[derive(Default)]
pub(super) struct Direction {
    /// The arm with the other's values; `None` if it cannot be built.
    pub(super) substituted: Option<Substituted>,
    /// Whether the new arch equals the other arm's.
    pub(super) arch_equal: bool,
    pub(super) confounds: Vec<Change>,
    pub(super) consequences: Vec<Change>,
    pub(super) cosmetic: Vec<Change>,
}

impl Direction {
    /// The evidence of this direction, for the proof.
    pub(super) fn replaced(&self, judge: &Judge<'_>) -> Replaced {
        let substituted = self.substituted.as_ref().map(|substituted| &substituted.arch.identity);
        let theirs = &judge.archs[1].identity;
        Replaced {
            graph: [substituted.map(|substituted| substituted.graph), Some(theirs.graph)],
            manifest: [substituted.map(|substituted| substituted.manifest), Some(theirs.manifest)],
        }
    }
}

impl Judge<'_> {
    pub(super) fn direction(&self, entries: &[TreatmentEntry]) -> Direction {
        let cells: BTreeSet<FieldAt> = entries.iter().flat_map(TreatmentEntry::cells_at).collect();
        let fields: BTreeSet<&'static str> =
            entries.iter().flat_map(|entry| entry.fields.iter().copied()).collect();
        let brought: BTreeSet<&'static str> =
            entries.iter().flat_map(|entry| entry.brought.iter().copied()).collect();
        let mut out = Direction::default();
        let equal = match self.substitute(&cells, &fields) {
            Ok(substituted) => {
                out.arch_equal = self.archs_equal(&substituted.arch);
                let equal = self.texts_equal(&substituted);
                out.substituted = Some(substituted);
                equal
            }
            Err(reason) => {
                let [ours, theirs] = self.letters;
                out.confounds.push(Change::of_arms(format!(
                    "arm {ours} with arm {theirs}'s values at the treatment cannot be built: {reason}"
                )));
                false
            }
        };
        // The remaining differences explain the result to people; `equal` has already decided it.
        let pair = self.pair();
        let left = match &out.substituted {
            Some(substituted) => Pair { a: &substituted.index, ..self.pair() },
            None => self.pair(),
        };
        let remaining = self.remaining_cells(&left, &cells, out.substituted.is_none());
        for (path, layers) in &remaining {
            let (free, follows): (Vec<Layer>, Vec<Layer>) = layers
                .iter()
                .partition(|layer| left.written(path, **layer) || pair.free(path, **layer));
            let group = if out.arch_equal { &mut out.cosmetic } else { &mut out.confounds };
            group.extend(self.cell_changes(path, &free));
            if !out.arch_equal {
                out.consequences.extend(self.cell_changes(path, &follows));
            }
        }
        if let Some(substituted) = out.substituted.as_ref().filter(|_| !out.arch_equal) {
            out.confounds.extend(self.unexplained(&substituted.arch, &remaining, &cells));
        }
        self.vanished(&left, &cells, &remaining, &mut out.consequences);
        let substituted =
            out.substituted.as_ref().and_then(|substituted| substituted.experiment.as_ref());
        self.table(
            substituted,
            &fields,
            &brought,
            &mut out.confounds,
            &mut out.consequences,
            &mut out.cosmetic,
        );
        if let Some(substituted) = substituted {
            out.confounds.extend(self.other_roles(substituted));
        }
        if !equal && out.confounds.is_empty() {
            out.confounds.push(self.first_difference(out.substituted.as_ref()));
        }
        out
    }

    /// Half of the definition of controlled: the identifying texts of both arms are equal byte for byte.
    fn texts_equal(&self, substituted: &Substituted) -> bool {
        match (&substituted.experiment, self.experiments) {
            (Some(substituted), Some([_, b])) => {
                substituted.train_text() == b.train_text() && measured(substituted) == measured(b)
            }
            (None, None) => self.archs_equal(&substituted.arch),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// For texts that differ although no list shows where: their first differing line.
    fn first_difference(&self, substituted: Option<&Substituted>) -> Change {
        let texts =
            substituted.and_then(|substituted| match (&substituted.experiment, self.experiments) {
                (Some(substituted), Some([_, b]))
                    if self.archs_equal(&substituted.arch.compiled) =>
                {
                    Some([substituted.train_text(), b.train_text()])
                }
                _ => {
                    let [ours, theirs] = [&substituted.arch.identity, &self.archs[1].identity];
                    let graphs = [ours.graph_text.clone(), theirs.graph_text.clone()];
                    let manifests = [ours.manifest_text.clone(), theirs.manifest_text.clone()];
                    [graphs, manifests].into_iter().find(|[a, b]| a != b)
                }
            });
        let [ours, theirs] = self.letters;
        Change::of_arms(match texts.map(|[a, b]| first_difference(&a, &b)) {
            Some((_, [line, other])) => format!(
                "with arm {theirs}'s values arm {ours} has `{line}` where arm {theirs} has `{other}`"
            ),
            None => "the measurements differ".to_owned(),
        })
    }
}

/// The measurement, without the training it applies to.
fn measured(experiment: &Experiment) -> String {
    let text = experiment.eval_text();
    text.lines().filter(|line| !line.starts_with("train = ")).collect::<Vec<_>>().join("\n")
}

/// Merges both directions. A confound in either is a confound of the pair and is listed only as such.
pub(super) fn merged(forward: Direction, backward: Direction) -> Direction {
    let mut out = forward;
    let flipped = |changes: Vec<Change>| changes.into_iter().map(Change::flipped);
    for change in flipped(backward.confounds) {
        if !out.confounds.iter().any(|known| known.same(&change)) {
            out.confounds.push(change);
        }
    }
    out.confounds.sort_by(|a, b| a.path.cmp(&b.path));
    for (group, more) in
        [(&mut out.consequences, backward.consequences), (&mut out.cosmetic, backward.cosmetic)]
    {
        for change in flipped(more) {
            if !group.iter().any(|known| known.same(&change)) {
                group.push(change);
            }
        }
        group.retain(|change| !out.confounds.iter().any(|known| known.same(change)));
    }
    out
}
