//! In: the folders of two runs of one lock. Out: the first line of their logs and the first tensor of their checkpoints
//! that differ. Must stay true: nothing is computed again and nothing is written; only checkpoints that both kept are
//! compared, oldest first; between two machines, only a difference no larger than rounding is called rounding.

use std::collections::BTreeMap;
use std::path::Path;

use lab::experiment::{Device, Experiment};

use super::{First, Reproduction, RunPoint};
use crate::replay::{Machines, Platform, is_near, scores_are_near};
use crate::train::started;
use records::attest::Attestation;
use records::checkpoint::{self, SavedCheckpoint, Store, compare_kept};
use records::metrics::{self, Record};
use records::run::{Paths, RunError};

/// Compares the logs and checkpoints of two runs of one lock.
pub fn against(
    one: &Path,
    other: &Path,
    experiment: &Experiment,
) -> Result<Reproduction, RunError> {
    let open = |folder: &Path| -> Result<Side, RunError> {
        let paths = Paths::new(folder);
        let (records, heads) = metrics::read_with_heads(&paths.metrics())?;
        if records.is_empty() {
            return Err(RunError::input(
                format!("{} has no metrics log to compare", folder.display()),
                "name the folder of a run that has started",
            ));
        }
        let slots = checkpoint::slots(&experiment.arch.compiled.graph, &experiment.updates);
        let store = Store::new(paths.checkpoints(), experiment.id(), slots);
        let kept = store.kept(|chain| heads.contains(&chain))?;
        let text = disk::read_text(&paths.attestation(), disk::SMALL).ok();
        let attestation = text.and_then(|text| Attestation::parse(&text).ok());
        let machines = Machines { attestation, started: started(&paths) };
        Ok(Side { records, store, kept, machines })
    };
    let (one, other) = (open(one)?, open(other)?);
    let cuda = experiment.platform.device != Device::Cpu;
    let platform = Platform::between(&one.machines, &other.machines, cuda);
    let elsewhere = platform != Platform::Same;
    let mut found = Reproduction {
        steps: 0,
        of_steps: one.records.iter().filter(|record| matches!(record, Record::Step(_))).count()
            as u64,
        evaluations: 0,
        without_questions: 0,
        checkpoints: Vec::new(),
        first: None,
        platform,
    };
    let mut done = 0;
    // The latest state that both kept, before any difference in the logs.
    let mut agreed = 0;
    let theirs: BTreeMap<(u64, u8), &Record> =
        other.records.iter().map(|record| (key(record), record)).collect();
    for left in &one.records {
        let right = match (theirs.get(&key(left)), left) {
            (Some(right), _) => right,
            // Both locks may ask for other steps to evaluate after, and `order` checked each log against its own.
            (None, Record::Evaluation(_)) => continue,
            (None, Record::Start(_) | Record::Step(_)) => {
                found.first = Some(ends(other.last()));
                break;
            }
        };
        if left.as_logged(right).text() != right.as_logged(left).text() {
            let place = match left {
                Record::Start(_) => RunPoint::Start,
                Record::Step(step) => RunPoint::Step(step.step),
                Record::Evaluation(evaluation) => RunPoint::Evaluation(evaluation.step),
            };
            for kept in one.kept.iter().take_while(|kept| kept.manifest.step <= done) {
                let same =
                    other.kept.iter().any(|theirs| kept.manifest.same_state(&theirs.manifest));
                agreed = if same { kept.manifest.step } else { agreed };
            }
            let near = |known: bool| match (left, right) {
                (Record::Step(one), Record::Step(other)) => {
                    let after = if known { 1 } else { one.step.saturating_sub(agreed) };
                    elsewhere && is_near(one, other, after)
                }
                (Record::Evaluation(one), Record::Evaluation(other)) => {
                    let after = if known { 0 } else { one.step.saturating_sub(agreed) };
                    elsewhere && scores_are_near(one, other, after)
                }
                (Record::Start(_) | Record::Step(_) | Record::Evaluation(_), _) => false,
            };
            let text = left.differences(right).join("; ");
            found.first = Some(First::new(place, text, [near(false), near(true)]));
            break;
        }
        match left {
            Record::Start(_) => {}
            Record::Step(step) => (found.steps, done) = (found.steps + 1, step.step),
            Record::Evaluation(_) => {
                found.evaluations += 1;
                found.without_questions += u64::from(left.lacks(right) || right.lacks(left));
            }
        }
    }
    if found.first.is_none() && other.last() > one.last() {
        found.first = Some(ends(one.last()));
    }
    for kept in &one.kept {
        let step = kept.manifest.step;
        let Some(theirs) = other.kept.iter().find(|found| found.manifest.step == step) else {
            continue;
        };
        let difference = compare_kept((&one.store, kept), (&other.store, theirs))?;
        match (&mut found.first, difference) {
            (first @ None, Some(difference)) => {
                let mut new =
                    First::new(RunPoint::Checkpoint(step), difference.text(), [elsewhere, false]);
                new.tensor = Some((step, Some(difference)));
                *first = Some(new);
                break;
            }
            (Some(first), difference) if step > done => {
                if difference.is_none() {
                    first.reasons.push(ONE_LOG.to_owned());
                }
                first.tensor = Some((step, difference));
                break;
            }
            // Weights differ before any number in the log does.
            (Some(first), Some(difference)) => {
                first.tensor = Some((step, Some(difference)));
                break;
            }
            (None | Some(_), None) => found.checkpoints.push(step),
        }
    }
    found.first = found.first.map(|first| first.judged(&found.checkpoints));
    Ok(found)
}

const ONE_LOG: &str = "the tensors of the next checkpoint are the same bits, so both trained the same: one of the \
 logs is wrong";

/// The place of a record in the order of training.
fn key(record: &Record) -> (u64, u8) {
    match record {
        Record::Start(_) => (0, 0),
        Record::Step(step) => (step.step, 1),
        Record::Evaluation(evaluation) => (evaluation.step, 2),
    }
}

/// One of the runs goes on after the other's last step.
fn ends(last: u64) -> First {
    let text = format!("only one of the runs has it: the other's log ends after step {last}");
    First::new(RunPoint::Step(last + 1), text, [false; 2])
}

impl Side {
    fn last(&self) -> u64 {
        self.records.iter().map(|record| key(record).0).max().unwrap_or(0)
    }
}

struct Side {
    records: Vec<Record>,
    store: Store,
    kept: Vec<SavedCheckpoint>,
    machines: Machines,
}
