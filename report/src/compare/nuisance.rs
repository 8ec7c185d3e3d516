//! Judging on a grid: at every point, each arm at its own best, and all arms at the base's best.
//!
//! In: a comparison with a grid. Out: the pairs that each rule compares, and warnings. Must
//! stay true: the lock fixes one rule, and the tables name it; the other rules are shown for comparison only; an
//! optimum at the end of an axis, or shared by several points, is always reported.

use super::{Arm, Claim, Comparison, Equal, Pair, Role, Rule, at};

/// Warn if a match allows more than this share.
const LOOSE: f64 = 0.05;

/// An end of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AxisEnd {
    /// The smallest value.
    Lowest,
    /// The largest value.
    Highest,
}

/// A best point at the edge of the grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The field that the axis varies.
    pub path: String,
    /// The end at which the best point is.
    pub end: AxisEnd,
}

/// Names of the two rules.
pub(crate) const PER_ARM: &str = "best per arm";
pub(crate) const OF_BASE: &str = "best of the base for all";

impl Comparison {
    fn treated(&self) -> impl Iterator<Item = &Arm> {
        self.arms.iter().filter(|arm| arm.role == Role::Treatment)
    }

    /// Each treated arm against the base at equal points, point by point, without a choice.
    pub fn at_each_point(&self) -> Vec<Pair<'_>> {
        let Some(base) = self.base() else { return Vec::new() };
        let at = |arm, point| self.pair(base, arm, point, point, None);
        self.treated()
            .flat_map(|arm| (0..self.points.len()).map(move |point| at(arm, point)))
            .collect()
    }

    /// Each treated arm against the base by one of the two rules, if it can choose.
    pub fn judged(&self, per_arm: bool) -> Vec<Pair<'_>> {
        let Some(base) = self.base() else { return Vec::new() };
        let pair = |arm| {
            let arm_point = self.chosen_by(arm, per_arm)?;
            let base_point = self.chosen_by(base, per_arm)?;
            let rule = (self.points.len() > 1).then(|| Rule::new(per_arm));
            Some(self.pair(base, arm, arm_point, base_point, rule))
        };
        self.treated().filter_map(pair).collect()
    }

    /// The ends of axes at which a point is.
    pub fn edges(&self, point: usize) -> Vec<Edge> {
        let mut edges = Vec::new();
        for axis in &self.proved.axes {
            let numbers = || axis.values.iter().flatten().copied();
            let Some(here) = axis.values.get(point).copied().flatten() else { continue };
            let (low, high) = (numbers().reduce(f64::min), numbers().reduce(f64::max));
            // An axis with one value has no ends.
            if low == high {
                continue;
            }
            let mut push = |end| edges.push(Edge { path: axis.path.clone(), end });
            if Some(here) == low {
                push(AxisEnd::Lowest);
            }
            if Some(here) == high {
                push(AxisEnd::Highest);
            }
        }
        edges
    }

    /// Arms with a `[match]` so loose that the matched quantity may explain a difference.
    fn loosely_matched(&self) -> Vec<String> {
        let loose = |(arm, claim): (&String, &Claim)| {
            let Equal { on, within, apart, .. } = claim.matched.as_ref()?;
            let share: f64 = within.parse().ok()?;
            (share > LOOSE).then(|| {
                format!(
                    "Warning: [match] allows {arm} {within} of the base's {on} ({apart}): with more than {LOOSE}, \
                     {on} could explain a difference."
                )
            })
        };
        self.proved.claims.iter().filter_map(loose).collect()
    }

    /// Facts that weaken no number, one sentence each.
    pub fn notes(&self) -> Vec<String> {
        self.proved.siblings.notes()
    }

    /// Facts that weaken a number, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.proved.siblings.warnings();
        warnings.extend(self.proved.repeated.iter().cloned());
        warnings.extend(self.divergences());
        let runs = self.arms.iter().flat_map(|arm| arm.points.iter().flatten());
        warnings.extend(runs.filter_map(|run| {
            let why = run.curves.untimed.as_ref()?;
            Some(format!(
                "Warning: the times of a run are not used: {why}; `canonc verify` lists its faults."
            ))
        }));
        warnings.extend(self.other_machines());
        warnings.extend(self.loosely_matched());
        if self.points.len() < 2 {
            return warnings;
        }
        for arm in self.arms.iter().filter(|arm| arm.role != Role::Replicate) {
            let best = self.best_points(arm);
            let Some(first) = best.first().copied() else { continue };
            if best.len() > 1 {
                warnings.push(format!(
                    "Warning: {} of {} points of {} have the same best {}; the first of them, {}, is taken.",
                    best.len(),
                    self.points.len(),
                    arm.name,
                    self.judged_by(),
                    self.points.get(first).map_or("", String::as_str)
                ));
            }
            for Edge { path, end } in self.edges(first) {
                let end = match end {
                    AxisEnd::Lowest => "lowest",
                    AxisEnd::Highest => "highest",
                };
                warnings.push(format!(
                    "Warning: the best point of {} has the {end} {path} of the grid: the optimum may be outside.",
                    at(self, &arm.name, first)
                ));
            }
        }
        warnings
    }
}
