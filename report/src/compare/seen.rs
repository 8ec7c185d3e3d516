//! Whether a row's evaluation questions occur in the training data.
//!
//! In: for each run, how many questions its training contained word for word, by level. Out: the label of a row. Must
//! stay true: one function decides every label; a row is judged by its own questions, since training may show most
//! questions of one level and few of another; an evaluation is not called held-out if training contained more than
//! [`MOST`] of its questions, or if that is unknown; a bound is called a bound.

use std::collections::BTreeMap;

use records::overlap::Share;
use serde::Serialize;
use tasks::metric::of_suite;

use super::{Comparison, EVAL_LOSS, EXACT_MATCH, Pair, Run, STEP_TIME, TRAINING_LOSS};

/// The largest share of questions in the training data at which an evaluation is still called held-out.
const MOST: f64 = 0.01;

/// How much of one run's evaluation its training contained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunOverlap {
    /// By comparing questions.
    Counted(Counted),
    /// The task evaluates facts that it trained on, by design: Capo's people, in other sentences.
    ByDesign,
}

/// Questions found with their answer, word for word, in the inspected training windows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Equal for runs with the same windows, which count once.
    pub of: String,
    /// Questions in the evaluation windows: those of losses and of token accuracy.
    pub in_windows: Share,
    /// Questions with a scored answer, by level.
    pub answers: BTreeMap<u32, Share>,
    /// Training windows that were inspected.
    pub windows: u64,
    /// Number of all training windows.
    pub of_windows: u64,
}

impl Counted {
    /// The questions of a metric.
    pub fn share(&self, metric: &str) -> Share {
        let levels = self.answers.iter().filter(|(level, _)| match metric {
            EXACT_MATCH => true,
            _ => metric == of_level(**level),
        });
        match metric.starts_with(EXACT_MATCH) {
            true => levels.fold(Share::default(), |sum, (_, share)| add(sum, *share)),
            false => self.in_windows,
        }
    }
}

/// The metric of one level's answers.
pub(super) fn of_level(level: u32) -> String {
    format!("{EXACT_MATCH}, level {level}")
}

fn add(a: Share, b: Share) -> Share {
    Share {
        questions: a.questions.saturating_add(b.questions),
        shown: a.shown.saturating_add(b.shown),
    }
}

/// How much of a row's evaluation training contained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TrainingOverlap {
    /// Questions of one evaluation, over all runs of the row.
    Questions {
        /// Number of questions.
        questions: u64,
        /// Those found with their answer, word for word, in the inspected training windows.
        shown: u64,
        /// Training windows that were inspected.
        windows: u64,
        /// Number of all training windows.
        of_windows: u64,
    },
    /// The task evaluates facts that it trained on, by design: Capo's people, in other sentences.
    ByDesign,
}

/// What the training of these runs contained of a metric's questions; `None` for a metric without questions, or if
/// they were not counted, as for documents.
pub fn seen<'r>(metric: &str, runs: impl IntoIterator<Item = &'r Run>) -> Option<TrainingOverlap> {
    // Training data is not searched for the questions of suites.
    if [TRAINING_LOSS, STEP_TIME].contains(&metric) || of_suite(metric).is_some() {
        return None;
    }
    let mut counted: BTreeMap<&str, &Counted> = BTreeMap::new();
    for run in runs {
        match &run.shown {
            None => {}
            Some(RunOverlap::ByDesign) => return Some(TrainingOverlap::ByDesign),
            Some(RunOverlap::Counted(of)) => {
                counted.insert(&of.of, of);
            }
        }
    }
    let sum = |part: fn(&Counted) -> u64| {
        counted.values().map(|of| part(of)).fold(0, u64::saturating_add)
    };
    let all =
        counted.values().fold(Share::default(), |sum, counted| add(sum, counted.share(metric)));
    (all.questions > 0).then(|| TrainingOverlap::Questions {
        questions: all.questions,
        shown: all.shown,
        windows: sum(|of| of.windows),
        of_windows: sum(|of| of.of_windows),
    })
}

/// A metric's label in tables: its name, and why its questions are not held out, if they are not.
pub fn label(metric: &str, seen: Option<TrainingOverlap>) -> String {
    match seen.and_then(TrainingOverlap::why) {
        Some(why) => format!("{metric}, {why}"),
        None => metric.to_owned(),
    }
}

impl TrainingOverlap {
    /// The share of the questions known to be in the training data.
    pub fn share(self) -> Option<f64> {
        match self {
            TrainingOverlap::Questions { questions: 0, .. } | TrainingOverlap::ByDesign => None,
            TrainingOverlap::Questions { questions, shown, .. } => {
                Some(shown as f64 / questions as f64)
            }
        }
    }

    /// Why an evaluation must not be called held-out.
    fn why(self) -> Option<String> {
        let (windows, of_windows) = match self {
            TrainingOverlap::ByDesign => return Some("of people seen in training".to_owned()),
            TrainingOverlap::Questions { windows, of_windows, .. } => (windows, of_windows),
        };
        let share = self.share()?;
        let whole = windows == of_windows;
        match (share > MOST, whole) {
            (true, true) => Some(format!("seen in training ({} of questions)", percent_of(share))),
            (true, false) => {
                Some(format!("seen in training (at least {} of questions)", percent_of(share)))
            }
            (false, true) => None,
            (false, false) => Some("overlap with training not known".to_owned()),
        }
    }

    /// The sentence for a caption; `alike` if all rows have the same share.
    fn sentence(self, alike: bool) -> Option<String> {
        let (shown, questions, windows, of_windows) = match self {
            TrainingOverlap::ByDesign => {
                return Some(
                    "The evaluation asks about people seen in training, in other sentences, so it is not held out."
                        .to_owned(),
                );
            }
            TrainingOverlap::Questions { shown, questions, windows, of_windows } => {
                (shown, questions, windows, of_windows)
            }
        };
        let share = self.share()?;
        let looked = match windows == of_windows {
            true => String::new(),
            false => {
                format!(" in the first {windows} of its {of_windows} windows, so there may be more")
            }
        };
        let then = match (alike, self.why()) {
            (false, _) => {
                "shares differ between rows, and each row above 1% is labelled with its own"
            }
            (true, Some(_)) => "so they are not called held-out",
            (true, None) => "few enough (at most 1%) to call them held-out",
        };
        Some(format!(
            "Training showed {shown} of {questions} questions ({}) word for word{looked}: {then}.",
            percent_of(share)
        ))
    }
}

/// A share in percent, with one decimal if it is small.
pub fn percent_of(share: f64) -> String {
    let percent = 100.0 * share;
    if percent >= 9.95 || percent == 0.0 {
        format!("{percent:.0}%")
    } else {
        format!("{percent:.1}%")
    }
}

impl Pair<'_> {
    /// What training contained of a metric's questions, in all runs of the pair.
    pub(super) fn seen(&self, metric: &str) -> Option<TrainingOverlap> {
        let runs = [self.base_runs(), self.arm_runs(), self.replicate_runs()];
        seen(metric, runs.into_iter().flatten())
    }

    /// The label of a row.
    pub(crate) fn label(&self, metric: &str) -> String {
        label(metric, self.seen(metric))
    }
}

impl Comparison {
    fn runs(&self) -> impl Iterator<Item = &Run> {
        self.arms.iter().flat_map(|arm| arm.points.iter().flatten())
    }

    /// What training contained of a metric's questions, in all runs.
    pub(super) fn seen(&self, metric: &str) -> Option<TrainingOverlap> {
        seen(metric, self.runs())
    }

    /// The label of a metric over all runs.
    pub(super) fn label(&self, metric: &str) -> String {
        label(metric, self.seen(metric))
    }

    /// What training contained of the questions, in one sentence.
    pub(super) fn overlap(&self) -> Option<String> {
        let pairs = self.pairs();
        let rows = pairs.iter().flat_map(Pair::rows);
        let mut whys = rows.filter_map(|row| Some(row.seen?.why()));
        let first = whys.next()?;
        self.seen(EVAL_LOSS)?.sentence(whys.all(|why| why == first))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{show, two_seeds};
    use super::super::{TOKEN_ACCURACY, json, summary};
    use super::*;
    use crate::overview::{self, Entry};

    fn counted(shown: u64, windows: u64) -> TrainingOverlap {
        TrainingOverlap::Questions { questions: 1000, shown, windows, of_windows: 50 }
    }

    #[test]
    fn questions_that_training_showed_are_not_called_held_out() {
        for (seen, label_of_loss) in [
            (None, "eval_loss"),
            (Some(counted(10, 50)), "eval_loss"),
            (Some(counted(11, 50)), "eval_loss, seen in training (1.1% of questions)"),
            (Some(counted(380, 50)), "eval_loss, seen in training (38% of questions)"),
            (Some(counted(380, 9)), "eval_loss, seen in training (at least 38% of questions)"),
            (Some(counted(0, 9)), "eval_loss, overlap with training not known"),
            (Some(TrainingOverlap::ByDesign), "eval_loss, of people seen in training"),
        ] {
            let mut comparison = two_seeds();
            show(&mut comparison, seen);
            assert_eq!(comparison.label(EVAL_LOSS), label_of_loss);
            assert_eq!(comparison.label(TRAINING_LOSS), TRAINING_LOSS);
            let row = comparison.label(TOKEN_ACCURACY);
            assert_eq!(row == TOKEN_ACCURACY, label_of_loss == EVAL_LOSS);
            let entries = [Entry { task: "task", comparison: &comparison }];
            let marked = label_of_loss != EVAL_LOSS;
            for text in [summary(&comparison).text(), overview::table(&entries).text()] {
                let mark = label_of_loss.trim_start_matches(EVAL_LOSS);
                assert_eq!(marked && text.contains(mark), marked, "{seen:?}\n{text}");
                assert!(text.contains(label_of_loss), "{seen:?}\n{text}");
                assert!(marked || !text.contains("eval_loss, "), "{seen:?}\n{text}");
            }
            let picture = overview::picture(&entries);
            assert_eq!(picture.contains("eval_loss (not held out)"), marked, "{seen:?}\n{picture}");
            let said = summary(&comparison).caption.contains("Training showed");
            assert_eq!(said, matches!(seen, Some(TrainingOverlap::Questions { .. })));
            // Programs find the metric by its name; the label is separate.
            let document = json([("name", "id".to_owned(), &comparison)]);
            let row = &document.comparisons[0].pairs[0].rows[1];
            assert_eq!((row.metric.as_str(), row.label.as_str()), (EVAL_LOSS, label_of_loss));
            assert_eq!((document.comparisons[0].seen, row.seen), (seen, seen));
        }
    }

    /// A level that training showed is renamed, and the other level is not.
    #[test]
    fn each_level_has_its_own_share() {
        let mut comparison = two_seeds();
        let share = |questions, shown| Share { questions, shown };
        for run in comparison.arms.iter_mut().flat_map(|arm| arm.points.iter_mut().flatten()) {
            for level in [1, 2] {
                run.curves.metrics.insert(of_level(level), vec![(20, 0.5)]);
            }
            run.curves.metrics.insert(EXACT_MATCH.to_owned(), vec![(20, 0.5)]);
            run.shown = Some(RunOverlap::Counted(Counted {
                of: run.seed.to_string(),
                in_windows: share(1000, 2),
                answers: BTreeMap::from([(1, share(50, 40)), (2, share(150, 0))]),
                windows: 9,
                of_windows: 9,
            }));
        }
        let rows = &summary(&comparison).sections[0].table.rows;
        let labels: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(
            labels[1..6],
            [
                EVAL_LOSS,
                TOKEN_ACCURACY,
                "exact_match, seen in training (20% of questions)",
                "exact_match, level 1, seen in training (80% of questions)",
                "exact_match, level 2"
            ]
        );
        let document = json([("name", "id".to_owned(), &comparison)]);
        let of = |metric: &str| {
            let rows = &document.comparisons[0].pairs[0].rows;
            rows.iter().find(|row| row.metric == metric).unwrap().seen
        };
        // Two seeds have two evaluations; runs of one seed share theirs.
        let pooled = |questions, shown| {
            Some(TrainingOverlap::Questions { questions, shown, windows: 18, of_windows: 18 })
        };
        assert_eq!(of("exact_match, level 1"), pooled(100, 80));
        assert_eq!(of("exact_match, level 2"), pooled(300, 0));
        assert_eq!(of(EVAL_LOSS), pooled(2000, 4));
        assert_eq!(of(TRAINING_LOSS), None);
        let caption = summary(&comparison).caption;
        assert!(caption.contains("4 of 2000 questions (0.2%)"), "{caption}");
        assert!(caption.contains("shares differ between rows"), "{caption}");
    }

    /// A row of one arm is not labelled by the questions of another arm.
    #[test]
    fn each_pair_has_its_own_share() {
        let mut comparison = two_seeds();
        let mut other = comparison.arms[1].clone();
        other.name = "longer".to_owned();
        show(&mut comparison, Some(counted(0, 50)));
        for run in other.points.iter_mut().flatten() {
            let share = Share { questions: 1000, shown: 900 };
            let counted = Counted {
                of: "longer".to_owned(),
                in_windows: share,
                windows: 90,
                of_windows: 90,
                ..Counted::default()
            };
            run.shown = Some(RunOverlap::Counted(counted));
        }
        comparison.arms.push(other);
        let labels: Vec<String> =
            comparison.pairs().iter().map(|pair| pair.label(EVAL_LOSS)).collect();
        assert_eq!(labels, [EVAL_LOSS, "eval_loss, seen in training (45% of questions)"]);
    }
}
