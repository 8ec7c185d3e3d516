//! The same for a run that another engine trained: its log has no evaluations, and canonc has made those of kept weights.

use dsl::Problem;

use super::{Expected, check_digests, divergence, mismatch, of_suites};
use crate::attest::ExternalAttestation;
use crate::external::ExternalRun;
use crate::job::evaluates_after;
use crate::metrics::Record;
use crate::run::Paths;

/// Every record of a run with this attestation.
pub(super) fn records(
    paths: &Paths,
    expected: Expected<'_>,
    attestation: &ExternalAttestation,
) -> Result<Vec<Record>, Problem> {
    let run = ExternalRun::read(paths)?;
    agrees(attestation, expected, &run)
        .and_then(|()| of_suites(expected, &run.records()).map(|_| ()))
        .map_err(|what| mismatch(paths, &what))?;
    Ok(run.records())
}

/// The last step of a log whose lines are in order and of this lock. One that ends early is accepted.
pub(crate) fn order(expected: Expected<'_>, run: &ExternalRun) -> Result<u64, String> {
    let Expected { digests, steps, evaluates_every: every, tasks: _ } = expected;
    let start = run.log.start;
    for (what, theirs, ours) in
        [("lock", start.lock, digests.train), ("evaluation section", start.eval, digests.eval)]
    {
        if theirs != ours {
            return Err(format!(
                "metrics.jsonl belongs to {what} {}, but the lock has {}",
                theirs.short(),
                ours.short()
            ));
        }
    }
    for (number, step) in (1..).zip(&run.log.steps) {
        if step.step != number || number > steps {
            return Err(format!(
                "line {} of metrics.jsonl is step {}, which is out of order: the lock has {steps} steps",
                number + 1,
                step.step
            ));
        }
    }
    let mut before = 0;
    for one in &run.measured {
        let step = one.evaluation.step;
        if step <= before || step > run.last() || !evaluates_after(every, step, run.last()) {
            return Err(format!(
                "evaluations.jsonl has an evaluation after step {step}, which is out of order or not the lock's"
            ));
        }
        before = step;
    }
    Ok(run.last())
}

/// The step at which training diverged, of a log that has reached its end: the last step, or that step.
pub(crate) fn complete(expected: Expected<'_>, run: &ExternalRun) -> Result<Option<u64>, String> {
    let last = order(expected, run)?;
    let steps = expected.steps;
    if run.log.torn.is_some() {
        return Err("metrics.jsonl continues after its last complete line".to_owned());
    }
    match run.records().iter().find_map(|record| divergence(record, steps)) {
        Some((at, _)) if at == last => Ok(Some(at)),
        Some((at, why)) => {
            Err(format!("{why}, where every run stops, but the log goes on: {at} of {last}"))
        }
        None if last == steps => Ok(None),
        None => Err(format!("metrics.jsonl ends with step {last} of {steps}")),
    }
}

/// Compares what is attested with the lock and the other files.
pub(crate) fn agrees(
    attestation: &ExternalAttestation,
    expected: Expected<'_>,
    run: &ExternalRun,
) -> Result<(), String> {
    check_digests(expected, [attestation.lock, attestation.eval, attestation.platform])?;
    let diverged = complete(expected, run)?;
    let counted = run.log.steps.iter().fold(0u64, |sum, step| sum.saturating_add(step.counted));
    let evaluated = run.measured.last().is_some_and(|one| one.evaluation.step == run.last());
    let checks = [
        (attestation.trainer == run.trainer, "its trainer record is not trainer.toml"),
        (attestation.diverged == diverged, "it attests another end of training than the log's"),
        (attestation.steps == run.last(), "it attests another number of steps than the log's"),
        (attestation.counted == counted, "it attests other counted targets than the log's"),
        (attestation.lines == run.log.end.1, "it attests another number of lines"),
        (attestation.metrics == run.log.end.0, "it attests another log"),
        (attestation.evaluations == run.measured_head, "it attests other evaluations"),
        (diverged.is_some() || evaluated, "evaluations.jsonl has none after the last step"),
    ];
    match checks.into_iter().find(|(agrees, _)| !agrees) {
        None => Ok(()),
        Some((_, why)) => Err(why.to_owned()),
    }
}
