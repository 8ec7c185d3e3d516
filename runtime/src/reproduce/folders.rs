//! In: the folders of two runs of one lock. Out: the first line of their logs and the first tensor of their
//! checkpoints that differ. Must stay true: nothing is computed again and nothing is written; only checkpoints that
//! both kept are compared, the oldest first.

use std::path::Path;

use super::{First, Place, Reproduction};
use crate::checkpoint::{Found, Slot, StateDifference, Store, compare};
use crate::metrics::{self, Record};
use crate::replay::Platform;
use crate::run::{Paths, RunError};

/// Compares what two runs of one lock kept.
pub fn against(
    one: &Path,
    other: &Path,
    lock: compiler::digest::Digest,
    slots: &[Slot],
) -> Result<Reproduction, RunError> {
    let open = |folder: &Path| -> Result<Side, RunError> {
        let paths = Paths::new(folder);
        let (records, heads) = metrics::read_with_heads(&paths.metrics())?;
        if records.is_empty() {
            return Err(RunError::input(
                format!("{} has no metrics log to compare", folder.display()),
                "name the folder of a run that has begun",
            ));
        }
        let store = Store::new(paths.checkpoints(), lock, slots.to_vec());
        let kept = store.kept(|chain| heads.contains(&chain))?;
        Ok(Side { records, store, kept })
    };
    let (one, other) = (open(one)?, open(other)?);
    let mut found = Reproduction {
        steps: 0,
        of_steps: one.records.iter().filter(|record| matches!(record, Record::Step(_))).count()
            as u64,
        evaluations: 0,
        checkpoints: Vec::new(),
        first: None,
        platform: Platform::Same,
    };
    let mut done = 0;
    for (left, right) in one.records.iter().zip(&other.records) {
        if left.text() != right.text() {
            let place = match left {
                Record::Start(_) => Place::Start,
                Record::Step(step) => Place::Step(step.step),
                Record::Evaluation(evaluation) => Place::Evaluation(evaluation.step),
            };
            found.first = Some(First::new(place, left.differences(right).join("; "), false));
            break;
        }
        match left {
            Record::Start(_) => {}
            Record::Step(step) => (found.steps, done) = (found.steps + 1, step.step),
            Record::Evaluation(_) => found.evaluations += 1,
        }
    }
    for kept in &one.kept {
        let step = kept.manifest.step;
        let Some(theirs) = other.kept.iter().find(|found| found.manifest.step == step) else {
            continue;
        };
        let difference = one.compare(kept, &other, theirs)?;
        match (&mut found.first, difference) {
            (first @ None, Some(difference)) => {
                let mut new = First::new(Place::Checkpoint(step), difference.text(), false);
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
    Ok(found)
}

const ONE_LOG: &str = "the tensors of the next checkpoint are the same bits, so that both trained the same: one of the logs is wrong";

struct Side {
    records: Vec<Record>,
    store: Store,
    kept: Vec<Found>,
}

impl Side {
    fn compare(
        &self,
        kept: &Found,
        other: &Side,
        theirs: &Found,
    ) -> Result<Option<StateDifference>, RunError> {
        let tensors = |found: &Found| {
            let manifest = &found.manifest;
            [
                manifest.weights.tensors,
                manifest.first_moment.tensors,
                manifest.second_moment.tensors,
            ]
        };
        if tensors(kept) == tensors(theirs) {
            return Ok(None);
        }
        let mut bytes = std::collections::BTreeMap::new();
        other.store.load(theirs, &mut |part, index, content| {
            bytes.insert((part, index), content.to_vec());
            Ok(())
        })?;
        compare(&self.store, kept, &mut |part, index, out| {
            out.extend_from_slice(bytes.get(&(part, index)).map_or(&[][..], Vec::as_slice));
            Ok(())
        })
    }
}
