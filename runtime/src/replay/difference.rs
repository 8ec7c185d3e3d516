//! The points of a run that have a recorded result, and how two results of one point differ.

use records::metrics::Record;

use super::near::{is_near, scores_are_near};
use super::platform::Platform;

/// A point of a run that has a recorded result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPoint {
    /// The initial weights.
    Start,
    Step(u64),
    Evaluation(u64),
    Checkpoint(u64),
}

impl RunPoint {
    pub(crate) fn from_record(record: &Record) -> RunPoint {
        match record {
            Record::Start(_) => RunPoint::Start,
            Record::Step(step) => RunPoint::Step(step.step),
            Record::Evaluation(evaluation) => RunPoint::Evaluation(evaluation.step),
        }
    }

    pub fn text(self) -> String {
        match self {
            RunPoint::Start => "the initial weights".to_owned(),
            RunPoint::Step(step) => format!("step {step}"),
            RunPoint::Evaluation(step) => format!("the evaluation after step {step}"),
            RunPoint::Checkpoint(step) => format!("the checkpoint of step {step}"),
        }
    }

    /// Its step, and its place among the points of that step.
    pub(super) fn order(self) -> (u64, u8) {
        match self {
            RunPoint::Start => (0, 0),
            RunPoint::Step(step) => (step, 1),
            RunPoint::Evaluation(step) => (step, 2),
            RunPoint::Checkpoint(step) => (step, 3),
        }
    }
}

/// A result that differs from the run's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The values that differ, both of them.
    pub text: String,
    /// Whether rounding on another machine may explain it.
    pub maybe_rounding: bool,
    /// Whether it may even if that machine gives the same weights: only the sum of a loss rounds otherwise.
    pub slight: bool,
}

impl Difference {
    /// How two records of one point differ, if at all. After step `since`, both runs had the same state. A number that
    /// rounding cannot affect must agree on any machine.
    pub(crate) fn between(
        one: &Record,
        other: &Record,
        since: u64,
        platform: &Platform,
    ) -> Option<Difference> {
        if one.text() == other.text() {
            return None;
        }
        let differences = one.differences(other);
        let text = match differences.is_empty() {
            true => "its line differs".to_owned(),
            false => differences.join("; "),
        };
        let [maybe_rounding, slight] = match (one, other) {
            (Record::Step(one), Record::Step(other)) => {
                [one.step.saturating_sub(since), 1].map(|steps| is_near(one, other, steps))
            }
            (Record::Evaluation(one), Record::Evaluation(other)) => {
                [one.step.saturating_sub(since), 0].map(|steps| scores_are_near(one, other, steps))
            }
            (Record::Start(_) | Record::Step(_) | Record::Evaluation(_), _) => [false; 2],
        };
        let rounds = *platform != Platform::Same;
        Some(Difference {
            text,
            maybe_rounding: rounds && maybe_rounding,
            slight: rounds && slight,
        })
    }

    /// A difference that no rounding explains.
    pub(crate) fn certain(text: String) -> Difference {
        Difference { text, maybe_rounding: false, slight: false }
    }

    /// A difference between the tensors of a state.
    pub(crate) fn of_state(text: String, platform: &Platform) -> Difference {
        Difference { text, maybe_rounding: *platform != Platform::Same, slight: false }
    }

    /// Judges again where a checkpoint came out to the bit: this machine rounds as the run's did.
    pub(crate) fn judge_by_equal_checkpoint(&mut self) {
        self.maybe_rounding &= self.slight;
    }
}
