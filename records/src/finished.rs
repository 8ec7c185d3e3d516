//! Reads a finished run: its attestation and every logged record, checked against each other and the lock.
//!
//! A diverged run is finished too: its log ends with the step that has a loss or gradient norm that is not a number. No
//! tensors are read and nothing is computed from the lock (`canonc verify` does both), so this is quick.

use compiler::digest::Digest;
use dsl::Problem;
use lab::experiment::{Digests, Experiment};
use lab::field::SuiteTask;

mod elsewhere;

use crate::attest::{Attestation, Attested, ExternalAttestation};
use crate::external::ExternalRun;
use crate::job::Job;
use crate::metrics::{self, Evaluation, Record, Start, Step};
use crate::run::{Paths, cannot_read, trained_elsewhere};

pub(crate) use elsewhere::{
    agrees as agrees_elsewhere, complete as complete_elsewhere, order as order_elsewhere,
};

/// A lock's requirements for its finished run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected<'a> {
    /// Digests of the lock's sections.
    pub digests: Digests,
    /// Number of steps of the training.
    pub steps: u64,
    /// Steps between evaluations; 0 for the last step only.
    pub evaluates_every: u64,
    /// The tasks of its suites.
    pub tasks: &'a [SuiteTask],
}

impl<'a> From<&'a Experiment> for Expected<'a> {
    fn from(experiment: &'a Experiment) -> Expected<'a> {
        Expected {
            digests: experiment.digests,
            steps: experiment.budget.steps,
            evaluates_every: experiment.evaluation.every,
            tasks: &experiment.evaluation.tasks,
        }
    }
}

impl<'a> From<&'a Job> for Expected<'a> {
    fn from(job: &'a Job) -> Expected<'a> {
        Expected {
            digests: job.digests,
            steps: job.steps,
            evaluates_every: job.cadence.evaluation,
            tasks: &job.tasks,
        }
    }
}

/// The attestation and log of a finished run, if they agree with each other and with the lock, whoever trained it.
pub fn read(paths: &Paths, expected: Expected<'_>) -> Result<(Attested, Vec<Record>), Problem> {
    let path = paths.attestation();
    let text = match disk::read_text(&path, disk::SMALL) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(unfinished(paths));
        }
        Err(error) => return Err(cannot_read(&path, &error)),
    };
    let unreadable = |reason: String| mismatch(paths, &format!("attestation.toml: {reason}"));
    if trained_elsewhere(paths)? {
        let attestation = ExternalAttestation::parse(&text).map_err(unreadable)?;
        let records = elsewhere::records(paths, expected, &attestation)?;
        return Ok((attestation.into(), records));
    }
    let attestation = Attestation::parse(&text).map_err(unreadable)?;
    let records = records(paths, expected, &attestation)?;
    Ok((attestation.into(), records))
}

/// The records that an unfinished run has logged so far, and the last step. A process may be working on it, so an
/// incomplete line is skipped.
pub fn so_far(paths: &Paths, expected: Expected<'_>) -> Result<(Vec<Record>, u64), Problem> {
    if trained_elsewhere(paths)? {
        let run = ExternalRun::read(paths)?;
        let step = elsewhere::order(expected, &run).map_err(|what| mismatch(paths, &what))?;
        return Ok((run.records(), step));
    }
    let (records, _) = metrics::read(&paths.metrics())?;
    let reached = order(expected, &records).map_err(|what| mismatch(paths, &what))?;
    of_suites(expected, &records).map_err(|what| mismatch(paths, &what))?;
    Ok((records, reached.step))
}

/// Every logged record of a run with this attestation.
pub fn records(
    paths: &Paths,
    expected: Expected<'_>,
    attestation: &Attestation,
) -> Result<Vec<Record>, Problem> {
    check_lock(expected, attestation).map_err(|what| mismatch(paths, &what))?;
    let (records, head) = metrics::read(&paths.metrics())?;
    of_the_log(attestation, &records, head)
        .and_then(|()| check_complete(expected, attestation.diverged, &records))
        .and_then(|()| of_suites(expected, &records).map(|_| ()))
        .map_err(|what| mismatch(paths, &what))?;
    if metrics::torn(&paths.metrics())?.is_some() {
        return Err(mismatch(paths, "metrics.jsonl continues after its last complete line"));
    }
    Ok(records)
}

/// The step at which training diverged, of another engine's run that has reached its end; an error says why it has not.
pub fn end_elsewhere(expected: Expected<'_>, run: &ExternalRun) -> Result<Option<u64>, String> {
    elsewhere::complete(expected, run)
}

/// The step at which training diverged and the evidence, in the last record.
pub fn diverged(records: &[Record], last: u64) -> Option<(u64, String)> {
    records.last().and_then(|record| divergence(record, last))
}

/// The error for a run that was interrupted, or that a process is working on.
fn unfinished(paths: &Paths) -> Problem {
    let folder = paths.folder.display();
    if !paths.lock().exists() && !paths.metrics().exists() {
        return Problem::finding(
            format!("the run in {folder} has not started: it has no lock"),
            "train it with `canonc run` on its lock, or with `canonc compare` on the lock of its comparison",
        );
    }
    let is_elsewhere = match trained_elsewhere(paths) {
        Ok(is_elsewhere) => is_elsewhere,
        Err(problem) => return problem,
    };
    if is_elsewhere {
        return Problem::finding(
            format!("the run in {folder} is not recorded: it has no attestation.toml"),
            format!(
                "`canonc record {folder}` evaluates and attests it once its log has the last step"
            ),
        );
    }
    Problem::finding(
        format!("the run in {folder} is not finished: it has no attestation.toml"),
        format!("continue it with `canonc run --lock {} --dir {folder}`", paths.lock().display()),
    )
}

/// The error for a folder that is not the finished run of its lock; `what` names the difference.
pub fn mismatch(paths: &Paths, what: &str) -> Problem {
    let folder = paths.folder.display();
    let message = format!("the run in {folder} is not the finished run of its lock: {what}");
    let is_elsewhere = match trained_elsewhere(paths) {
        Ok(is_elsewhere) => is_elsewhere,
        Err(problem) => return problem,
    };
    if is_elsewhere {
        return Problem::finding(
            message,
            format!(
                "restore the folder from a copy, or delete its attestation.toml and evaluations.jsonl and record it again: \
                 `canonc record {folder}`; `canonc verify {folder}` lists every fault in it"
            ),
        );
    }
    Problem::finding(
        message,
        format!(
            "restore the folder from a copy, or move it away, and the same command trains it again from the start; \
             `canonc verify {folder}` lists every fault in it"
        ),
    )
}

/// Refuses an attestation with other digests of lock, evaluation and platform.
fn check_digests(expected: Expected<'_>, attested: [Digest; 3]) -> Result<(), String> {
    let Digests { train, eval, platform } = expected.digests;
    let names = ["lock", "evaluation section", "platform section"];
    for ((what, attested), locked) in names.into_iter().zip(attested).zip([train, eval, platform]) {
        if attested != locked {
            return Err(format!(
                "it attests {what} {}, but the lock has {}",
                attested.short(),
                locked.short()
            ));
        }
    }
    Ok(())
}

fn check_lock(expected: Expected<'_>, attestation: &Attestation) -> Result<(), String> {
    let steps = expected.steps;
    check_digests(expected, [attestation.lock, attestation.eval, attestation.platform])?;
    match attestation.diverged {
        None if attestation.steps != steps => Err(format!(
            "it attests {}, but the lock has {steps}",
            dsl::counted(attestation.steps, "step")
        )),
        Some(at) if attestation.steps != at => Err(format!(
            "it attests {} and that training diverged at step {at}, which ends a run",
            dsl::counted(attestation.steps, "step")
        )),
        None | Some(_) => Ok(()),
    }
}

/// The value in a record that shows divergence: a loss or gradient norm that is not a finite number, in a step or in
/// the evaluation after the last one. A missing loss (no targets) is not divergence.
pub fn divergence(record: &Record, last: u64) -> Option<(u64, String)> {
    match record {
        Record::Step(step) => {
            let loss = step.loss.unwrap_or(0.0);
            (!(loss.is_finite() && step.grad_norm.is_finite())).then(|| {
                let what = format!("has loss {loss} and gradient norm {}", step.grad_norm);
                (step.step, format!("step {} {what}", step.step))
            })
        }
        // After an earlier evaluation, the next step shows it.
        Record::Evaluation(evaluation) if evaluation.step == last => {
            let loss = evaluation.nll.filter(|nll| !nll.is_finite())?;
            Some((last, format!("the evaluation after step {last} has loss {loss}")))
        }
        Record::Start(_) | Record::Evaluation(_) => None,
    }
}

fn of_the_log(
    attestation: &Attestation,
    records: &[Record],
    head: Option<Digest>,
) -> Result<(), String> {
    if head != Some(attestation.metrics) {
        let last = head.map_or_else(|| "nothing".to_owned(), |head| head.short());
        return Err(format!(
            "it attests {} metrics lines with a chain that ends in {}, but metrics.jsonl has {} and ends in {last}",
            attestation.lines,
            attestation.metrics.short(),
            records.len()
        ));
    }
    let counted: u64 = records
        .iter()
        .map(|record| match record {
            Record::Step(step) => step.counted,
            Record::Start(_) | Record::Evaluation(_) => 0,
        })
        .fold(0, u64::saturating_add);
    for (what, attested, logged) in [
        ("metrics lines", attestation.lines, records.len() as u64),
        ("counted targets", attestation.counted, counted),
    ] {
        if attested != logged {
            return Err(format!("it attests {attested} {what}, but metrics.jsonl has {logged}"));
        }
    }
    Ok(())
}

/// How far a log with lines in order goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) step: u64,
    /// The evaluation after that step is required and missing.
    pub(crate) owes_evaluation: bool,
}

/// Refuses a log that is not the start of this lock's: each step once and in order, and an evaluation after each step
/// that requires one. A log that ends early is accepted.
pub(crate) fn order(expected: Expected<'_>, records: &[Record]) -> Result<Reached, String> {
    let Expected { digests, steps, evaluates_every: every, tasks: _ } = expected;
    let due = |step: u64| step == steps || (every > 0 && step.is_multiple_of(every));
    let (mut step, mut owed) = (0, false);
    for (at, record) in records.iter().enumerate() {
        match record {
            Record::Start(Start { lock, eval, initial: _ }) if at == 0 => {
                for (what, theirs, ours) in
                    [("lock", lock, digests.train), ("evaluation section", eval, digests.eval)]
                {
                    if *theirs != ours {
                        return Err(format!(
                            "metrics.jsonl belongs to {what} {}, but the lock has {}",
                            theirs.short(),
                            ours.short()
                        ));
                    }
                }
            }
            Record::Step(next) if at > 0 && !owed && next.step == step + 1 && step < steps => {
                step += 1;
                owed = due(step);
            }
            Record::Evaluation(evaluation) if owed && evaluation.step == step => owed = false,
            Record::Start(_) | Record::Step(_) | Record::Evaluation(_) => {
                return Err(format!(
                    "line {} of metrics.jsonl is {}, which is out of order",
                    at + 1,
                    record.title()
                ));
            }
        }
    }
    Ok(Reached { step, owes_evaluation: owed })
}

/// Like [`order`], for a finished run: up to the last step with its evaluation and with every loss a number; or up to
/// the step at which training diverged, by the attestation.
pub(crate) fn check_complete(
    expected: Expected<'_>,
    diverged: Option<u64>,
    records: &[Record],
) -> Result<(), String> {
    let Reached { step, owes_evaluation } = order(expected, records)?;
    if let Some(at) = diverged {
        return ends_diverged(expected, at, records);
    }
    if owes_evaluation {
        return Err(format!("metrics.jsonl has no evaluation after step {step}"));
    }
    let steps = expected.steps;
    if step != steps {
        return Err(format!("metrics.jsonl ends with step {step} of {steps}"));
    }
    // A run stops at such a step, so a finished run never logged one.
    let stops = records.iter().find_map(|record| match record {
        Record::Step(step) => {
            let finite = step.loss.is_some_and(f64::is_finite) && step.grad_norm.is_finite();
            (!finite).then_some(step)
        }
        Record::Start(_) | Record::Evaluation(_) => None,
    });
    match stops {
        None => Ok(()),
        Some(Step { step, loss, grad_norm, .. }) => {
            let loss = loss.map_or_else(|| "none".to_owned(), |loss| loss.to_string());
            Err(format!(
                "metrics.jsonl has loss {loss} and gradient norm {grad_norm} at step {step}, where every run stops"
            ))
        }
    }
}

/// Checks that the first record that shows divergence is the last one, at the attested step.
fn ends_diverged(expected: Expected<'_>, at: u64, records: &[Record]) -> Result<(), String> {
    let shows = |(line, record)| Some((line, divergence(record, expected.steps)?));
    let attested = format!("it attests that training diverged at step {at}");
    match (1..).zip(records).find_map(shows) {
        Some((line, (step, _))) if line == records.len() && step == at => Ok(()),
        Some((line, (_, what))) => Err(format!(
            "{attested}, but line {line} of {} of metrics.jsonl shows that {what}",
            records.len()
        )),
        None => Err(format!("{attested}, but every loss in metrics.jsonl is a finite number")),
    }
}

/// Refuses an evaluation without the scores of the lock's suites, or with scores that do not follow from what was logged
/// with them. Returns the number of evaluations.
pub(crate) fn of_suites(expected: Expected<'_>, records: &[Record]) -> Result<usize, String> {
    let mut count = 0;
    for record in records {
        let Record::Evaluation(Evaluation { step, suites, .. }) = record else { continue };
        let last = *step == expected.steps;
        if let Some(reason) = metrics::mismatch_of_suites(suites, expected.tasks, last) {
            return Err(format!("the evaluation after step {step} {reason}"));
        }
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
pub(crate) mod tests;
