//! Whether a row's evaluation questions occur in the training data. An evaluation is called held-out only if at most
//! [`MOST`] of its own questions are known to; a row of one level is judged by the questions of that level.

use std::collections::BTreeMap;

use records::overlap::Share;
use serde::Serialize;
use tasks::metric::of_suite;

use super::metric::{EXACT_MATCH, STEP_TIME, TRAINING_LOSS, exact_match_of};

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
            _ => metric == exact_match_of(**level),
        });
        match metric.starts_with(EXACT_MATCH) {
            true => levels.fold(Share::default(), |sum, (_, share)| add(sum, *share)),
            false => self.in_windows,
        }
    }
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

/// What the training of runs with these overlaps contained of a metric's questions; `None` for a metric without
/// questions, or if they were not counted, as for documents.
pub fn training_overlap<'r>(
    metric: &str,
    of_runs: impl IntoIterator<Item = &'r RunOverlap>,
) -> Option<TrainingOverlap> {
    // Training data is not searched for the questions of suites.
    if [TRAINING_LOSS, STEP_TIME].contains(&metric) || of_suite(metric).is_some() {
        return None;
    }
    let mut counted: BTreeMap<&str, &Counted> = BTreeMap::new();
    for overlap in of_runs {
        match overlap {
            RunOverlap::ByDesign => return Some(TrainingOverlap::ByDesign),
            RunOverlap::Counted(count) => {
                counted.insert(&count.of, count);
            }
        }
    }
    let sum = |part: fn(&Counted) -> u64| {
        counted.values().map(|count| part(count)).fold(0, u64::saturating_add)
    };
    let all =
        counted.values().fold(Share::default(), |sum, counted| add(sum, counted.share(metric)));
    (all.questions > 0).then(|| TrainingOverlap::Questions {
        questions: all.questions,
        shown: all.shown,
        windows: sum(|count| count.windows),
        of_windows: sum(|count| count.of_windows),
    })
}

/// A metric's label in tables: its name, and why its questions are not held out, if they are not.
pub fn label(metric: &str, overlap: Option<TrainingOverlap>) -> String {
    match overlap.and_then(TrainingOverlap::not_held_out) {
        Some(reason) => format!("{metric}, {reason}"),
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
    pub(super) fn not_held_out(self) -> Option<String> {
        let (windows, of_windows) = match self {
            TrainingOverlap::ByDesign => return Some("of people seen in training".to_owned()),
            TrainingOverlap::Questions { windows, of_windows, .. } => (windows, of_windows),
        };
        let share = self.share()?;
        match (share > MOST, windows == of_windows) {
            (true, true) => Some(format!("seen in training ({} of questions)", percent_of(share))),
            (true, false) => {
                Some(format!("seen in training (at least {} of questions)", percent_of(share)))
            }
            (false, true) => None,
            (false, false) => Some("overlap with training not known".to_owned()),
        }
    }

    /// The sentence for a caption; `alike` if all rows have the same share.
    pub(super) fn sentence(self, alike: bool) -> Option<String> {
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
        let inspected = match windows == of_windows {
            true => String::new(),
            false => {
                format!(" in the first {windows} of its {of_windows} windows, so there may be more")
            }
        };
        let conclusion = match (alike, self.not_held_out()) {
            (false, _) => {
                "shares differ between rows, and each row above 1% is labelled with its own"
            }
            (true, Some(_)) => "so they are not called held-out",
            (true, None) => "few enough (at most 1%) to call them held-out",
        };
        Some(format!(
            "Training showed {shown} of {questions} questions ({}) word for word{inspected}: {conclusion}.",
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
