//! Runs that diverged, as results.
//!
//! In: the runs of a comparison. Out: how many of them diverged, and sentences that say so. Must stay true: a run that
//! diverged has no value of any metric and is counted wherever runs are; a mean or a difference of the other runs is
//! never shown without that count.

use serde::Serialize;

use super::{Comparison, Pair, Run, at, paired};

/// How many of these runs diverged.
pub(crate) fn diverged(runs: &[Run]) -> usize {
    runs.iter().filter(|run| run.curves.diverged.is_some()).count()
}

/// What is added to a mean over `had` of these runs: nothing where all have it.
pub(super) fn of_runs(had: usize, runs: &[Run]) -> String {
    match (had == runs.len(), diverged(runs)) {
        (true, _) => String::new(),
        (false, 0) => format!(" ({had} of {})", runs.len()),
        (false, diverged) => format!(" ({had} of {}, {diverged} diverged)", runs.len()),
    }
}

/// Instead of a mean that no run has.
pub(super) fn of_none(runs: &[Run], nothing: &str) -> String {
    match diverged(runs) {
        0 => nothing.to_owned(),
        diverged => format!("{diverged} of {} diverged", runs.len()),
    }
}

/// Seeds of a pair of arms, and those that have no difference because a run diverged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// All of them.
    pub pairs: usize,
    /// The base alone diverged.
    pub base: usize,
    /// The treated run alone diverged.
    pub treated: usize,
    pub both: usize,
}

impl Lost {
    /// What is added to a difference over `had` of these seeds, and to its word: nothing where it is of all.
    pub(crate) fn of(self, had: usize) -> String {
        let Lost { pairs, base, treated, both } = self;
        let counts =
            [(treated, "diverged"), (base, "of the base diverged"), (both, "of both diverged")];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let lost: String = counts.map(|(count, what)| format!(", {count} {what}")).collect();
        if had == pairs { String::new() } else { format!(" ({had} of {pairs}{lost})") }
    }
}

impl Pair<'_> {
    /// The seeds of the pair, and how many of them diverged.
    pub fn lost(&self) -> Lost {
        let mut lost = Lost::default();
        for (base, treated) in paired(self.base_runs(), self.arm_runs()) {
            lost.pairs += 1;
            match (base.curves.diverged.is_some(), treated.curves.diverged.is_some()) {
                (true, true) => lost.both += 1,
                (true, false) => lost.base += 1,
                (false, true) => lost.treated += 1,
                (false, false) => {}
            }
        }
        lost
    }
}

impl Comparison {
    /// Each arm and point of which a run diverged, in a sentence.
    pub(super) fn divergences(&self) -> Vec<String> {
        let mut said = Vec::new();
        for arm in &self.arms {
            for (point, runs) in arm.points.iter().enumerate() {
                let of = |run: &Run| {
                    Some(format!("seed {} at step {}", run.seed + 1, run.curves.diverged?))
                };
                let which: Vec<String> = runs.iter().filter_map(of).collect();
                if which.is_empty() {
                    continue;
                }
                said.push(format!(
                    "Warning: {} of {} runs of {} diverged ({}): means and differences are of the other runs and leave the \
                     worst results out; a point where a run diverged ranks below each one where fewer did.",
                    which.len(),
                    runs.len(),
                    at(self, &arm.name, point),
                    which.join(", ")
                ));
            }
        }
        said
    }
}
