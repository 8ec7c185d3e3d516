//! Compares the logs and the kept checkpoints of two runs of one lock. Nothing is computed again.

use std::path::Path;

use dsl::Problem;
use lab::experiment::{Device, Experiment};

use super::{First, Reproduction};
use crate::replay::{Difference, Platform, RecordedRun, RunPoint};
use records::checkpoint::{self, compare_kept};
use records::metrics::Record;
use records::run::Paths;

/// Compares the logs and checkpoints of two runs of one lock.
pub fn against(one: &Path, other: &Path, experiment: &Experiment) -> Result<Reproduction, Problem> {
    let (one, other) = (open(one, experiment)?, open(other, experiment)?);
    let cuda = experiment.platform.device != Device::Cpu;
    let platform = Platform::between(&one.machines, &other.machines, cuda);
    let mut reproduction = Reproduction::new(one.steps(), platform);
    let first = compare_logs(&one, &other, &mut reproduction);
    let first = compare_checkpoints(&one, &other, first, &mut reproduction)?;
    Ok(match first {
        None => reproduction,
        Some(first) => reproduction.ending_with(first),
    })
}

fn open(folder: &Path, experiment: &Experiment) -> Result<RecordedRun, Problem> {
    let slots = checkpoint::slots(&experiment.arch.compiled.graph, &experiment.updates);
    let run = RecordedRun::open(&Paths::new(folder), experiment.id(), slots)?;
    if run.records().next().is_none() {
        return Err(Problem::input(
            format!("{} has no metrics log to compare", folder.display()),
            "name the folder of a run that has started",
        ));
    }
    Ok(run)
}

/// Counts the equal records before the first difference.
fn compare_logs(
    one: &RecordedRun,
    other: &RecordedRun,
    reproduction: &mut Reproduction,
) -> Option<First> {
    // The steps after which both kept the same state.
    let shared: Vec<u64> = one
        .kept
        .iter()
        .filter(|kept| other.kept.iter().any(|theirs| kept.manifest.same_state(&theirs.manifest)))
        .map(|kept| kept.manifest.step)
        .collect();
    for record in one.records() {
        let point = RunPoint::from_record(record);
        let theirs = match (other.record(point), record) {
            (Some(theirs), _) => theirs,
            // Both locks may ask for other steps to evaluate after, and each log was checked against its own.
            (None, Record::Evaluation(_)) => continue,
            (None, Record::Start(_) | Record::Step(_)) => return Some(log_ends(other.last())),
        };
        let since = shared.iter().rev().find(|step| **step <= reproduction.steps);
        let since = since.copied().unwrap_or(0);
        let (one, other) = (record.as_logged(theirs), theirs.as_logged(record));
        if let Some(difference) = Difference::between(&one, &other, since, &reproduction.platform) {
            return Some(First::new(point, difference));
        }
        match record {
            Record::Start(_) => {}
            Record::Step(_) => reproduction.steps += 1,
            Record::Evaluation(_) => {
                let lacks_questions = record.lacks(theirs) || theirs.lacks(record);
                reproduction.evaluations += 1;
                reproduction.without_questions += u64::from(lacks_questions);
            }
        }
    }
    (other.last() > one.last()).then(|| log_ends(one.last()))
}

const ONE_LOG: &str = "the tensors of the next checkpoint are the same bits, so both trained the same: one of the \
 logs is wrong";

/// Compares the checkpoints that both kept, oldest first, up to the first after the difference in the logs.
fn compare_checkpoints(
    one: &RecordedRun,
    other: &RecordedRun,
    mut first: Option<First>,
    reproduction: &mut Reproduction,
) -> Result<Option<First>, Problem> {
    for kept in &one.kept {
        let step = kept.manifest.step;
        let Some(theirs) = other.kept_at(step) else { continue };
        let difference = compare_kept((&one.store, kept), (&other.store, theirs))?;
        match (&mut first, difference) {
            (None, Some(difference)) => {
                return Ok(Some(First::of_checkpoint(step, difference, &reproduction.platform)));
            }
            // Weights may differ before any number in the log does.
            (Some(first), difference) if difference.is_some() || step > reproduction.steps => {
                if difference.is_none() {
                    first.reasons.push(ONE_LOG.to_owned());
                }
                first.tensor = Some((step, difference));
                break;
            }
            (None | Some(_), _) => reproduction.checkpoints.push(step),
        }
    }
    Ok(first)
}

/// One of the runs continues after the other's last step.
fn log_ends(last: u64) -> First {
    let text = format!("only one of the runs has it: the other's log ends after step {last}");
    First::new(RunPoint::Step(last + 1), Difference::certain(text))
}
