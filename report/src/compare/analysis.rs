//! The analysis that a comparison declares, and the resulting words.
//!
//! In: a comparison with its runs. Out: its primary metric, family, margin and level; each row of the family with its
//! Holm-adjusted p value and its word. Must stay true: the declaration alone fixes the family, never the results;
//! a declared row without data still counts; a row outside the family gets no word; comparisons shown together
//! form one family.

use lab::comparison::Stop;
use serde::Serialize;

use super::effect::NoInterval;
use super::{Comparison, Pair, Role, Row, called};
use crate::statistics::equivalence::{self, Judged, Margin, judge};
use crate::statistics::{Better, Confidence, Undefined};

/// The declared tests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// The primary metric, as named in tables.
    pub primary: String,
    /// The metrics of the family, as named in tables; each counts once per treated arm.
    pub family: Vec<String>,
    /// In the unit of the primary metric.
    pub margin: Option<Margin>,
    /// Confidence of the whole family.
    pub confidence: Confidence,
    /// With a stopping rule, the maximum number of seeds.
    pub max_seeds: Option<usize>,
    /// Whether the comparison's lock declares the analysis; if not, these are the defaults.
    pub declared: bool,
}

impl Analysis {
    /// The analysis that a lock declares; `None` if all its values are neutral.
    pub(crate) fn declared(locked: &lab::comparison::Comparison) -> Option<Analysis> {
        // The bound on timing noise is not part of the tests.
        let lab::comparison::Analysis { primary, family, margin, level, stop, time_bound: _ } =
            &locked.analysis;
        let confidence = Confidence::new(1.0 - level.to_f64())?;
        let neutral = *primary == locked.selection.metric
            && *family == [primary.as_str()]
            && margin.is_none()
            && confidence == Confidence::NINETY_FIVE
            && *stop == Stop::Fixed;
        (!neutral).then(|| Analysis {
            primary: called(primary).to_owned(),
            family: family.iter().map(|metric| called(metric).to_owned()).collect(),
            margin: margin.and_then(|margin| Margin::new(margin.to_f64())),
            confidence,
            max_seeds: match stop {
                Stop::Fixed => None,
                Stop::Sequential { max_seeds } => Some(*max_seeds),
            },
            declared: true,
        })
    }
}

/// The declared analysis, or the default: the selection's metric for every treated arm, no margin, level 0.05.
pub fn analysis_of(comparison: &Comparison) -> Analysis {
    comparison.proved.analysis.clone().unwrap_or_else(|| {
        let primary = comparison.judged_by().to_owned();
        Analysis {
            family: vec![primary.clone()],
            primary,
            margin: None,
            confidence: Confidence::NINETY_FIVE,
            max_seeds: None,
            declared: false,
        }
    })
}

/// The direction in which a metric improves, from the field table.
pub(crate) fn better(metric: &str) -> Better {
    let named = |name: &&&str| called(name) == metric;
    let name = tasks::metric::NAMES.iter().find(named).copied().unwrap_or(metric);
    let least = tasks::metric::is_less_better(name);
    match least || metric == super::TRAINING_LOSS || metric == super::STEP_TIME {
        true => Better::Less,
        false => Better::More,
    }
}

/// One test of a family.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Name of the treated arm.
    pub arm: String,
    /// The points of the treated arm and the base; `None` if the rule could select none. Then the test has no p value,
    /// and still counts.
    pub points: Option<(usize, usize)>,
    /// The metric, as named in tables.
    pub metric: String,
    /// The word for its difference, with the evidence.
    pub judged: Judged,
}

impl Member {
    /// Whether the test is that of a pair's row. Without a selected point, it is that of every point.
    pub(crate) fn is_of(&self, pair: &Pair<'_>, metric: &str) -> bool {
        let here = (pair.arm_point, pair.base_point);
        self.metric == metric
            && self.arm == pair.arm.name
            && self.points.is_none_or(|points| points == here)
    }
}

impl Comparison {
    /// All tests that the analysis declares, with their words.
    pub fn family(&self) -> Vec<Member> {
        let analysis = analysis_of(self);
        judged(&[self], |_| analysis.family.clone(), analysis.confidence).remove(0)
    }

    /// The treated arms, by runs or by the lock: each has its tests, also without any run.
    pub(crate) fn tested(&self) -> Vec<String> {
        let treated = self.arms.iter().filter(|arm| arm.role == Role::Treatment);
        let mut names: Vec<String> = treated.map(|arm| arm.name.clone()).collect();
        for name in self.proved.claims.keys() {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }
}

/// The words of the primary metrics of several comparisons shown together: all their tests form one family, at
/// the strictest of their levels. One list for each comparison.
pub fn together(comparisons: &[&Comparison]) -> Vec<Vec<Member>> {
    let primary = |comparison: &Comparison| vec![analysis_of(comparison).primary];
    judged(comparisons, primary, strictest(comparisons))
}

/// One test for each treated arm and each of its metrics, whatever the runs gave.
fn judged(
    comparisons: &[&Comparison],
    metrics: impl Fn(&Comparison) -> Vec<String>,
    confidence: Confidence,
) -> Vec<Vec<Member>> {
    let mut tests = Vec::new();
    for (of, comparison) in comparisons.iter().enumerate() {
        let analysis = analysis_of(comparison);
        let pairs = comparison.pairs();
        for arm in comparison.tested() {
            let of_arm: Vec<&Pair<'_>> = pairs.iter().filter(|p| p.arm.name == arm).collect();
            // Without a selected point, there is a pair at every point, and none of them is the declared one.
            let pair = match of_arm.as_slice() {
                [only] if comparison.is_selected(only) => Some(*only),
                _ => None,
            };
            for metric in metrics(comparison) {
                let row = match pair {
                    Some(pair) => input(pair, &metric, &analysis),
                    None => untested(&metric),
                };
                let points = pair.map(|pair| (pair.arm_point, pair.base_point));
                tests.push((of, arm.clone(), points, metric, row));
            }
        }
    }
    let rows: Vec<equivalence::Row> = tests.iter().map(|(.., row)| *row).collect();
    let words = judge(&rows, confidence);
    let mut members = vec![Vec::new(); comparisons.len()];
    for ((of, arm, points, metric, _), judged) in tests.into_iter().zip(words) {
        if let Some(list) = members.get_mut(of) {
            list.push(Member { arm, points, metric, judged });
        }
    }
    members
}

/// A declared test without a value.
fn untested(metric: &str) -> equivalence::Row {
    equivalence::Row {
        result: Err(Undefined::TooFew { have: 0, need: crate::statistics::paired::FEWEST }),
        p: None,
        p_equivalence: None,
        better: better(metric),
        margin: None,
        diverged: [0, 0],
    }
}

/// The strictest of their levels, and of 0.05.
pub(crate) fn strictest(comparisons: &[&Comparison]) -> Confidence {
    let levels = comparisons.iter().map(|comparison| analysis_of(comparison).confidence);
    levels.fold(
        Confidence::NINETY_FIVE,
        |strictest, level| {
            if level > strictest { level } else { strictest }
        },
    )
}

fn input(pair: &Pair<'_>, metric: &str, analysis: &Analysis) -> equivalence::Row {
    let nothing = Undefined::TooFew { have: 0, need: crate::statistics::paired::FEWEST };
    let row = pair.row(metric);
    let result = match &row {
        Some(Row { result: Ok(found), .. }) => Ok(*found),
        Some(Row { result: Err(NoInterval::Undefined(why)), .. }) => Err(*why),
        // A time without an interval has no value to test.
        Some(Row { result: Err(NoInterval::Time(_)), .. }) | None => Err(nothing),
    };
    let margin = analysis.margin.filter(|_| metric == analysis.primary);
    let p_equivalence = row.zip(margin).and_then(|(row, margin)| match row.chosen_among {
        Some(among) => pair.equivalence_allowing_for_choice(&row, among, margin),
        None if row.anytime => super::effect::beyond(&row.paired, margin, analysis.confidence),
        None => None,
    });
    let lost = pair.lost();
    equivalence::Row {
        result,
        p: None,
        p_equivalence,
        better: better(metric),
        margin,
        diverged: [lost.base, lost.treated],
    }
}
