//! In: a run's plan, kernels and attestation, and what was found of its log and last checkpoint. Out: which of the
//! attested claims hold. Must stay true: what is said to agree was compared with what it is a claim about, and
//! nothing else is named; a file that a run always writes and that is gone is a broken claim, not a missing one.

use std::io;
use std::path::Path;

use compiler::digest::Digest;
use compiler::lock::Experiment;

use super::{Log, Report, Subject};
use crate::attest::{Attestation, kernel_lines};
use crate::checkpoint::Manifest;
use crate::job::{PLAN_TAG, plan_text};
use crate::run::Paths;

/// The plan, whether or not the run is finished, and then everything the attestation claims.
pub(super) fn check(
    paths: &Paths,
    experiment: &Experiment,
    log: Option<&Log>,
    saved: Option<Manifest>,
    report: &mut Report,
) {
    let attestation = match read(&paths.attestation()) {
        Ok(None) => None,
        Ok(Some(text)) => Some(Attestation::parse(&text)),
        Err(error) => Some(Err(error.to_string())),
    };
    let known = attestation.as_ref().and_then(|read| read.as_ref().ok());
    // A plan is written before the first line of the log.
    let begun = attestation.is_some() || log.is_some_and(|log| !log.records.is_empty());
    let plan = check_plan(&paths.plan(), experiment, known, begun, report);
    match attestation {
        None => report.trusted(
            Subject::Attestation,
            "attestation.toml is not there: the run is not finished",
        ),
        Some(Err(why)) => report.broken.push(format!("attestation.toml: {why}")),
        Some(Ok(attestation)) => {
            let found = Found { log, saved, plan, kernels: read(&paths.kernels()) };
            check_claims(&attestation, experiment, found, report);
        }
    }
}

/// Compiles the plan again. The digest of the plan that is there.
fn check_plan(
    path: &Path,
    experiment: &Experiment,
    attestation: Option<&Attestation>,
    begun: bool,
    report: &mut Report,
) -> Option<Digest> {
    let found = match read(path) {
        Ok(Some(found)) => found,
        Ok(None) => {
            if begun {
                report.broken.push("plan.txt is gone; every run that has begun has one".to_owned());
            }
            return None;
        }
        Err(error) => {
            report.broken.push(format!("plan.txt cannot be read: {error}"));
            return None;
        }
    };
    let made = match plan_text(experiment) {
        Ok(made) => made,
        Err(error) => {
            report.broken.push(format!("plan.txt: {error}"));
            return None;
        }
    };
    let here = env!("CARGO_PKG_VERSION");
    let by = attestation.and_then(|known| known.machine.get("canonc")).filter(|by| *by != here);
    match (found == made, by) {
        (true, _) => report.recomputed(
            Subject::Plan,
            "plan: compiled again from the lock, the same in every line",
        ),
        // Another canonc may plan the same computation in other steps.
        (false, Some(by)) => report.trusted(
            Subject::Plan,
            format!("plan.txt: it is canonc {by}'s, and this canonc {here} would take other steps"),
        ),
        (false, None) => report.broken.push(first_difference(&found, &made)),
    }
    Some(Digest::of(PLAN_TAG, &found))
}

fn first_difference(found: &str, made: &str) -> String {
    let (mut found, mut made) = (found.lines(), made.lines());
    let mut line = 1;
    loop {
        let quoted = |text: Option<&str>| {
            text.map_or_else(|| "nothing".to_owned(), |text| format!("`{}`", text.trim()))
        };
        match (found.next(), made.next()) {
            (None, None) => return "plan.txt: it ends otherwise than the lock's plan".to_owned(),
            (there, wanted) if there != wanted => {
                return format!(
                    "plan.txt: line {line} is {}, and the lock compiles to {}",
                    quoted(there),
                    quoted(wanted)
                );
            }
            (Some(_) | None, Some(_) | None) => line += 1,
        }
    }
}

/// What the claims are about, as far as it is there.
struct Found<'a> {
    log: Option<&'a Log>,
    saved: Option<Manifest>,
    plan: Option<Digest>,
    kernels: io::Result<Option<String>>,
}

fn check_claims(
    attestation: &Attestation,
    experiment: &Experiment,
    found: Found<'_>,
    report: &mut Report,
) {
    let Found { log, saved, plan, kernels } = found;
    let before = report.broken.len();
    let mut agrees = vec!["seal".to_owned(), "lock".to_owned()];
    let mut wrong = |what: String| report.broken.push(format!("attestation.toml: {what}"));
    let mut same = |what: &str, claimed: Digest, found: Digest| {
        if claimed != found {
            wrong(format!("it claims {what} {}, and that is {}", claimed.short(), found.short()));
        }
    };
    let digests = experiment.digests;
    same("lock", attestation.lock, digests.train);
    same("evaluation section", attestation.eval, digests.eval);
    same("platform section", attestation.platform, digests.platform);
    if let Some(plan) = plan {
        same("plan", attestation.plan, plan);
        agrees.push("plan".to_owned());
    }
    if let Some(saved) = &saved {
        same("weights", attestation.weights, saved.weights.tensors);
        same("first moments", attestation.first_moment, saved.first_moment.tensors);
        same("second moments", attestation.second_moment, saved.second_moment.tensors);
        agrees.push(format!("weights {} and both moments", attestation.weights.short()));
    }
    if let Some(log) = log {
        match log.heads.last() {
            Some(head) => same("a metrics chain of", attestation.metrics, *head),
            None => wrong("the metrics log it claims a chain of is empty or gone".to_owned()),
        }
        let (lines, counted) =
            (log.heads.len() as u64, log.steps().map(|step| step.counted).sum::<u64>());
        let steps = log.steps().count() as u64;
        for (what, claimed, found) in [
            ("lines", attestation.lines, lines),
            ("counted targets", attestation.counted, counted),
            ("steps", attestation.steps, steps),
            ("steps", attestation.steps, experiment.budget.steps),
        ] {
            if claimed != found {
                wrong(format!("it claims {claimed} {what}, and there are {found}"));
            }
        }
        agrees.push("log".to_owned());
    }
    match kernels {
        Ok(Some(lines)) if lines == kernel_lines(&attestation.kernels) => {
            agrees.push("kernels".to_owned());
        }
        Ok(Some(_)) => wrong("it claims other kernels than kernels.txt".to_owned()),
        Ok(None) => wrong("kernels.txt, which it claims to repeat, is gone".to_owned()),
        Err(error) => wrong(format!("kernels.txt cannot be read: {error}")),
    }
    if saved.is_none() {
        let why = "attested weights and moments: the last step's checkpoint is not there";
        report.trusted(Subject::Tensors, why);
    }
    // A run may be gone on with under another name of its lock; no id covers a name.
    if attestation.name != experiment.name {
        report.trusted(
            Subject::Settings,
            format!(
                "attested name \"{}\": the lock is called \"{}\", and no id covers a name",
                attestation.name, experiment.name
            ),
        );
    }
    if report.broken.len() == before {
        let (last, rest) =
            agrees.split_last().map_or(("", [].as_slice()), |(l, r)| (l.as_str(), r));
        let text = format!("attestation: {} and {last} agree", rest.join(", "));
        report.checked(Subject::Attestation, text);
    }
}

/// A file's text; `None` if there is none.
fn read(path: &Path) -> io::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
