//! Diverged runs, which are results too.
//!
//! In: the runs of a comparison. Out: the number of diverged runs, and sentences about them. Must stay true: a
//! diverged run has no metric values and counts in every number of runs; a mean or a difference of the other runs is
//! always shown with that count.

use serde::Serialize;

use super::{Comparison, Pair, Role, Run, at, paired};

/// The number of diverged runs.
pub(crate) fn diverged(runs: &[Run]) -> usize {
    runs.iter().filter(|run| run.curves.diverged.is_some()).count()
}

/// The suffix of a mean over `had` of these runs; empty if all have the value.
pub(super) fn of_runs(had: usize, runs: &[Run]) -> String {
    match (had == runs.len(), diverged(runs)) {
        (true, _) => String::new(),
        (false, 0) => format!(" ({had} of {})", runs.len()),
        (false, diverged) => format!(" ({had} of {}, {diverged} diverged)", runs.len()),
    }
}

/// The text in place of a mean that no run has.
pub(super) fn of_none(runs: &[Run], nothing: &str) -> String {
    match diverged(runs) {
        0 => nothing.to_owned(),
        diverged => format!("{diverged} of {} diverged", runs.len()),
    }
}

/// Seeds of a pair of arms, and the seeds without a difference because a run diverged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DivergedSeeds {
    /// Number of seeds.
    pub pairs: usize,
    /// Only the base diverged.
    pub base: usize,
    /// Only the treated run diverged.
    pub treated: usize,
    /// Both runs diverged.
    pub both: usize,
}

impl DivergedSeeds {
    /// The suffix of a difference over `had` of these seeds, and of its word; empty if all have one.
    pub(crate) fn suffix(self, had: usize) -> String {
        let DivergedSeeds { pairs, base, treated, both } = self;
        let counts =
            [(treated, "diverged"), (base, "of the base diverged"), (both, "of both diverged")];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let lost: String = counts.map(|(count, what)| format!(", {count} {what}")).collect();
        if had == pairs { String::new() } else { format!(" ({had} of {pairs}{lost})") }
    }
}

impl Pair<'_> {
    /// The number of seeds of the pair, and how many of them diverged.
    pub fn lost(&self) -> DivergedSeeds {
        let mut lost = DivergedSeeds::default();
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
    /// One sentence for each treated arm with runs that were attested on other machines than the base's runs of the same
    /// seed.
    pub(super) fn other_machines(&self) -> Vec<String> {
        let Some(base) = self.base() else { return Vec::new() };
        let mut said = Vec::new();
        for arm in self.arms.iter().filter(|arm| arm.role == Role::Treatment) {
            let (mut other, mut paired) = (0, 0);
            for (ours, theirs) in arm.points.iter().zip(&base.points) {
                for run in ours {
                    let Some(twin) = theirs.iter().find(|twin| twin.seed == run.seed) else {
                        continue;
                    };
                    paired += 1;
                    other += usize::from(run.curves.machine() != twin.curves.machine());
                }
            }
            if other > 0 {
                said.push(format!(
                    "Warning: {other} of {} of {} with {} were trained on two machines or platforms; a part of their \
                     differences may be rounding.",
                    dsl::counted(paired, "pair"),
                    arm.name,
                    base.name
                ));
            }
        }
        said
    }

    /// One sentence for each arm and point with diverged runs.
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
                let rest = match which.len() == runs.len() {
                    true => "there is no mean and no difference, and the point ranks last",
                    false => {
                        "means and differences are of the other runs and leave the worst results out; a point where a \
                         run diverged ranks below each one where fewer did"
                    }
                };
                said.push(format!(
                    "Warning: {} of {} runs of {} diverged ({}): {rest}.",
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
