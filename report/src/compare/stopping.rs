//! Looks of a sequential stopping rule: the decision on each treated arm after each seed.
//!
//! The first decisive look of an arm counts, and its tables show the seeds up to that look, whatever ran later. After a
//! seed without a difference there is no new decision, since skipping it would make the rule invalid.

use serde::Serialize;

use super::analysis::Analysis;
use super::comparison::Comparison;
use super::metric::unit;
use super::runs::{Arm, paired};
use super::unit::Unit;
use crate::statistics::sequential::{Decision, Look, StoppingRule};

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
        let analysis = self.analysis();
        let (Some(most), Some(base)) = (analysis.max_seeds, self.base()) else { return Vec::new() };
        let looks = self.treated().map(|arm| ArmLook {
            arm: arm.name.clone(),
            metric: analysis.primary.clone(),
            look: self.look(&analysis, base, arm, seeds.min(most), most),
        });
        looks.collect()
    }

    /// The looks after all seeds so far, or each arm's decisive look.
    pub fn last_looks(&self) -> Vec<ArmLook> {
        self.looks(self.seeds())
    }

    /// With a stopping rule, the seeds that the rows are of: of several arms the most.
    pub fn used_seeds(&self) -> Option<usize> {
        self.analysis().max_seeds?;
        let base = self.base()?;
        self.treated()
            .map(|arm| self.decided_after(base, arm).unwrap_or_else(|| self.seeds()))
            .max()
    }

    /// How many seeds were run.
    pub(super) fn seeds(&self) -> usize {
        self.runs().map(|run| run.seed + 1).max().unwrap_or(0)
    }

    /// The seeds after which the rule decided on an arm. The arm's tables show these.
    pub(super) fn decided_after(&self, base: &Arm, arm: &Arm) -> Option<usize> {
        let analysis = self.analysis();
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
            let [base, arm] = [base, arm].map(|run| run.curves.last(&analysis.primary));
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
}
