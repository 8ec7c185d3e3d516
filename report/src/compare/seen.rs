//! Whether a comparison's evaluation questions occur in its training data.
//!
//! In: counts of questions, and of those that training contained word for word. Out: the label of a row. Must stay
//! true: an evaluation is not called held-out if training contained more than [`MOST`] of its questions, or if that is
//! unknown; a bound is called a bound.

use serde::Serialize;

use super::{Comparison, STEP_TIME, TRAINING_LOSS};

/// The largest share of questions in the training data at which an evaluation is still called held-out.
const MOST: f64 = 0.01;

/// How much of the evaluation training contained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// Questions of one evaluation, over all seeds.
    Questions {
        questions: u64,
        /// Those found with their answer, word for word, in the inspected training windows.
        shown: u64,
        /// Training windows that were inspected; `of_windows` is their total number.
        windows: u64,
        of_windows: u64,
    },
    /// The task evaluates facts that it trained on, by design: Capo's people, in other sentences.
    ByDesign,
}

impl Seen {
    /// The share of the questions known to be in the training data.
    pub fn share(self) -> Option<f64> {
        match self {
            Seen::Questions { questions: 0, .. } | Seen::ByDesign => None,
            Seen::Questions { questions, shown, .. } => Some(shown as f64 / questions as f64),
        }
    }

    /// Why an evaluation must not be called held-out.
    fn why(self) -> Option<String> {
        let (windows, of_windows) = match self {
            Seen::ByDesign => return Some("of people seen in training".to_owned()),
            Seen::Questions { windows, of_windows, .. } => (windows, of_windows),
        };
        let share = self.share()?;
        let whole = windows == of_windows;
        match (share > MOST, whole) {
            (true, true) => Some(format!("seen in training ({} of questions)", percent(share))),
            (true, false) => {
                Some(format!("seen in training (at least {} of questions)", percent(share)))
            }
            (false, true) => None,
            (false, false) => Some("overlap with training not known".to_owned()),
        }
    }

    /// The sentence for a caption.
    pub(super) fn sentence(self) -> Option<String> {
        let (shown, questions, windows, of_windows) = match self {
            Seen::ByDesign => {
                return Some(
                    "Evaluations are of the people that training showed, in other sentences, so they are not held out."
                        .to_owned(),
                );
            }
            Seen::Questions { shown, questions, windows, of_windows } => {
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
        let then = match self.why() {
            Some(_) => "so they are not called held-out",
            None => "few enough (at most 1%) to call them held-out",
        };
        Some(format!(
            "Training showed {shown} of {questions} questions ({}) word for word{looked}: {then}.",
            percent(share)
        ))
    }
}

fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent >= 9.95 || percent == 0.0 {
        format!("{percent:.0}%")
    } else {
        format!("{percent:.1}%")
    }
}

/// A row's label: its metric, and why its questions are not held out, if they are not.
pub(crate) fn label(comparison: &Comparison, metric: &str) -> String {
    let why = comparison.proved.seen.and_then(Seen::why);
    match why {
        Some(why) if ![TRAINING_LOSS, STEP_TIME].contains(&metric) => {
            format!("{}, {why}", neutral(metric))
        }
        Some(_) | None => metric.to_owned(),
    }
}

/// A metric's name without the claim that its questions are held out.
fn neutral(metric: &str) -> String {
    metric.replace("held-out loss", "evaluation loss")
}

impl Comparison {
    /// A metric's name in a sentence, or a sentence that contains it.
    pub fn calls(&self, metric: &str) -> String {
        if self.is_held_out() { metric.to_owned() } else { neutral(metric) }
    }

    /// Whether the evaluation may be called held-out, as far as known.
    pub(crate) fn is_held_out(&self) -> bool {
        self.proved.seen.and_then(Seen::why).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::two_seeds;
    use super::super::{HELD_OUT_LOSS, TOKENS_RIGHT, json, summary};
    use super::*;
    use crate::overview::{self, Entry};

    fn counted(shown: u64, windows: u64) -> Seen {
        Seen::Questions { questions: 1000, shown, windows, of_windows: 50 }
    }

    #[test]
    fn questions_that_training_showed_are_not_called_held_out() {
        for (seen, label_of_loss) in [
            (None, "held-out loss"),
            (Some(counted(10, 50)), "held-out loss"),
            (Some(counted(11, 50)), "evaluation loss, seen in training (1.1% of questions)"),
            (Some(counted(380, 50)), "evaluation loss, seen in training (38% of questions)"),
            (
                Some(counted(380, 9)),
                "evaluation loss, seen in training (at least 38% of questions)",
            ),
            (Some(counted(0, 9)), "evaluation loss, overlap with training not known"),
            (Some(Seen::ByDesign), "evaluation loss, of people seen in training"),
        ] {
            let mut comparison = two_seeds();
            comparison.proved.seen = seen;
            assert_eq!(label(&comparison, HELD_OUT_LOSS), label_of_loss);
            assert_eq!(label(&comparison, TRAINING_LOSS), TRAINING_LOSS);
            let row = label(&comparison, TOKENS_RIGHT);
            assert_eq!(row == TOKENS_RIGHT, label_of_loss == HELD_OUT_LOSS);
            let entries = [Entry { task: "task", comparison: &comparison }];
            let texts = [
                summary(&comparison).text(),
                overview::table(&entries).text(),
                overview::picture(&entries),
            ];
            for text in texts {
                assert_eq!(
                    text.contains("held-out loss"),
                    label_of_loss == HELD_OUT_LOSS,
                    "{seen:?}\n{text}"
                );
            }
            let said = summary(&comparison).caption.contains("Training showed");
            assert_eq!(said, matches!(seen, Some(Seen::Questions { .. })));
            // Programs find the metric by its name; the label is separate.
            let document = json([("name", "id".to_owned(), &comparison)]);
            let row = &document.comparisons[0].pairs[0].rows[1];
            assert_eq!((row.metric.as_str(), row.label.as_str()), (HELD_OUT_LOSS, label_of_loss));
            assert_eq!(document.comparisons[0].seen, seen);
        }
    }
}
