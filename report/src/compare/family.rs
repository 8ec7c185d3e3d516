//! Families of tests: the words for all differences that an analysis declares, or that are shown together.
//!
//! The declaration alone fixes a family, never the results: a declared test without data still counts, and a row outside
//! of the family gets no word.

use super::comparison::Comparison;
use super::interval_and_noise::{self, NoInterval};
use super::metric::better;
use super::pair::Pair;
use crate::statistics::equivalence::{Evidence, Judged, judge};
use crate::statistics::{Confidence, Undefined, paired};

/// A test that an analysis declares, whatever the runs gave.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DeclaredTest {
    /// Name of the treated arm.
    pub(crate) arm: String,
    /// The points of the treated arm and the base; `None` if the rule could select none. Then the test has no p value,
    /// and still counts.
    pub(crate) points: Option<(usize, usize)>,
    /// The metric, as named in tables.
    pub(crate) metric: String,
    evidence: Evidence,
}

/// A test of a family, with its word.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JudgedTest {
    /// Name of the treated arm.
    pub(crate) arm: String,
    /// The points of the treated arm and the base; `None` if the rule could select none.
    pub(crate) points: Option<(usize, usize)>,
    /// The metric, as named in tables.
    pub(crate) metric: String,
    /// The word for its difference, with the evidence.
    pub(crate) judged: Judged,
}

impl JudgedTest {
    /// Whether the test is that of a metric of an arm at these points. Without a selected point, it is that of every point.
    pub(crate) fn is_of(&self, arm: &str, points: (usize, usize), metric: &str) -> bool {
        self.metric == metric
            && self.arm == arm
            && self.points.is_none_or(|selected| selected == points)
    }
}

impl Comparison {
    /// One test for each treated arm and each of these metrics.
    pub(super) fn declared_tests(
        &self,
        pairs: &[Pair<'_>],
        metrics: &[String],
    ) -> Vec<DeclaredTest> {
        let mut tests = Vec::new();
        for arm in self.tested() {
            let of_arm: Vec<&Pair<'_>> = pairs.iter().filter(|p| p.arm.name == arm).collect();
            // Without a selected point, there is a pair at every point, and none of them is the declared one.
            let pair = match of_arm.as_slice() {
                [only] => Some(*only),
                _ => None,
            };
            for metric in metrics {
                tests.push(DeclaredTest {
                    arm: arm.clone(),
                    points: pair.map(|pair| (pair.arm_point, pair.base_point)),
                    metric: metric.clone(),
                    evidence: match pair {
                        Some(pair) => evidence(pair, metric),
                        None => no_evidence(metric),
                    },
                });
            }
        }
        tests
    }
}

/// The words of several lists of tests, which are one family.
pub(crate) fn judged(lists: &[&[DeclaredTest]], confidence: Confidence) -> Vec<Vec<JudgedTest>> {
    let evidence: Vec<Evidence> =
        lists.iter().copied().flatten().map(|test| test.evidence).collect();
    let mut words = judge(&evidence, confidence).into_iter();
    let with_words = |tests: &&[DeclaredTest]| {
        let tests = tests.iter().zip(words.by_ref());
        let judged = tests.map(|(test, judged)| JudgedTest {
            arm: test.arm.clone(),
            points: test.points,
            metric: test.metric.clone(),
            judged,
        });
        judged.collect()
    };
    lists.iter().map(with_words).collect()
}

const NO_DIFFERENCES: Undefined = Undefined::TooFew { have: 0, need: paired::FEWEST };

/// A declared test without a value.
fn no_evidence(metric: &str) -> Evidence {
    Evidence {
        result: Err(NO_DIFFERENCES),
        p: None,
        p_equivalence: None,
        better: better(metric),
        margin: None,
        diverged: [0, 0],
    }
}

fn evidence(pair: &Pair<'_>, metric: &str) -> Evidence {
    let analysis = pair.comparison.analysis();
    let facts = pair.facts_of(metric);
    let result = match facts.as_ref().map(|facts| facts.interval) {
        Some(Ok(interval)) => Ok(interval),
        Some(Err(NoInterval::Undefined(undefined))) => Err(undefined),
        // A time without an interval has no value to test.
        Some(Err(NoInterval::Time(_))) | None => Err(NO_DIFFERENCES),
    };
    let margin = analysis.margin.filter(|_| metric == analysis.primary);
    let p_equivalence = facts.zip(margin).and_then(|(facts, margin)| match facts.chosen_among {
        Some(among) => pair.equivalence_allowing_for_choice(&facts, among, margin),
        None if facts.anytime => {
            interval_and_noise::beyond(&facts.paired, margin, analysis.confidence)
        }
        None => None,
    });
    let seeds = pair.diverged_seeds();
    Evidence {
        result,
        p: None,
        p_equivalence,
        better: better(metric),
        margin,
        diverged: [seeds.base, seeds.treated],
    }
}
