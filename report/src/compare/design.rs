//! The design of each pair of points: what its difference can be attributed to, and among what its points were chosen.

use lab::comparison::tunes;
use lab::verdict::{Outcome, Verdict};
use serde::Serialize;

use super::proved::NOT_CONTROLLED;
use super::{Comparison, NoInterval, Pair, Row, Run, Unit, at, called, diverged, metric_of, unit};
use crate::statistics::equivalence::{Margin, two_one_sided};
use crate::statistics::{Paired, tuned};

/// What a pair of points shows.
///
/// In the order of what is left open: of several pairs, the greatest design is that of all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Design {
    /// The arms differ in one declared factor.
    Controlled,
    /// The arms differ in one declared factor, and in a size that was adjusted to keep a quantity equal.
    Compensated,
    /// The arms differ in several declared factors.
    Bundle,
    /// Each arm is at its own best of the same points, so that they also differ in the fields of the grid.
    Tuned,
    /// No proof says in what the arms differ.
    NotControlled,
}

/// A rule that chooses points of a grid by the values of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Each arm at its own best point.
    PerArm,
    /// All arms at the base's best point.
    OfBase,
}

impl Rule {
    /// By the flag in `[selection]`.
    pub(super) fn new(per_arm: bool) -> Rule {
        if per_arm { Rule::PerArm } else { Rule::OfBase }
    }
}

/// The number of points among which those of a row were chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ChosenAmong {
    /// Points of the treated arm; 1 if the base's point was taken.
    pub treated: usize,
    /// Points of the base.
    pub base: usize,
    /// Whether interval and p are those of the best of each arm; else they allow for every pair that could have been
    /// chosen.
    pub best_of_each: bool,
}

impl ChosenAmong {
    /// What interval and p allow for.
    pub(crate) fn text(self) -> String {
        let ChosenAmong { treated, base, best_of_each } = self;
        match best_of_each || treated > 1 {
            true => format!("allows for each arm's choice among {base} points"),
            false => format!("allows for the base's choice among {base} points"),
        }
    }
}

impl Design {
    /// The design of two runs that no comparison holds, by the verdict on their locks.
    pub(crate) fn of(verdict: &Verdict) -> Design {
        match verdict.outcome {
            Outcome::Identical | Outcome::Controlled => Design::Controlled,
            Outcome::Bundle(_) => Design::Bundle,
            Outcome::Confounded(_) => Design::NotControlled,
        }
    }

    /// Whether the arms differ in nothing but what was declared.
    pub fn is_controlled(self) -> bool {
        match self {
            Design::Controlled | Design::Bundle | Design::Compensated => true,
            Design::Tuned | Design::NotControlled => false,
        }
    }

    /// Whether a difference is due to one declared factor.
    pub fn is_attributable(self) -> bool {
        self == Design::Controlled
    }
}

impl Comparison {
    /// The fields of the grid, in its order.
    pub(super) fn grid_fields(&self) -> String {
        let paths: Vec<&str> = self.proved.axes.iter().map(|axis| axis.path.as_str()).collect();
        if paths.is_empty() { "the grid's fields".to_owned() } else { paths.join(", ") }
    }
}

impl Pair<'_> {
    /// The design at these points.
    pub fn design(&self) -> Design {
        let at_equal_points = self.of.proved.design(&self.arm.name);
        match self.arm_point == self.base_point {
            true => at_equal_points,
            false
                if at_equal_points.is_controlled()
                    && self.of.proved.has_equal_budget(&self.arm.name)
                    && self.of.proved.axes.iter().all(|axis| tunes(&axis.path)) =>
            {
                Design::Tuned
            }
            false => Design::NotControlled,
        }
    }

    /// The design in one line.
    pub fn standing(&self) -> String {
        let verdict = self.of.standing(&self.arm.name);
        let at_equal_points = self.of.proved.design(&self.arm.name);
        if self.arm_point == self.base_point || !at_equal_points.is_controlled() {
            return verdict;
        }
        let fields = self.of.grid_fields();
        let [arm, base] = [(&self.arm.name, self.arm_point), (&self.base.name, self.base_point)]
            .map(|(name, point)| at(self.of, name, point));
        match self.design() == Design::Tuned {
            true => format!(
                "tuned: {arm} and {base} are each arm's best of the same {} points, so they also differ in {fields}; \
                 at equal points {verdict}",
                self.of.points.len()
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
        let count = self.of.points.len();
        match unit(metric) {
            Unit::Seconds => None,
            Unit::Nats | Unit::Share | Unit::Count | Unit::Unknown => Some(match rule {
                Rule::PerArm => ChosenAmong {
                    treated: count,
                    base: count,
                    best_of_each: metric == called(&self.of.selection.metric),
                },
                Rule::OfBase => ChosenAmong { treated: 1, base: count, best_of_each: false },
            }),
        }
    }

    /// The result of a row with an interval and a p value that hold although its points were chosen by these runs.
    pub(super) fn allowing_for_choice(
        &self,
        metric: &str,
        pair: Paired,
        chosen: Option<ChosenAmong>,
    ) -> Result<Paired, NoInterval> {
        match chosen {
            None => Ok(pair),
            Some(ChosenAmong { treated, base, best_of_each: false }) => {
                Ok(tuned::among(treated * base, pair))
            }
            Some(ChosenAmong { best_of_each: true, .. }) => self
                .best_of_each(metric, pair, None)
                .map(|found| found.result)
                .map_err(NoInterval::Undefined),
        }
    }

    /// P value of the hypothesis that the true difference is at or beyond the margin, allowing for the choice.
    pub(super) fn equivalence_allowing_for_choice(
        &self,
        row: &Row,
        among: ChosenAmong,
        margin: Margin,
    ) -> Option<f64> {
        let result = row.result.ok()?;
        let ChosenAmong { treated, base, best_of_each } = among;
        if best_of_each {
            return self.best_of_each(&row.metric, result, Some(margin)).ok()?.p_equivalence;
        }
        Some(((treated * base) as f64 * two_one_sided(&result, margin)).min(1.0))
    }

    fn best_of_each(
        &self,
        metric: &str,
        pair: Paired,
        margin: Option<Margin>,
    ) -> Result<tuned::Chosen, crate::statistics::Undefined> {
        let seeds =
            self.base.points.iter().chain(&self.arm.points).flatten().map(|run| run.seed + 1);
        let seeds = seeds.max().unwrap_or(0);
        let [treated, base] =
            [&self.arm.points, &self.base.points].map(|points| candidates(points, metric, seeds));
        tuned::best_of_each(&treated, &base, pair, super::better(metric), margin)
    }
}

/// The values of each point by seed; `None` for a point that ranks behind others, since more of its runs diverged.
fn candidates(points: &[Vec<Run>], metric: &str, seeds: usize) -> Vec<Option<Vec<Option<f64>>>> {
    let least = points.iter().map(|runs| diverged(runs)).min().unwrap_or(0);
    let by_seed = |runs: &Vec<Run>| {
        let of = |seed| runs.iter().find(|run| run.seed == seed);
        (0..seeds).map(|seed| metric_of(of(seed)?, metric)).collect()
    };
    points.iter().map(|runs| (diverged(runs) == least).then(|| by_seed(runs))).collect()
}
