//! Checks each checkpoint of a run against its name, its digests, the lock and the log.
//!
//! Digests are of the bytes on disk. A checkpoint is tied to one step by its folder's name, its own text, each of its files
//! and the log.

use std::io;
use std::path::Path;

use compiler::digest::Digest;
use dsl::Problem;
use lab::experiment::Experiment;

use super::log::Log;
use super::{Subject, VerifyReport};
use crate::checkpoint::{
    self, Manifest, PARTS, Part, Pointer, Slot, TensorDigests, name_of, tensor_hasher,
};
use crate::metrics::{Record, Start};
use crate::run::POINTER;
use crate::run::{Paths, Refusal, UNFINISHED, cannot_read};

/// The last step of a run, and whether the run reached it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) last: u64,
    pub(super) finished: bool,
}

/// Checks the checkpoints `names`, listed before the log was read, of canonc's run or of one with a trainer record. Returns the manifest of the last step's, if it is
/// valid. In an unfinished run, a missing one was pruned by a concurrent training process.
pub(super) fn check(
    paths: &Paths,
    experiment: &Experiment,
    names: &[String],
    (log, trainer): (Option<&Log>, Option<Digest>),
    Ends { last, finished }: Ends,
    report: &mut VerifyReport,
) -> Result<Option<Manifest>, Problem> {
    let folder = paths.checkpoints();
    check_names(&folder, finished, report)?;
    let slots = checkpoint::slots(&experiment.arch.compiled.graph, &experiment.updates);
    let mut saved = None;
    for name in names {
        let of_end = finished && *name == name_of(last);
        match check_one(&folder, name, experiment, (log, trainer), &slots, of_end) {
            Ok(manifest) => {
                report.recomputed(
                    Subject::Tensors,
                    format!(
                        "checkpoints/{name}: {} files, {} each, every digest from their bytes; weights {}",
                        PARTS.len(),
                        dsl::counted(slots.len(), "tensor"),
                        manifest.weights.tensors.short()
                    ),
                );
                if manifest.step == last {
                    saved = Some(manifest);
                }
            }
            Err(Refusal::Wrong(_))
                if !finished && matches!(folder.join(name).try_exists(), Ok(false)) => {}
            Err(refusal) => report.faulty(&format!("checkpoints/{name}: "), refusal),
        }
    }
    check_latest(&folder, last, finished, report)?;
    Ok(saved)
}

/// Refuses entries that are not checkpoints.
fn check_names(folder: &Path, finished: bool, report: &mut VerifyReport) -> Result<(), Problem> {
    let failed = |error: io::Error| cannot_read(folder, &error);
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let (mut strange, mut unfinished, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for entry in entries {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        let is_one = checkpoint::step_of(&name).is_some_and(|step| name_of(step) == name);
        if !finished && name.starts_with(UNFINISHED) {
            unfinished.push(format!("checkpoints/{name}"));
        } else if checkpoint::was_set_aside(&name) {
            refused.push(format!("checkpoints/{name}"));
        } else if !is_one && name != POINTER {
            strange.push(name);
        }
    }
    strange.sort_unstable();
    unfinished.sort_unstable();
    if !unfinished.is_empty() {
        report.trusted(
            Subject::OtherFiles,
            format!(
                "unfinished files of a process, which were not read and which the next process deletes: {}",
                unfinished.join(", ")
            ),
        );
    }
    if !refused.is_empty() {
        refused.sort_unstable();
        report.trusted(
            Subject::OtherFiles,
            format!(
                "checkpoints that the run refused and did not use, which were not read: {}",
                refused.join(", ")
            ),
        );
    }
    for name in strange {
        report.broken_stray(format!("checkpoints/{name} is not a checkpoint"));
    }
    Ok(())
}

/// `of_end` is true for the last state of a finished run.
fn check_one(
    folder: &Path,
    name: &str,
    experiment: &Experiment,
    (log, trainer): (Option<&Log>, Option<Digest>),
    slots: &[Slot],
    of_end: bool,
) -> Result<Manifest, Refusal> {
    let checkpoint_folder = folder.join(name);
    let claimed = checkpoint::manifest_of(&checkpoint_folder, trainer)?;
    if claimed.lock != experiment.id() {
        return Err(format!(
            "it belongs to lock {}, but the run to {}",
            claimed.lock.short(),
            experiment.id().short()
        )
        .into());
    }
    if name_of(claimed.step) != name {
        return Err(format!(
            "it is the state after step {}, but its folder is named {name}",
            claimed.step
        )
        .into());
    }
    if claimed.step > experiment.budget.steps {
        return Err(format!("the run has {}", dsl::counted(experiment.budget.steps, "step")).into());
    }
    let manifest = checkpoint::verify_of(&checkpoint_folder, slots, trainer)?;
    if let Some(log) = log {
        let heads = log.heads_after(manifest.step);
        let head = heads.last().copied();
        // A run that was stopped in an evaluation saved its state before.
        let is_logged =
            if of_end { head == Some(manifest.chain) } else { heads.contains(&manifest.chain) };
        if !is_logged {
            return Err(format!(
                "it was saved when the metrics log had chain {} after step {}, but this log has {}",
                manifest.chain.short(),
                manifest.step,
                head.map_or_else(|| "no such step".to_owned(), |head| head.short())
            )
            .into());
        }
        if manifest.step == 0 {
            check_start(&manifest, log, slots)?;
        }
    }
    Ok(manifest)
}

/// Checks the state before the first step: initial weights, zero moments.
fn check_start(manifest: &Manifest, log: &Log, slots: &[Slot]) -> Result<(), String> {
    let Some(Record::Start(Start { initial, .. })) = log.records.first() else { return Ok(()) };
    let zeros = |part| zeros(slots, part);
    for (part, expected) in [
        (Part::Weights, *initial),
        (Part::FirstMoment, zeros(Part::FirstMoment)),
        (Part::SecondMoment, zeros(Part::SecondMoment)),
    ] {
        let tensors = manifest.content(part).tensors;
        if tensors != expected {
            return Err(format!(
                "its {} are {}, but before the first step they are {}",
                part.name(),
                tensors.short(),
                expected.short()
            ));
        }
    }
    Ok(())
}

/// The digest of a part with all-zero tensors.
fn zeros(slots: &[Slot], part: Part) -> Digest {
    let block = vec![0; 1 << 20];
    let mut digests = TensorDigests::default();
    for slot in slots.iter().map(|slot| slot.in_part(part)) {
        let mut hasher = tensor_hasher();
        let mut left = 4 * slot.elements();
        while left > 0 {
            let length = left.min(block.len());
            hasher.update(block.get(..length).unwrap_or_default());
            left -= length;
        }
        digests.push(&slot, hasher.finalize());
    }
    digests.finish()
}

/// How often to read `latest` again if it names a missing checkpoint.
const RETRIES: u32 = 3;

/// Checks that `latest` names the last step's checkpoint in a finished run, and an existing one in any other.
fn check_latest(
    folder: &Path,
    last: u64,
    finished: bool,
    report: &mut VerifyReport,
) -> Result<(), Problem> {
    let mut pointer = checkpoint::pointer(folder)?;
    let mut names = checkpoint::names(folder)?;
    // During training, the checkpoint in `latest` may be pruned before the folder is listed.
    for _ in 0..RETRIES {
        match &pointer {
            Pointer::To(name) if !finished && !names.contains(name) => {}
            Pointer::To(_) | Pointer::Unreadable(_) | Pointer::None => break,
        }
        pointer = checkpoint::pointer(folder)?;
        names = checkpoint::names(folder)?;
    }
    let newest = names.first();
    match pointer {
        Pointer::Unreadable(text) => report.broken(format!(
            "checkpoints/{POINTER} should name a checkpoint, but its text is {text:?}"
        )),
        Pointer::None if finished => report.broken(format!(
            "checkpoints/{POINTER} is missing; it should name {}",
            name_of(last)
        )),
        // A process that ended between its first checkpoint and the pointer leaves one checkpoint.
        Pointer::None if names.len() > 1 => {
            report.broken(format!("checkpoints/{POINTER} is missing, but there are checkpoints"));
        }
        Pointer::None => {}
        Pointer::To(name) if finished && name != name_of(last) => report.broken(format!(
            "checkpoints/{POINTER} names {name}, but the last step's is {}",
            name_of(last)
        )),
        Pointer::To(name) if !names.contains(&name) => {
            report.broken(format!("checkpoints/{POINTER} names {name}, which is missing"));
        }
        Pointer::To(name) if newest != Some(&name) => report.trusted(
            Subject::Checkpoints,
            format!("checkpoints newer than {name}, the one that {POINTER} names: a process ended while it saved one"),
        ),
        Pointer::To(name) => report.checked(
            Subject::Checkpoints,
            format!("checkpoints/{POINTER} names the newest, {name}"),
        ),
    }
    Ok(())
}
