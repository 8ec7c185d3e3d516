//! All runs of a comparison, with what its lock declares: how a point of the grid is selected, which tests are made.

use lab::comparison::{Selection, SelectionMode};

use super::analysis::Analysis;
use super::costs::Costs;
use super::metric::metric_name;
use super::proof::Proof;
use super::runs::{Arm, ArmRun, Role, diverged, final_values, mean};
use super::training_overlap::{TrainingOverlap, training_overlap};

/// All runs of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The base first.
    pub arms: Vec<Arm>,
    /// Names of the grid's points; a single unnamed one without a grid.
    pub points: Vec<String>,
    /// How the lock selects a point of the grid for each arm.
    pub selection: Selection,
    /// What the lock proved. By default nothing, and then no arm is called controlled.
    pub proof: Proof,
}

impl Comparison {
    /// The base; `None` if the comparison has no arms.
    pub fn base(&self) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.role == Role::Base)
    }

    /// The treated arms.
    pub(super) fn treated(&self) -> impl Iterator<Item = &Arm> {
        self.arms.iter().filter(|arm| arm.role == Role::Treatment)
    }

    /// The treated arms, by runs or by the lock: each has its tests, also without any run.
    pub(super) fn tested(&self) -> Vec<String> {
        let mut names: Vec<String> = self.treated().map(|arm| arm.name.clone()).collect();
        for name in self.proof.claims.keys() {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    /// The runs of all arms.
    pub(super) fn runs(&self) -> impl Iterator<Item = &ArmRun> {
        self.arms.iter().flat_map(Arm::runs)
    }

    /// Whether points of a grid are to be selected.
    pub(super) fn has_grid(&self) -> bool {
        self.points.len() > 1
    }

    /// The metric of the selection rule, as named in tables.
    pub fn judged_by(&self) -> &str {
        metric_name(&self.selection.metric)
    }

    /// The declared analysis, or the default.
    pub fn analysis(&self) -> Analysis {
        let declared = self.proof.analysis.clone();
        declared.unwrap_or_else(|| Analysis::default_of(self.judged_by()))
    }

    /// The arm, and its point if there are several.
    pub(super) fn at(&self, name: &str, point: usize) -> String {
        match self.points.get(point) {
            Some(label) if !label.is_empty() => format!("{name} ({label})"),
            Some(_) | None => name.to_owned(),
        }
    }

    /// The cost of one run of an arm; the replicate costs as much as the base.
    pub(super) fn costs(&self, arm: &Arm) -> Option<Costs> {
        let name = match arm.role {
            Role::Replicate => self.base()?.name.as_str(),
            Role::Base | Role::Treatment => arm.name.as_str(),
        };
        self.proof.costs.get(name).copied()
    }

    /// What training contained of a metric's questions, in all runs.
    pub(super) fn overlap(&self, metric: &str) -> Option<TrainingOverlap> {
        training_overlap(metric, self.runs().filter_map(|run| run.shown.as_ref()))
    }

    /// An arm's point with the best mean, or the first of equal ones. Only points count where every run that did not
    /// diverge has the metric; a point with fewer diverged runs ranks before one with more.
    pub fn best(&self, arm: &Arm) -> Option<usize> {
        self.best_points(arm).first().copied()
    }

    /// All points with the best mean.
    pub(super) fn best_points(&self, arm: &Arm) -> Vec<usize> {
        let score = |runs: &Vec<ArmRun>| {
            let values = final_values(runs, self.judged_by());
            let mean = mean(&values)?;
            // Adding 0.0 makes -0.0 and 0.0 equal.
            let better_is_less = match self.selection.mode {
                SelectionMode::Min => mean + 0.0,
                SelectionMode::Max => 0.0 - mean,
            };
            let diverged = diverged(runs);
            let complete = values.len() + diverged == runs.len() && mean.is_finite();
            complete.then_some((diverged, better_is_less))
        };
        let scores = arm.points.iter().enumerate();
        let scores: Vec<(usize, (usize, f64))> =
            scores.filter_map(|(at, runs)| Some((at, score(runs)?))).collect();
        let best = scores.iter().map(|(_, score)| *score);
        let best = best.reduce(|a, b| if b < a { b } else { a });
        scores.into_iter().filter(|(_, score)| Some(*score) == best).map(|(at, _)| at).collect()
    }

    /// The point at which the locked rule judges the arm.
    pub fn chosen(&self, arm: &Arm) -> Option<usize> {
        self.chosen_by(arm, self.selection.per_arm)
    }

    /// The point at which a rule judges an arm: the arm's own best point, or the base's. The replicate is judged at the
    /// base's point. Without a grid there is only one point; `None` if the rule cannot choose.
    pub(super) fn chosen_by(&self, arm: &Arm, per_arm: bool) -> Option<usize> {
        if self.points.len() == 1 {
            return Some(0);
        }
        match arm.role {
            Role::Treatment if per_arm => self.best(arm),
            Role::Base | Role::Treatment | Role::Replicate => self.best(self.base()?),
        }
    }

    /// The ends of axes at which a point is.
    pub fn edges(&self, point: usize) -> Vec<Edge> {
        let mut edges = Vec::new();
        for axis in &self.proof.axes {
            let numbers = || axis.values.iter().flatten().copied();
            let Some(value) = axis.values.get(point).copied().flatten() else { continue };
            let (low, high) = (numbers().reduce(f64::min), numbers().reduce(f64::max));
            // An axis with one value has no ends.
            if low == high {
                continue;
            }
            let mut push = |end| edges.push(Edge { path: axis.path.clone(), end });
            if Some(value) == low {
                push(AxisEnd::Lowest);
            }
            if Some(value) == high {
                push(AxisEnd::Highest);
            }
        }
        edges
    }
}

/// An end of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AxisEnd {
    /// The smallest value.
    Lowest,
    /// The largest value.
    Highest,
}

/// An axis of the grid that ends at a point.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Edge {
    /// The field that the axis varies.
    pub path: String,
    /// The end at which the point is.
    pub end: AxisEnd,
}

#[cfg(test)]
mod tests {
    use super::super::made_up::three_points;
    use super::*;

    #[test]
    fn a_best_point_at_an_end_of_a_numeric_axis_is_an_edge() {
        let mut comparison = three_points(true);
        assert_eq!(comparison.edges(1), []);
        let highest = Edge { path: "optimizer.lr".to_owned(), end: AxisEnd::Highest };
        assert_eq!(comparison.edges(2), [highest]);
        assert_eq!(comparison.edges(7), [], "no such point");
        // In any order; words have no ends, and neither has an axis with one value.
        for (values, ends) in [
            (vec![Some(2.0), Some(1.0), Some(3.0)], [0, 1, 1]),
            (vec![Some(1.0), Some(1.0), Some(2.0)], [1, 1, 1]),
            (vec![Some(1.0); 3], [0; 3]),
            (vec![None; 3], [0; 3]),
            (vec![], [0; 3]),
        ] {
            comparison.proof.axes[0].values = values;
            assert_eq!([0, 1, 2].map(|point| comparison.edges(point).len()), ends);
        }
    }
}
