//! Checks the files of a run that has done its last step or diverged, before it is attested and when it is met again.
//!
//! Everything is read back from disk and computed again; nothing is taken from the memory of the process that wrote it.

use super::timings::{TimedRun, timed_seconds};
use crate::attest::Attestation;
use crate::checkpoint::{self, Manifest, PARTS, Pointer, name_of};
use crate::finished;
use crate::job::Job;
use crate::metrics::{Record, Start};
use crate::run::{
    Difference, Event, Paths, Refusal, RunFolder, first_difference, json_lines, kernel_lines,
    wrong_kernels,
};
use dsl::Problem;

/// Refuses to attest a run that its folder does not support.
pub fn check(
    paths: &Paths,
    job: &Job,
    attestation: &Attestation,
    processes: usize,
) -> Result<(), Problem> {
    let records = finished::records(paths, job.into(), attestation)?;
    let supported = || {
        texts(paths, job, attestation)?;
        kernels(job, attestation)?;
        start(job, &records)?;
        let (records, steps) = (records.as_slice(), job.steps);
        timed_seconds(paths, TimedRun { records, processes, steps, finished: true })?;
        last_state(paths, job, attestation)
    };
    match supported() {
        Ok(_) => Ok(()),
        Err(refusal) => Err(refusal.problem(|reason| refused(paths, reason))),
    }
}

/// The records of a finished run that is as it was attested, and writes its last event if the process that attested it
/// ended before that.
pub fn intact(
    folder: &RunFolder,
    job: &Job,
    attestation: &Attestation,
) -> Result<Vec<Record>, Problem> {
    let records = finished::records(&folder.paths, job.into(), attestation)?;
    // Checkpoints may have been deleted to save space; an existing one must match the attestation.
    if !checkpoint::names(&folder.paths.checkpoints())?.is_empty() {
        last_state(&folder.paths, job, attestation)
            .map_err(|refusal| refusal.problem(|what| finished::mismatch(&folder.paths, what)))?;
    }
    end_events(folder, attestation, &records, job.steps)?;
    Ok(records)
}

fn end_events(
    folder: &RunFolder,
    attestation: &Attestation,
    records: &[Record],
    last: u64,
) -> Result<(), Problem> {
    let step = attestation.steps;
    let (kind, event) =
        match finished::diverged(records, last).filter(|_| attestation.diverged.is_some()) {
            None => ("finished", Event::Finished { step }),
            Some((step, why)) => ("diverged", Event::Diverged { step, why }),
        };
    let events = json_lines(&folder.paths.events())?;
    let ended = events.last().and_then(|last| last.get("event")?.as_str()) == Some(kind);
    if ended || events.is_empty() { Ok(()) } else { folder.record(&event) }
}

/// The checkpoint of the last step, if it is complete and matches the attestation.
fn last_state(paths: &Paths, job: &Job, attestation: &Attestation) -> Result<Manifest, Refusal> {
    let folder = paths.checkpoints();
    let name = name_of(attestation.steps);
    match checkpoint::pointer(&folder)? {
        Pointer::To(latest) if latest == name => {}
        Pointer::To(latest) => {
            return Err(format!("checkpoints/latest names {latest}, not {name}").into());
        }
        Pointer::Unreadable(text) => {
            return Err(format!("checkpoints/latest contains {text:?}, not {name}").into());
        }
        Pointer::None => {
            return Err(format!("checkpoints/latest is missing; it should name {name}").into());
        }
    }
    let manifest = checkpoint::verify(&folder.join(&name), &job.slots())
        .map_err(|refusal| refusal.about(&format!("checkpoints/{name}: ")))?;
    let [weights, first, second] = PARTS.map(|part| manifest.content(part).tensors);
    for (what, attested, saved) in [
        ("lock", attestation.lock, manifest.lock),
        ("metrics", attestation.metrics, manifest.chain),
        ("weights", attestation.weights, weights),
        ("first moments", attestation.first_moment, first),
        ("second moments", attestation.second_moment, second),
    ] {
        if attested != saved {
            return Err(format!(
                "checkpoints/{name} has {what} {}, but the run computed {}",
                saved.short(),
                attested.short()
            )
            .into());
        }
    }
    if manifest.step != attestation.steps {
        return Err(format!("checkpoints/{name} is the state after step {}", manifest.step).into());
    }
    Ok(manifest)
}

fn texts(paths: &Paths, job: &Job, attestation: &Attestation) -> Result<(), Refusal> {
    for (path, written) in [
        (paths.lock(), job.lock_text.clone()),
        (paths.plan(), job.plan_text()),
        (paths.kernels(), kernel_lines(&attestation.kernels)),
    ] {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = disk::read_text(&path, disk::TEXT)
            .map_err(|error| Refusal::of_io(&path, &error).about(&format!("{name}: ")))?;
        if let Some(Difference { line, found, expected }) = first_difference(&text, &written) {
            let why = format!("{name}: line {line} is {found}, but the run wrote {expected}");
            return Err(why.into());
        }
    }
    Ok(())
}

/// An earlier process may have left kernels that were never checked against the plan.
fn kernels(job: &Job, attestation: &Attestation) -> Result<(), String> {
    match wrong_kernels(&attestation.kernels, &job.kernel_names(), true).into_iter().next() {
        None => Ok(()),
        Some(reason) => Err(reason),
    }
}

/// A continued run did not make its initial weights itself.
fn start(job: &Job, records: &[Record]) -> Result<(), Refusal> {
    let Some(Record::Start(Start { initial, .. })) = records.first() else {
        let why = "metrics.jsonl does not begin with a start line";
        return Err(Refusal::Wrong(why.to_owned()));
    };
    let expected = job.initial()?;
    match expected == *initial {
        true => Ok(()),
        false => Err(format!(
            "metrics.jsonl says that it began with weights {}, but the lock{} gives {}",
            initial.short(),
            if job.weights.is_some() { "" } else { "'s seed" },
            expected.short()
        )
        .into()),
    }
}

fn refused(paths: &Paths, fault: &str) -> Problem {
    let folder = paths.folder.display();
    Problem::finding(
        format!(
            "the run in {folder} is complete but cannot be attested: read back from disk, {fault}"
        ),
        format!(
            "look for another program that writes there, or a failing disk; then move {folder} away and run the lock \
             again"
        ),
    )
}
