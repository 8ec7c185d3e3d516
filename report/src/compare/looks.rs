//! Looks of a sequential stopping rule: the decisions after each seed.
//!
//! In: a comparison with a declared stopping rule. Out: for each treated arm its look after a number of seeds, and the
//! seeds that its tables show. Must stay true: looks depend only on the runs in the locked order of seeds, so they are
//! reproducible; the first decisive look of an arm counts, and its tables show the seeds up to that look, whatever
//! ran later; after a seed without a difference there is no new decision, since skipping it would make
//! the rule invalid.

use serde::Serialize;

use super::{Analysis, Arm, Comparison, Role, Unit, analysis_of, metric_of, paired, unit};
use crate::statistics::sequential::{Decision, Look, StoppingRule};

/// The file of looks in a comparison's folder: one object per line, with the id of the lock.
pub const LOOKS: &str = "looks.jsonl";

/// A look at one arm after a seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArmLook {
    /// Name of the treated arm.
    pub arm: String,
    /// The primary metric, as named in tables.
    pub metric: String,
    /// The state of its test.
    #[serde(flatten)]
    pub look: Look,
}

impl Comparison {
    /// The look at each treated arm after `seeds` seeds; empty without a stopping rule.
    pub fn looks(&self, seeds: usize) -> Vec<ArmLook> {
        let analysis = analysis_of(self);
        let (Some(most), Some(base)) = (analysis.max_seeds, self.base()) else { return Vec::new() };
        let treated = self.arms.iter().filter(|arm| arm.role == Role::Treatment);
        let looked = treated.map(|arm| ArmLook {
            arm: arm.name.clone(),
            metric: analysis.primary.clone(),
            look: self.look(&analysis, base, arm, seeds.min(most), most),
        });
        looked.collect()
    }

    /// The looks after all seeds so far, or each arm's decisive look.
    pub fn last_looks(&self) -> Vec<ArmLook> {
        self.looks(self.seeds())
    }

    /// With a stopping rule, the seeds that the rows are of: of several arms the most.
    pub fn used_seeds(&self) -> Option<usize> {
        analysis_of(self).max_seeds?;
        let seeds = self.pairs().into_iter().map(|pair| pair.seeds.unwrap_or_else(|| self.seeds()));
        seeds.max()
    }

    /// How many seeds were run.
    fn seeds(&self) -> usize {
        let runs = self.arms.iter().flat_map(|arm| arm.points.iter().flatten());
        runs.map(|run| run.seed + 1).max().unwrap_or(0)
    }

    /// The seeds after which the rule decided on an arm. The arm's tables show these.
    pub(super) fn decided_after(&self, base: &Arm, arm: &Arm) -> Option<usize> {
        let analysis = analysis_of(self);
        let most = analysis.max_seeds?;
        let look = self.look(&analysis, base, arm, self.seeds().min(most), most);
        match look.decision {
            Decision::Differs | Decision::Equivalent => Some(look.n),
            Decision::Exhausted => Some(most),
            Decision::Continue => None,
        }
    }

    /// One look at an arm, at the arm's share of the level.
    fn look(&self, analysis: &Analysis, base: &Arm, arm: &Arm, seeds: usize, most: usize) -> Look {
        let level = analysis.confidence.of_each(self.tested().len() * analysis.family.len());
        let rule = StoppingRule { margin: analysis.margin, ..StoppingRule::new(level, most) };
        // A comparison with a rule has a single point.
        let [base, arm] = [base, arm].map(|arm| arm.points.first().map_or(&[][..], Vec::as_slice));
        let pairs = paired(base, arm);
        let difference = |seed: usize| {
            let (base, arm) = pairs.iter().find(|(base, _)| base.seed == seed)?;
            let [base, arm] = [base, arm].map(|run| metric_of(run, &analysis.primary));
            Some(arm? - base?)
        };
        let judged = unit(&analysis.primary) != Unit::Seconds;
        let differences: Vec<f64> =
            (0..seeds).map_while(difference).take_while(|_| judged).collect();
        let last = rule.last(&differences);
        let decided = |look: &Look| {
            matches!(look.decision, Decision::Differs | Decision::Equivalent)
                || differences.len() == seeds
        };
        last.filter(decided).unwrap_or(Look {
            n: differences.len(),
            mean: None,
            e: None,
            p: None,
            interval: None,
            undefined: None,
            decision: if seeds == most { Decision::Exhausted } else { Decision::Continue },
        })
    }

    /// The rule's decision on each arm, one sentence each.
    pub(super) fn decisions(&self) -> Vec<String> {
        let said = |ArmLook { arm, metric, look }: ArmLook| {
            let what = match look.decision {
                Decision::Continue => "the rule has not decided yet",
                Decision::Differs => "the arms differ",
                Decision::Equivalent => "the arms are equivalent within the margin",
                Decision::Exhausted => "nothing is decided, and no seeds remain",
            };
            let later = self.seeds().saturating_sub(look.n);
            let later = match (look.decision, later) {
                (Decision::Differs | Decision::Equivalent, 1..) => {
                    let (later, change, are) = match later {
                        1 => (dsl::counted(1, "later seed"), "changes", "is"),
                        _ => (dsl::counted(later, "later seed"), "change", "are"),
                    };
                    format!("; {later} {change} nothing and {are} not in its rows")
                }
                _ => String::new(),
            };
            let (metric, seeds) = (&metric, dsl::counted(look.n, "seed"));
            format!("{arm}, by {metric}: after {seeds} {what}{later}.")
        };
        self.last_looks().into_iter().map(said).collect()
    }
}
