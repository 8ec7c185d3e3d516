//! The uncertainty of a mean difference, split by seed and question, or the reason why it cannot be split.
//!
//! Questions are paired only if both runs of a seed were asked the same ones in the same order. A run that logged only
//! counts gives a reason, never a guess.

use std::collections::BTreeSet;

use serde::Serialize;
use tasks::metric::of_suite;

use super::design::ChosenAmong;
use super::metric::{EXACT_MATCH, STEP_TIME, TOKEN_ACCURACY, TRAINING_LOSS, unit};
use super::runs::{ArmRun, paired};
use super::unit::Unit;
use crate::statistics::questions::{Asked, Refused, Split, split};
use crate::statistics::{Confidence, Undefined, student};

/// Why the two parts are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "no_parts")]
pub enum NoSplit {
    /// A run logged only counts, as older versions do.
    NotRecorded,
    /// A run logs one mean over all its windows or sentences.
    OneMean,
    /// The two runs of a seed were asked different questions.
    OtherQuestions,
    /// Some seeds have the same questions, but not all.
    Mixed,
    /// The statistics refuse the scores.
    Refused(Refused),
}

/// The split for runs paired by seed; `None` for a metric without an evaluation.
pub(super) fn question_split(
    base: &[ArmRun],
    arm: &[ArmRun],
    metric: &str,
    confidence: Confidence,
    chosen: Option<ChosenAmong>,
) -> Option<Result<Split, NoSplit>> {
    let of_questions = unit(metric) == Unit::Share
        && (metric.starts_with(EXACT_MATCH)
            || metric.starts_with(TOKEN_ACCURACY)
            || of_suite(metric).is_some());
    let ended = |run: &ArmRun| run.curves.last(metric).is_some();
    let pairs = paired(base, arm).into_iter().filter(|(base, arm)| ended(base) && ended(arm));
    let pairs: Vec<(&ArmRun, &ArmRun)> = pairs.collect();
    if pairs.is_empty() || [TRAINING_LOSS, STEP_TIME].contains(&metric) {
        return None;
    }
    Some(match of_questions {
        true => {
            of_pairs(&pairs, metric, confidence).map(|split| allowing_for_choice(split, chosen))
        }
        false => Err(NoSplit::OneMean),
    })
}

fn of_pairs(
    pairs: &[(&ArmRun, &ArmRun)],
    metric: &str,
    confidence: Confidence,
) -> Result<Split, NoSplit> {
    let scores =
        |run: &ArmRun| run.curves.questions.get(metric).cloned().ok_or(NoSplit::NotRecorded);
    let mut asked = BTreeSet::new();
    let mut differences: Vec<Vec<f64>> = Vec::new();
    for (base, arm) in pairs {
        let (base, arm) = (scores(base)?, scores(arm)?);
        if base.asked != arm.asked || base.scores.len() != arm.scores.len() {
            return Err(NoSplit::OtherQuestions);
        }
        asked.insert(base.asked);
        differences.push(arm.scores.iter().zip(&base.scores).map(|(a, b)| a - b).collect());
    }
    let which = match asked.len() {
        1 => Asked::Same,
        count if count == pairs.len() => Asked::Fresh,
        _ => return Err(NoSplit::Mixed),
    };
    split(&differences, which, confidence).map_err(NoSplit::Refused)
}

/// At points that the runs chose, interval and p allow for every pair that could have been chosen.
fn allowing_for_choice(split: Split, chosen: Option<ChosenAmong>) -> Split {
    let Some(ChosenAmong { treated, base, .. }) = chosen else { return split };
    let count = treated * base;
    let half =
        student::critical(split.confidence.of_each(count).alpha(), split.df) * split.standard_error;
    Split {
        low: split.mean - half,
        high: split.mean + half,
        p: (count as f64 * split.p).min(1.0),
        ..split
    }
}

impl NoSplit {
    /// The short form for a table cell.
    pub(super) fn brief(self) -> String {
        match self {
            NoSplit::NotRecorded => "question part not recorded".to_owned(),
            NoSplit::OneMean => "not split: one mean per run".to_owned(),
            NoSplit::OtherQuestions => "arms had different questions".to_owned(),
            NoSplit::Mixed => "some seeds share their questions".to_owned(),
            NoSplit::Refused(Refused::TooFewSeeds { have, need }) => {
                format!("{have} of {need} seeds")
            }
            NoSplit::Refused(Refused::OtherNumber { .. }) => {
                "seeds have different numbers of questions".to_owned()
            }
            NoSplit::Refused(Refused::Undefined(undefined)) => match undefined {
                Undefined::TooFew { have, need } => format!("{have} of {need} questions"),
                Undefined::NoVariance { .. } => "all equal".to_owned(),
                Undefined::NotFinite | Undefined::AtBound { .. } => "not all numbers".to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{answering, of_answers, two_seeds};
    use super::*;
    use crate::compare::Comparison;

    fn split_of(comparison: &Comparison, metric: &str) -> Option<Result<Split, NoSplit>> {
        comparison.pairs()[0].facts_of(metric).unwrap().split
    }

    #[test]
    fn questions_are_paired_across_arms_and_seeds() {
        let same = of_answers(|_| "same".to_owned());
        let row = same.pairs()[0].facts_of(EXACT_MATCH).unwrap();
        let split = row.split.unwrap().unwrap();
        assert_eq!((split.asked, split.seeds, split.questions), (Asked::Same, 3, 40));
        assert!((split.mean - row.mean_difference().unwrap()).abs() < 1e-12);
        assert!(split.question_part + split.both_part > 0.0);
        let fresh = of_answers(|seed| seed.to_string());
        assert_eq!(split_of(&fresh, EXACT_MATCH).unwrap().unwrap().asked, Asked::Fresh);
    }

    #[test]
    fn what_cannot_be_paired_has_a_reason() {
        let mixed = of_answers(|seed| (seed / 2).to_string());
        assert_eq!(split_of(&mixed, EXACT_MATCH), Some(Err(NoSplit::Mixed)));
        let mut other = of_answers(|_| "same".to_owned());
        other.arms[1].points[0][1] = answering(1, "other", &[1; 40]);
        assert_eq!(split_of(&other, EXACT_MATCH), Some(Err(NoSplit::OtherQuestions)));
        // A run from before single questions were logged.
        let mut older = of_answers(|_| "same".to_owned());
        older.arms[0].points[0][2].curves.questions.clear();
        assert_eq!(split_of(&older, EXACT_MATCH), Some(Err(NoSplit::NotRecorded)));
        assert_eq!(split_of(&two_seeds(), TOKEN_ACCURACY), Some(Err(NoSplit::NotRecorded)));
        assert_eq!(split_of(&two_seeds(), TRAINING_LOSS), None);
    }
}
