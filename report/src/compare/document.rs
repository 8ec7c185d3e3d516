//! A comparison for programs, in the schema `canonc.compare.v2`: every number of the tables, unrounded, and every sentence
//! that goes with them. `docs/files.md` describes its members.
//!
//! A missing value is null, never 0. Members are added to a version of the schema, never changed. Version 1 had the
//! bootstrap as its interval and a band for reading it.

use lab::comparison::SelectionMode;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::bootstrap;
use super::facts::{ArmFacts, Facts, PairFacts, judged_together};
use super::metric_facts::MetricFacts;
use super::runs::Role;
use crate::statistics::paired::{FEWEST, covers};
use crate::statistics::{Confidence, Judged, Paired, sequential};

const SCHEMA: &str = "canonc.compare.v2";

/// All requested comparisons, in the order asked for.
#[derive(Clone, Debug)]
pub struct CompareDocument<'f> {
    comparisons: Vec<ComparisonDocument<'f>>,
    /// The primary rows of all comparisons as one family, in their order.
    pub(super) together: Vec<JointTest<'f>>,
}

/// A comparison's name, the id of its lock, and what it shows.
#[derive(Clone, Debug)]
struct ComparisonDocument<'f> {
    name: &'f str,
    lock: String,
    facts: &'f Facts,
}

/// One primary row in the family of all comparisons.
#[derive(Clone, Debug, Serialize)]
pub(super) struct JointTest<'f> {
    comparison: &'f str,
    arm: String,
    metric: String,
    pub(super) judged: Judged,
}

/// The document of comparisons, each with its name and the id of its lock.
pub fn document<'f>(
    comparisons: impl IntoIterator<Item = (&'f str, String, &'f Facts)>,
) -> CompareDocument<'f> {
    let comparisons: Vec<ComparisonDocument<'f>> = comparisons
        .into_iter()
        .map(|(name, lock, facts)| ComparisonDocument { name, lock, facts })
        .collect();
    let facts: Vec<&Facts> = comparisons.iter().map(|comparison| comparison.facts).collect();
    let families = comparisons.iter().zip(judged_together(&facts));
    let together = families.flat_map(|(comparison, tests)| {
        tests.into_iter().map(|test| JointTest {
            comparison: comparison.name,
            arm: test.arm,
            metric: test.metric,
            judged: test.judged,
        })
    });
    CompareDocument { together: together.collect(), comparisons }
}

/// Serialises an object with these members, in order.
macro_rules! object {
    ($serializer:expr, { $($name:literal: $value:expr,)* }) => {{
        let mut object = $serializer.serialize_map(None)?;
        $(object.serialize_entry($name, &$value)?;)*
        object.end()
    }};
}

impl Serialize for CompareDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let designs = || self.comparisons.iter().map(|comparison| comparison.facts.design());
        object!(serializer, {
            "schema": SCHEMA,
            "controlled": designs().all(|design| design.is_controlled()),
            "attributable": designs().all(|design| design.is_attributable()),
            "comparisons": self.comparisons,
            "together": self.together,
        })
    }
}

impl Serialize for ComparisonDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ComparisonDocument { name, lock, facts } = self;
        let design = facts.design();
        let arm = |arm| ArmDocument { facts, arm };
        object!(serializer, {
            "name": name,
            "lock": lock,
            "design": design,
            "controlled": design.is_controlled(),
            "attributable": design.is_attributable(),
            "verdict": facts.verdict(),
            "arms": facts.arms.iter().map(arm).collect::<Vec<_>>(),
            "points": facts.points,
            "selection": SelectionDocument(facts),
            "analysis": facts.analysis,
            "interval": IntervalMethod(facts),
            "pairs": facts.pairs,
            "paired_at_each_point": facts.at_each_point,
            "best_per_arm": facts.best_per_arm,
            "best_of_base_for_all": facts.best_of_base,
            "looks": facts.looks,
            "siblings": facts.proof.other_records,
            "seen": facts.answers_overlap,
            "time_bound": facts.proof.steady(),
            "warnings": facts.warnings,
            "notes": facts.notes,
            "caption": facts.caption(),
            "methods": facts.methods(name, lock),
        })
    }
}

/// An arm; what only a treated arm has is null for the base and its replicate.
struct ArmDocument<'f> {
    facts: &'f Facts,
    arm: &'f ArmFacts,
}

impl Serialize for ArmDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ArmDocument { facts: Facts { proof, .. }, arm } = self;
        let claim = proof.claims.get(&arm.name);
        let design = (arm.role == Role::Treatment).then(|| proof.design(&arm.name));
        object!(serializer, {
            "name": arm.name,
            "role": match arm.role {
                Role::Base => "base",
                Role::Treatment => "treated",
                Role::Replicate => "replicate",
            },
            "trainer": arm.trainers,
            "verdict": design.map(|_| proof.standing(&arm.name)),
            "design": design,
            "controlled": design.map(|_| proof.is_controlled(&arm.name)),
            "attributable": design.map(|design| design.is_attributable()),
            "factors": claim.map(|claim| claim.factors),
            "costs": arm.costs,
            "measured": arm.measured,
            "tuning": arm.tuning,
            "matched": claim.and_then(|claim| claim.matched.as_ref()),
            "runs": arm.points.iter().map(|(count, _)| count.runs).collect::<Vec<_>>(),
            "best_point": arm.best_point.filter(|_| self.facts.has_grid()),
            "at_the_edge": arm.edges,
        })
    }
}

/// How a point of the grid is selected.
struct SelectionDocument<'f>(&'f Facts);

impl Serialize for SelectionDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let SelectionDocument(facts) = self;
        object!(serializer, {
            "metric": facts.selection.metric,
            "called": facts.judged_by(),
            "mode": match facts.selection.mode {
                SelectionMode::Min => "min",
                SelectionMode::Max => "max",
            },
            "per_arm": facts.selection.per_arm,
            "declared": facts.rule().name(),
            "points": facts.points.len(),
            "selected_on_reported": facts.has_grid(),
        })
    }
}

/// How intervals are computed.
struct IntervalMethod<'f>(&'f Facts);

impl IntervalMethod<'_> {
    fn text(&self) -> &'static str {
        let IntervalMethod(facts) = self;
        match facts.analysis.max_seeds {
            None if facts.has_grid() && facts.selection.per_arm => {
                "interval of the difference between each arm's best point, over seeds; of other metrics, the paired t \
                 interval at the chosen points, at the level divided by the pairs of points; of times, of log ratios"
            }
            None if facts.has_grid() => {
                "paired t interval of the mean difference over seeds, at the level divided by the points that the base's \
                 was chosen from; of times, of log ratios"
            }
            None => "paired t interval of the mean difference over seeds; of times, of log ratios",
            Some(_) => {
                "anytime-valid interval of the mean difference over seeds; of times, of log ratios"
            }
        }
    }
}

impl Serialize for IntervalMethod<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        object!(serializer, {
            "level": self.0.analysis.confidence.share(),
            "method": self.text(),
            "fewest": FEWEST,
            "secondary": "percentile bootstrap at 0.95",
        })
    }
}

impl Serialize for PairFacts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        object!(serializer, {
            "arm": self.arm,
            "base": self.base,
            "title": self.title(),
            "design": self.design,
            "controlled": self.design.is_controlled(),
            "attributable": self.design.is_attributable(),
            "verdict": self.standing,
            "arm_point": self.arm_point,
            "base_point": self.base_point,
            "seeds": self.diverged_seeds,
            "rows": self.metrics,
        })
    }
}

impl Serialize for MetricFacts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let exact = self.bootstrap.filter(|interval| interval.exact);
        let interval = self.interval.ok().zip(self.ends());
        object!(serializer, {
            "metric": self.metric,
            "label": self.label(),
            "unit": self.unit.word(),
            "base": self.mean(0),
            "treated": self.mean(1),
            "replicate": self.mean(2),
            "paired": self.paired,
            "n": self.paired.len(),
            "difference": self.mean_difference(),
            "lowest": self.range().map(|(lowest, _)| lowest),
            "highest": self.range().map(|(_, highest)| highest),
            "better": self.better,
            "interval": interval.map(|(interval, ends)| IntervalDocument { facts: self, interval, ends }),
            "no_interval": self.interval.err(),
            "sign_flip": self.sign_flip,
            "bootstrap": self.bootstrap,
            "bootstrap_covers_percent": exact.and_then(|interval| bootstrap::covers(interval.n)),
            "judged": self.judged,
            "noise": self.noise.and_then(Result::ok),
            "no_noise": self.noise.and_then(Result::err),
            "asked": self.asked,
            "over": self.measured_on,
            "seen": self.overlap,
            "parts": self.split.and_then(Result::ok),
            "no_parts": self.split.and_then(Result::err),
        })
    }
}

/// The interval of the mean difference; for times its ends are ratios.
struct IntervalDocument<'f> {
    facts: &'f MetricFacts,
    interval: Paired,
    ends: (f64, f64),
}

impl Serialize for IntervalDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let IntervalDocument { facts: MetricFacts { anytime, chosen_among, .. }, interval, ends } =
            self;
        let coverage = if *anytime { Some(sequential::COVERS) } else { covers(interval.n) };
        let is_measured = interval.confidence == Confidence::NINETY_FIVE && chosen_among.is_none();
        object!(serializer, {
            "low": ends.0,
            "high": ends.1,
            "n": interval.n,
            "standard_error": interval.standard_error,
            "sd": interval.sd,
            "p": interval.p,
            "anytime": anytime,
            "chosen_among": chosen_among,
            "covers_percent": coverage.filter(|_| is_measured),
        })
    }
}
