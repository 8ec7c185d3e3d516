//! A run's curves as an event file for TensorBoard.
//!
//! The same record of a log gives the same values, whether a file is written while the run trains or afterwards. NaN is
//! written as NaN, never left out.

mod format;

use std::path::Path;

use dsl::Problem;
use lab::experiment::Experiment;
use records::finished;
use records::metrics::{Evaluation, Record, Step};
use records::run::Paths;

use crate::compare::{Curves, TRAINING_LOSS};
use crate::page::{started, step_seconds};

pub use format::{Event, Records, each, first, read};

/// The end of the names of our files.
pub const ENDING: &str = ".canonc";
/// The beginning of the names of event files.
pub const BEGINNING: &str = "events.out.tfevents.";

/// The name of an event file that begins at this time. TensorBoard reads the files of a folder in the order of names.
pub fn file_name(begins: f64) -> String {
    format!("{BEGINNING}{:010}{ENDING}", begins as u64)
}

/// When a run began, 0 if that is not recorded.
pub fn begins(folder: &Path) -> Result<f64, Problem> {
    Ok(started(&Paths::new(folder).events())?.unwrap_or(0.0))
}

/// The bytes of the event file of a run: the events that it writes itself while it trains, with wall times of [`logged`],
/// so that equal runs give equal bytes.
pub fn events(folder: &Path, experiment: &Experiment) -> Result<Vec<u8>, Problem> {
    let mut file = first(begins(folder)?, &experiment.id().to_string());
    for event in logged(folder, experiment)? {
        file.extend(event.record());
    }
    Ok(file)
}

/// The events of all that a run has logged so far. Wall times are the run's start plus seconds of training. Refuses a
/// log of another lock.
pub fn logged(folder: &Path, experiment: &Experiment) -> Result<Vec<Event>, Problem> {
    let paths = Paths::new(folder);
    let (records, _) = finished::so_far(&paths, experiment.into())?;
    let (seconds, mut now) = (step_seconds(&paths.timings())?, begins(folder)?);
    let tokens = experiment.batch.tokens_per_step;
    let event = |record: &Record| match record {
        Record::Start(_) => None,
        Record::Step(step) => {
            let seconds = seconds.get(&step.step).copied();
            now += seconds.unwrap_or(0.0);
            Some(of_step(step, tokens, seconds, now))
        }
        Record::Evaluation(evaluation) => of_evaluation(evaluation, now),
    };
    Ok(records.iter().filter_map(event).collect())
}

/// The event of a step that took so long.
pub fn of_step(step: &Step, tokens: u64, seconds: Option<f64>, wall_time: f64) -> Event {
    let loss = step.loss.map(|loss| (TRAINING_LOSS, loss));
    let values = loss.into_iter().chain([(NORM, step.grad_norm), (RATE, step.lr)]);
    let values = values.map(|(name, value)| (tag(TRAINING, name), value as f32));
    let values = values.chain(seconds.and_then(|seconds| speed(tokens, seconds))).collect();
    Event { wall_time, step: step.step, values }
}

/// The event of an evaluation; `None` if it measured nothing.
pub fn of_evaluation(evaluation: &Evaluation, wall_time: f64) -> Option<Event> {
    let curves = Curves::from_records(&[Record::Evaluation(evaluation.clone())]);
    let value = |(name, points): (String, Vec<(u64, f64)>)| {
        points.last().map(|(_, value)| (tag(EVALUATION, &name), *value as f32))
    };
    let values: Vec<(String, f32)> = curves.metrics.into_iter().filter_map(value).collect();
    (!values.is_empty()).then_some(Event { wall_time, step: evaluation.step, values })
}

/// Whether an event of a file says the same as that of the log. Speeds may be missing in either.
pub fn agree(written: &Event, logged: &Event) -> bool {
    let of_log = logged.values.iter().filter(|(tag, _)| !tag.starts_with(SPEED)).cloned();
    written.has(logged.step, &of_log.collect::<Vec<_>>())
}

/// Whether this is the event of an evaluation.
pub fn is_evaluation(event: &Event) -> bool {
    event.values.iter().any(|(tag, _)| tag.starts_with(EVALUATION))
}

const NORM: &str = "gradient norm";
const RATE: &str = "learning rate";
// The overlap with training is not counted here, so no loss is called held-out.
const TRAINING: &str = "training";
const EVALUATION: &str = "evaluation";
const SPEED: &str = "speed";

fn speed(tokens: u64, seconds: f64) -> Option<(String, f32)> {
    let name = tag(SPEED, "tokens per second");
    (seconds > 0.0).then(|| (name, (tokens as f64 / seconds) as f32))
}

/// `training/training_loss`: TensorBoard groups by the part before the first `/` and does not handle blanks well.
fn tag(group: &str, name: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    format!("{group}/{}", name.chars().map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_groups_and_plain_words() {
        assert_eq!(tag(TRAINING, TRAINING_LOSS), "training/training_loss");
        assert_eq!(tag(EVALUATION, "exact_match, level 2"), "evaluation/exact_match__level_2");
    }

    #[test]
    fn speeds_are_of_steps_that_took_time() {
        assert_eq!(speed(300, 1.5), Some(("speed/tokens_per_second".to_owned(), 200.0)));
        assert_eq!((speed(300, 0.0), speed(300, f64::NAN)), (None, None));
    }
}
