//! A treated arm against the base, each at one point of the grid.

use lab::comparison::tunes;
use serde::Serialize;

use super::comparison::Comparison;
use super::design::{ChosenAmong, Design, NOT_CONTROLLED, SelectionRule};
use super::metric::{metric_name, unit};
use super::runs::{Arm, ArmRun, paired};
use super::training_overlap::{TrainingOverlap, training_overlap};
use super::unit::Unit;

/// A treated arm, and the points at which it and the base are compared.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// The comparison that both arms belong to.
    pub comparison: &'a Comparison,
    /// The treated arm.
    pub arm: &'a Arm,
    /// The base.
    pub base: &'a Arm,
    /// The replicate of the base with other seeds, at the base's point.
    pub replicate: Option<&'a Arm>,
    /// Index of the treated arm's point.
    pub arm_point: usize,
    /// Index of the base's point, also that of its replicate.
    pub base_point: usize,
    /// The number of seeds that a stopping rule needed to decide; later ones are not shown. `None` means all.
    pub seeds: Option<usize>,
    /// The rule that chose the points by the values of these runs; `None` for points that nothing chose.
    pub chosen_by: Option<SelectionRule>,
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
    /// The number of seeds without a difference.
    pub fn without_difference(self) -> usize {
        self.base + self.treated + self.both
    }

    /// The suffix of a difference over `count` of these seeds, and of its word; empty if all have one.
    pub(crate) fn suffix(self, count: usize) -> String {
        let DivergedSeeds { pairs, base, treated, both } = self;
        let diverged: String =
            [(treated, "diverged"), (base, "of the base diverged"), (both, "of both diverged")]
                .into_iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, which)| format!(", {count} {which}"))
                .collect();
        if count == pairs { String::new() } else { format!(" ({count} of {pairs}{diverged})") }
    }
}

impl Comparison {
    /// Each treatment arm paired with the base at the chosen points, or at every point if none can be chosen.
    pub fn pairs(&self) -> Vec<Pair<'_>> {
        let Some(base) = self.base() else { return Vec::new() };
        self.treated()
            .flat_map(|arm| match (self.chosen(arm), self.chosen(base)) {
                (Some(of_arm), Some(of_base)) => {
                    vec![self.pair(base, arm, of_arm, of_base, self.rule(self.selection.per_arm))]
                }
                (Some(_) | None, _) => {
                    (0..self.points.len()).map(|p| self.pair(base, arm, p, p, None)).collect()
                }
            })
            .collect()
    }

    /// Each treated arm against the base at equal points, point by point, without a choice.
    pub(super) fn pairs_at_each_point(&self) -> Vec<Pair<'_>> {
        let Some(base) = self.base() else { return Vec::new() };
        let at = |arm, point| self.pair(base, arm, point, point, None);
        self.treated()
            .flat_map(|arm| (0..self.points.len()).map(move |point| at(arm, point)))
            .collect()
    }

    /// Each treated arm against the base by one of the two rules, if it can choose.
    pub(super) fn pairs_by(&self, per_arm: bool) -> Vec<Pair<'_>> {
        let Some(base) = self.base() else { return Vec::new() };
        let pair = |arm| {
            let arm_point = self.chosen_by(arm, per_arm)?;
            let base_point = self.chosen_by(base, per_arm)?;
            Some(self.pair(base, arm, arm_point, base_point, self.rule(per_arm)))
        };
        self.treated().filter_map(pair).collect()
    }

    /// A rule, where there are several points to choose from.
    fn rule(&self, per_arm: bool) -> Option<SelectionRule> {
        self.has_grid().then(|| SelectionRule::new(per_arm))
    }

    fn pair<'a>(
        &'a self,
        base: &'a Arm,
        arm: &'a Arm,
        arm_point: usize,
        base_point: usize,
        chosen_by: Option<SelectionRule>,
    ) -> Pair<'a> {
        let replicate = self.replicate();
        let seeds = self.decided_after(base, arm);
        Pair { comparison: self, arm, base, replicate, arm_point, base_point, seeds, chosen_by }
    }
}

impl<'a> Pair<'a> {
    /// The base's runs, in order of seeds, as far as they are shown.
    pub fn base_runs(&self) -> &'a [ArmRun] {
        self.shown(self.base.points.get(self.base_point))
    }

    /// The treated arm's runs, in order of seeds, as far as they are shown.
    pub fn arm_runs(&self) -> &'a [ArmRun] {
        self.shown(self.arm.points.get(self.arm_point))
    }

    /// The replicate's runs, in order of seeds, as far as they are shown; empty without a replicate.
    pub fn replicate_runs(&self) -> &'a [ArmRun] {
        self.shown(self.replicate.and_then(|arm| arm.points.get(self.base_point)))
    }

    /// The runs of a point in order of seeds, up to the look that decided.
    fn shown(&self, runs: Option<&'a Vec<ArmRun>>) -> &'a [ArmRun] {
        let runs = runs.map_or(&[][..], Vec::as_slice);
        let count = match self.seeds {
            None => runs.len(),
            Some(seeds) => runs.partition_point(|run| run.seed < seeds),
        };
        runs.get(..count).unwrap_or(runs)
    }

    /// The number of seeds of the pair, and how many of them diverged.
    pub fn diverged_seeds(&self) -> DivergedSeeds {
        let mut seeds = DivergedSeeds::default();
        for (base, treated) in paired(self.base_runs(), self.arm_runs()) {
            seeds.pairs += 1;
            match (base.curves.diverged.is_some(), treated.curves.diverged.is_some()) {
                (true, true) => seeds.both += 1,
                (true, false) => seeds.base += 1,
                (false, true) => seeds.treated += 1,
                (false, false) => {}
            }
        }
        seeds
    }

    /// What training contained of a metric's questions, in all runs of the pair.
    pub(super) fn overlap(&self, metric: &str) -> Option<TrainingOverlap> {
        let runs = [self.base_runs(), self.arm_runs(), self.replicate_runs()];
        let runs = runs.into_iter().flatten();
        training_overlap(metric, runs.filter_map(|run| run.shown.as_ref()))
    }

    /// Whether some step times of both arms were not measured on one machine, in one session.
    pub(super) fn is_timed_apart(&self) -> bool {
        let (base, arm) = (self.base_runs(), self.arm_runs());
        let timed = |runs: &[ArmRun]| runs.iter().any(|run| run.curves.step_seconds.is_some());
        let alike = |(a, b): (&ArmRun, &ArmRun)| a.curves.is_timed_with(&b.curves);
        timed(base) && timed(arm) && !paired(base, arm).into_iter().all(alike)
    }

    /// The design at these points.
    pub fn design(&self) -> Design {
        let proof = &self.comparison.proof;
        let at_equal_points = proof.design(&self.arm.name);
        match self.arm_point == self.base_point {
            true => at_equal_points,
            false
                if at_equal_points.is_controlled()
                    && proof.has_equal_budget(&self.arm.name)
                    && proof.axes.iter().all(|axis| tunes(&axis.path)) =>
            {
                Design::Tuned
            }
            false => Design::NotControlled,
        }
    }

    /// The design in one line.
    pub fn standing(&self) -> String {
        let Comparison { proof, points, .. } = self.comparison;
        let verdict = proof.standing(&self.arm.name);
        if self.arm_point == self.base_point || !proof.design(&self.arm.name).is_controlled() {
            return verdict;
        }
        let fields = proof.grid_fields();
        let arm = self.comparison.at(&self.arm.name, self.arm_point);
        let base = self.comparison.at(&self.base.name, self.base_point);
        match self.design() == Design::Tuned {
            true => format!(
                "tuned: {arm} and {base} are each arm's best of the same {} points, so they also differ in {fields}; \
                 at equal points {verdict}",
                points.len()
            ),
            false => format!(
                "{NOT_CONTROLLED}: {arm} and {base} differ in {fields}, beyond tuning or beside their budgets; at equal \
                 points {verdict}"
            ),
        }
    }

    /// Among what a rule chose the points of a row, if the choice concerns it. It does not concern times: no rule
    /// chooses by them.
    pub(super) fn chosen_among(&self, metric: &str) -> Option<ChosenAmong> {
        let rule = self.chosen_by?;
        let count = self.comparison.points.len();
        match unit(metric) {
            Unit::Seconds => None,
            Unit::Nats | Unit::Share | Unit::Count | Unit::Unknown => Some(match rule {
                SelectionRule::PerArm => ChosenAmong {
                    treated: count,
                    base: count,
                    best_of_each: metric == metric_name(&self.comparison.selection.metric),
                },
                SelectionRule::OfBase => {
                    ChosenAmong { treated: 1, base: count, best_of_each: false }
                }
            }),
        }
    }
}
