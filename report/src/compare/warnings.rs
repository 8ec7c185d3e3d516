//! Facts that weaken a number of a comparison, one sentence each.

use super::comparison::{AxisEnd, Comparison, Edge};
use super::proof::MatchedQuantity;
use super::runs::{Arm, ArmRun, Role};

/// Warn if a match allows more than this share.
const LOOSE: f64 = 0.05;

impl Comparison {
    /// Facts that weaken a number, one sentence each.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.proof.other_records.warnings();
        warnings.extend(self.proof.repeated.iter().cloned());
        warnings.extend(self.mixed_seeds());
        warnings.extend(self.divergences());
        warnings.extend(self.unused_times());
        warnings.extend(self.other_machines());
        warnings.extend(self.loose_matches());
        if self.has_grid() {
            let judged = self.arms.iter().filter(|arm| arm.role != Role::Replicate);
            warnings.extend(judged.flat_map(|arm| self.doubtful_best_point(arm)));
        }
        warnings
    }

    /// One sentence for each arm and point with diverged runs.
    fn divergences(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for arm in &self.arms {
            for (point, runs) in arm.points.iter().enumerate() {
                let seed = |run: &ArmRun| {
                    Some(format!("seed {} at step {}", run.seed + 1, run.curves.diverged?))
                };
                let diverged: Vec<String> = runs.iter().filter_map(seed).collect();
                if diverged.is_empty() {
                    continue;
                }
                let consequence = match diverged.len() == runs.len() {
                    true => "there is no mean and no difference, and the point ranks last",
                    false => {
                        "means and differences are of the other runs and leave the worst results out; a point where a \
                         run diverged ranks below each one where fewer did"
                    }
                };
                warnings.push(format!(
                    "Warning: {} of {} runs of {} diverged ({}): {consequence}.",
                    diverged.len(),
                    runs.len(),
                    self.at(&arm.name, point),
                    diverged.join(", ")
                ));
            }
        }
        warnings
    }

    fn unused_times(&self) -> impl Iterator<Item = String> {
        self.runs().filter_map(|run| {
            let reason = run.curves.untimed.as_ref()?;
            Some(format!(
                "Warning: the times of a run are not used: {reason}; `canonc verify` lists its faults."
            ))
        })
    }

    /// One sentence for each treated arm with runs that were attested on other machines than the base's runs of the same
    /// seed.
    fn other_machines(&self) -> Vec<String> {
        let Some(base) = self.base() else { return Vec::new() };
        let warning = |arm: &Arm| {
            let pairs = arm.points.iter().zip(&base.points).flat_map(|(treated, base)| {
                treated.iter().filter_map(|run| {
                    Some((run, base.iter().find(|other| other.seed == run.seed)?))
                })
            });
            let pairs: Vec<(&ArmRun, &ArmRun)> = pairs.collect();
            let apart =
                |(run, base): &&(&ArmRun, &ArmRun)| run.curves.machine() != base.curves.machine();
            let other = pairs.iter().filter(apart).count();
            (other > 0).then(|| {
                format!(
                    "Warning: {other} of {} of {} with {} were trained on two machines or platforms; a part of their \
                     differences may be rounding.",
                    dsl::counted(pairs.len(), "pair"),
                    arm.name,
                    base.name
                )
            })
        };
        self.treated().filter_map(warning).collect()
    }

    /// Arms with a `[match]` so loose that the matched quantity may explain a difference.
    fn loose_matches(&self) -> impl Iterator<Item = String> {
        self.proof.claims.iter().filter_map(|(arm, claim)| {
            let MatchedQuantity { on, within, apart, .. } = claim.matched.as_ref()?;
            let share: f64 = within.parse().ok()?;
            (share > LOOSE).then(|| {
                format!(
                    "Warning: [match] allows {arm} {within} of the base's {on} ({apart}): with more than {LOOSE}, \
                     {on} could explain a difference."
                )
            })
        })
    }

    /// A best point that is one of several equal ones, or at the end of an axis.
    fn doubtful_best_point(&self, arm: &Arm) -> Vec<String> {
        let best = self.best_points(arm);
        let Some(first) = best.first().copied() else { return Vec::new() };
        let shared = (best.len() > 1).then(|| {
            format!(
                "Warning: {} of {} points of {} have the same best {}; the first of them, {}, is taken.",
                best.len(),
                self.points.len(),
                arm.name,
                self.judged_by(),
                self.points.get(first).map_or("", String::as_str)
            )
        });
        let at_the_edge = self.edges(first).into_iter().map(|Edge { path, end }| {
            let end = match end {
                AxisEnd::Lowest => "lowest",
                AxisEnd::Highest => "highest",
            };
            format!(
                "Warning: the best point of {} has the {end} {path} of the grid: the optimum may be outside.",
                self.at(&arm.name, first)
            )
        });
        shared.into_iter().chain(at_the_edge).collect()
    }
}

#[cfg(test)]
mod tests {
    use lab::comparison::SelectionMode;

    use super::super::made_up::{by, three_points, two_seeds};
    use super::*;

    #[test]
    fn equal_best_points_are_warned_of() {
        let mut comparison = three_points(true);
        comparison.selection = by("token_accuracy", SelectionMode::Max, true);
        let warnings = comparison.warnings();
        let wanted = "Warning: 3 of 3 points of llama have the same best token_accuracy; the first of them, \
                      optimizer.lr 0.001, is taken.";
        assert_eq!(warnings[0], wanted);
        assert_eq!(warnings.len(), 4, "{warnings:?}");
    }

    #[test]
    fn a_best_point_at_an_end_of_the_grid_is_warned_of() {
        for per_arm in [true, false] {
            let wanted = "Warning: the best point of canon (optimizer.lr 0.004) has the highest optimizer.lr of the \
                          grid: the optimum may be outside.";
            // The base's best point is inside.
            assert_eq!(three_points(per_arm).warnings(), [wanted]);
        }
    }

    #[test]
    fn a_match_of_more_than_five_percent_is_warned_of() {
        for (within, warnings) in [("0.05", 0), ("0.051", 1)] {
            let mut comparison = two_seeds();
            let claim = comparison.proof.claims.get_mut("canon").unwrap();
            claim.matched = Some(MatchedQuantity {
                on: "parameters",
                path: "arch.parameters",
                within: within.to_owned(),
                base: 100,
                arm: 108,
                apart: "+8%".to_owned(),
            });
            let warned = comparison.warnings();
            assert_eq!(warned.len(), warnings);
            assert!(warned.iter().all(|warning| {
                warning.starts_with(
                    "Warning: [match] allows canon 0.051 of the base's parameters (+8%)",
                )
            }));
        }
    }

    #[test]
    fn a_point_where_every_run_diverged_has_no_other_runs() {
        let mut comparison = three_points(true);
        for run in comparison.arms[0].points.iter_mut().flatten() {
            run.curves.diverged = Some(7);
        }
        let warning = &comparison.warnings()[0];
        assert!(
            warning.starts_with("Warning: 3 of 3 runs of llama (optimizer.lr 0.001)"),
            "{warning}"
        );
        assert!(!warning.contains("the other runs"), "{warning}");
    }
}
