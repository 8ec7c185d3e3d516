//! The shares of questions and seeds in the uncertainty of a mean difference.
//!
//! In: runs of two arms, each with the score of each question. Out: the squared standard error of their mean
//! difference, split by seed and question, or the reason why it cannot be split. Must stay true: questions are paired
//! only if both runs of a seed were asked the same ones in the same order; the mean of a run's scores is its metric; a
//! run that logged only counts gives a reason, never a guess.

use std::collections::{BTreeMap, BTreeSet};

use compiler::digest::Digest;
use serde::Serialize;

use super::seen::of_level;
use super::{
    Curves, EXACT_MATCH, Run, STEP_TIME, TOKEN_ACCURACY, TRAINING_LOSS, Unit, paired, unit,
};
use crate::statistics::questions::{Asked, Refused, Split, split};
use crate::statistics::{Confidence, Undefined};
use records::metrics::{Evaluation, Questions, Record, SuiteScores};
use tasks::metric::of_suite;

/// The scores of one metric in one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Single {
    /// Digest of the questions: equal for the same questions.
    pub asked: Digest,
    /// One score per question; their mean is the metric.
    pub scores: Vec<f64>,
}

/// Why the two parts are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "no_parts")]
pub enum NoParts {
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

/// The scores of suites, with their names in tables and the number of questions.
pub(super) fn of_suites(evaluation: &Evaluation) -> impl Iterator<Item = (String, f64, u64)> {
    evaluation.suites.iter().flat_map(|SuiteScores { task, scores, .. }| {
        scores.iter().map(|(word, value)| (format!("{}/{word}", task.name), *value, task.questions))
    })
}

/// The question-by-question scores that an evaluation logged.
pub(super) fn singles(evaluation: &Evaluation) -> BTreeMap<String, Single> {
    let mut found = BTreeMap::new();
    for SuiteScores { task, scores: _, each } in &evaluation.suites {
        let asked = Digest::of("canonc.suite-task.v1", &task.to_string());
        for (word, parts) in each {
            let single = Single { asked, scores: parts.clone() };
            found.insert(format!("{}/{word}", task.name), single);
        }
    }
    let Some(Questions { asked, answers, tokens }) = &evaluation.questions else { return found };
    let mut put = |name: String, scores: Vec<f64>| {
        if !scores.is_empty() {
            found.insert(name, Single { asked: *asked, scores });
        }
    };
    let share = |right: &bool| f64::from(u8::from(*right));
    put(EXACT_MATCH.to_owned(), answers.values().flatten().map(share).collect());
    for (level, right) in answers {
        put(of_level(*level), right.iter().map(share).collect());
    }
    // Weight an answer by its length, so that the mean over answers is the share of all tokens.
    let scale = tokens.len() as f64 / evaluation.tokens.of as f64;
    put(TOKEN_ACCURACY.to_owned(), tokens.iter().map(|right| *right as f64 * scale).collect());
    found
}

/// The metrics of an evaluation by their names in tables, with the scores of single questions if it has them.
pub fn scores_of(evaluation: &Evaluation) -> Vec<(String, f64, Vec<f64>)> {
    let Curves { metrics, mut questions, .. } =
        Curves::from_records(&[Record::Evaluation(evaluation.clone())]);
    let value = |(name, points): (String, Vec<(u64, f64)>)| {
        let each = questions.remove(&name).map_or_else(Vec::new, |single| single.scores);
        Some((name, points.last()?.1, each))
    };
    metrics.into_iter().filter_map(value).collect()
}

/// The split for runs paired by seed; `None` for a metric without an evaluation.
pub(super) fn of_metric(
    base: &[Run],
    arm: &[Run],
    metric: &str,
    confidence: Confidence,
) -> Option<Result<Split, NoParts>> {
    let of_questions = unit(metric) == Unit::Share
        && (metric.starts_with(EXACT_MATCH)
            || metric.starts_with(TOKEN_ACCURACY)
            || of_suite(metric).is_some());
    let ended = |run: &Run| run.curves.last(metric).is_some();
    let pairs = paired(base, arm).into_iter().filter(|(base, arm)| ended(base) && ended(arm));
    let pairs: Vec<(&Run, &Run)> = pairs.collect();
    if pairs.is_empty() || [TRAINING_LOSS, STEP_TIME].contains(&metric) {
        return None;
    }
    Some(match of_questions {
        true => parts(&pairs, metric, confidence),
        false => Err(NoParts::OneMean),
    })
}

fn parts(pairs: &[(&Run, &Run)], metric: &str, confidence: Confidence) -> Result<Split, NoParts> {
    let single = |run: &&Run| run.curves.questions.get(metric).cloned().ok_or(NoParts::NotRecorded);
    let mut asked = BTreeSet::new();
    let mut differences: Vec<Vec<f64>> = Vec::new();
    for (base, arm) in pairs {
        let (base, arm) = (single(base)?, single(arm)?);
        if base.asked != arm.asked || base.scores.len() != arm.scores.len() {
            return Err(NoParts::OtherQuestions);
        }
        asked.insert(base.asked);
        differences.push(arm.scores.iter().zip(&base.scores).map(|(a, b)| a - b).collect());
    }
    let which = match asked.len() {
        1 => Asked::Same,
        count if count == pairs.len() => Asked::Fresh,
        _ => return Err(NoParts::Mixed),
    };
    split(&differences, which, confidence).map_err(NoParts::Refused)
}

impl NoParts {
    /// The short form for a table cell.
    pub(crate) fn brief(self) -> String {
        match self {
            NoParts::NotRecorded => "question part not recorded".to_owned(),
            NoParts::OneMean => "not split: one mean per run".to_owned(),
            NoParts::OtherQuestions => "arms had different questions".to_owned(),
            NoParts::Mixed => "some seeds share their questions".to_owned(),
            NoParts::Refused(Refused::TooFewSeeds { have, need }) => {
                format!("{have} of {need} seeds")
            }
            NoParts::Refused(Refused::OtherNumber { .. }) => {
                "seeds have different numbers of questions".to_owned()
            }
            NoParts::Refused(Refused::Undefined(undefined)) => match undefined {
                Undefined::TooFew { have, need } => format!("{have} of {need} questions"),
                Undefined::NoVariance { .. } => "all equal".to_owned(),
                Undefined::NotFinite | Undefined::AtBound { .. } => "not all numbers".to_owned(),
            },
        }
    }
}

/// `seeds 1.2, questions 1.5, both 0.9 pp`: standard errors, not their squares.
pub(super) fn cell(unit: Unit, parts: Option<Result<Split, NoParts>>) -> Option<String> {
    Some(match parts? {
        Err(why) => why.brief(),
        Ok(Split { seed_part, question_part, both_part, .. }) => {
            let width = |part: f64| unit.width(libm::sqrt(part));
            let questions = width(question_part);
            match seed_part {
                None => format!("questions {questions} (these runs only)"),
                Some(seed) if both_part > 0.0 => {
                    format!(
                        "seeds {}, questions {questions}, both {}",
                        width(seed),
                        width(both_part)
                    )
                }
                Some(seed) => format!("seeds {}, questions {questions}", width(seed)),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{by, proved, two_seeds};
    use super::super::{Arm, Comparison, Role, methods, summary};
    use super::*;
    use lab::comparison::SelectionMode;

    /// A run with the given answers right.
    fn run(seed: usize, asked: &str, right: &[u8]) -> Run {
        let scores: Vec<f64> = right.iter().map(|right| f64::from(*right)).collect();
        let mean = scores.iter().sum::<f64>() / scores.len() as f64;
        let mut run = super::super::tests::run(seed, 1.0, mean);
        let curves = &mut run.curves;
        curves.asked.insert(EXACT_MATCH.to_owned(), right.len() as u64);
        curves.metrics.insert(EXACT_MATCH.to_owned(), vec![(20, mean)]);
        let asked = Digest::of("test", asked);
        curves.questions.insert(EXACT_MATCH.to_owned(), Single { asked, scores });
        run
    }

    fn comparison(asked: fn(usize) -> String) -> Comparison {
        let runs = |shift: usize| -> Vec<Run> {
            let right = |seed: usize| -> Vec<u8> {
                (0..40).map(|q| u8::from((q * 7 + seed * 3) % 11 < 4 + shift)).collect()
            };
            (0..3).map(|seed| run(seed, &asked(seed), &right(seed))).collect()
        };
        Comparison {
            arms: vec![
                Arm { name: "a".to_owned(), role: Role::Base, points: vec![runs(0)] },
                Arm { name: "b".to_owned(), role: Role::Treatment, points: vec![runs(3)] },
            ],
            points: vec![String::new()],
            selection: by("exact_match", SelectionMode::Max, true),
            proved: proved(&["b"], &[]),
        }
    }

    fn found(comparison: &Comparison) -> Result<Split, NoParts> {
        comparison.pairs()[0].row(EXACT_MATCH).unwrap().parts.unwrap()
    }

    #[test]
    fn questions_are_paired_across_arms_and_seeds() {
        let same = comparison(|_| "same".to_owned());
        let row = same.pairs()[0].row(EXACT_MATCH).unwrap();
        let split = row.parts.unwrap().unwrap();
        assert_eq!((split.asked, split.seeds, split.questions), (Asked::Same, 3, 40));
        assert!((split.mean - row.mean_difference().unwrap()).abs() < 1e-12);
        assert!(split.question_part + split.both_part > 0.0);
        let fresh = comparison(|seed| seed.to_string());
        assert_eq!(found(&fresh).unwrap().asked, Asked::Fresh);
        let text = summary(&fresh).text();
        assert!(text.contains("SE: seeds and questions"), "{text}");
        assert!(text.contains("seeds ±") && text.contains("questions ±"), "{text}");
    }

    #[test]
    fn suites_ask_every_seed_the_same_whatever_the_windows() {
        let mut both = comparison(|seed| seed.to_string());
        both.proved.questions = Some(Asked::Fresh);
        let (windows, suites) =
            ("Each seed is evaluated on its own", "Suites ask all seeds the same");
        let caption = summary(&both).caption;
        assert!(caption.contains(windows) && !caption.contains(suites), "{caption}");
        for run in both.arms.iter_mut().flat_map(|arm| arm.points.iter_mut().flatten()) {
            let curves = &mut run.curves;
            let acc = "piqa/acc".to_owned();
            let single = curves.questions[EXACT_MATCH].clone();
            let single = Single { asked: Digest::of("test", "piqa"), ..single };
            curves.asked.insert(acc.clone(), single.scores.len() as u64);
            curves.metrics.insert(acc.clone(), curves.metrics[EXACT_MATCH].clone());
            curves.questions.insert(acc, single);
        }
        let row = both.pairs()[0].row("piqa/acc").unwrap();
        assert_eq!(row.parts.unwrap().unwrap().asked, Asked::Same);
        let caption = summary(&both).caption;
        assert!(caption.contains(windows) && caption.contains(suites), "{caption}");
        assert!(methods("c", "00", &both).contains("other ones for each seed"));
        for run in both.arms.iter_mut().flat_map(|arm| arm.points.iter_mut().flatten()) {
            run.curves.asked.retain(|metric, _| of_suite(metric).is_some());
        }
        both.selection.metric = "piqa/acc".to_owned();
        let caption = summary(&both).caption;
        assert!(!caption.contains(windows) && caption.contains(suites), "{caption}");
        let methods = methods("c", "00", &both);
        assert!(methods.contains("40 questions, the same for all seeds"), "{methods}");
    }

    #[test]
    fn what_cannot_be_paired_is_said() {
        let mixed = comparison(|seed| (seed / 2).to_string());
        assert_eq!(found(&mixed), Err(NoParts::Mixed));
        let mut other = comparison(|_| "same".to_owned());
        other.arms[1].points[0][1] = run(1, "other", &[1; 40]);
        assert_eq!(found(&other), Err(NoParts::OtherQuestions));
        // A run from before single questions were logged.
        let mut older = comparison(|_| "same".to_owned());
        older.arms[0].points[0][2].curves.questions.clear();
        assert_eq!(found(&older), Err(NoParts::NotRecorded));
        assert!(summary(&older).text().contains("question part not recorded"));
        let two = two_seeds();
        let rows = two.pairs()[0].rows();
        let of = |metric: &str| rows.iter().find(|row| row.metric == metric).unwrap().parts;
        assert_eq!(of(TOKEN_ACCURACY), Some(Err(NoParts::NotRecorded)));
        assert_eq!(of(super::super::TRAINING_LOSS), None);
    }

    #[test]
    fn the_mean_over_answers_is_the_metric() {
        let questions = Questions {
            asked: Digest::of("test", "asked"),
            answers: BTreeMap::from([(1, vec![true, false]), (2, vec![true])]),
            tokens: vec![3, 0, 5],
        };
        let score = |right, of| records::metrics::Score { right, of };
        let evaluation = Evaluation {
            step: 1,
            nll: None,
            counted: 0,
            tokens: score(8, 12),
            answers: BTreeMap::from([(1, score(1, 2)), (2, score(1, 1))]),
            measures: BTreeMap::new(),
            questions: Some(questions),
            suites: Vec::new(),
        };
        let found = singles(&evaluation);
        let mean = |metric: &str| {
            let scores = &found[metric].scores;
            scores.iter().sum::<f64>() / scores.len() as f64
        };
        assert!((mean(TOKEN_ACCURACY) - 8.0 / 12.0).abs() < 1e-12);
        assert!((mean(EXACT_MATCH) - 2.0 / 3.0).abs() < 1e-12);
        assert!((mean(&format!("{EXACT_MATCH}, level 1")) - 0.5).abs() < 1e-12);
    }
}
