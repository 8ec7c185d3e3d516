//! Checks the folder of a run that another engine trained: everything that follows from the lock, the data and the bytes on
//! disk. What only the engine knows is listed as taken on trust.

use compiler::digest::Digest;
use dsl::Problem;
use lab::experiment::Experiment;
use lab::trainer::{self, TrainerRecord};

use super::checkpoints::Ends;
use super::log::Log;
use super::{LogInputs, Subject, TrainedBy, VerifyReport, checkpoints, other_files, read};
use crate::attest::ExternalAttestation;
use crate::checkpoint::{self, Manifest};
use crate::external::ExternalRun;
use crate::finished;
use crate::job::evaluates_after;
use crate::metrics::Resumed;
use crate::run::{Paths, Refusal};

/// The files in the folder of such a run.
pub(super) const FILES: [&str; 8] = [
    "attestation.toml",
    "attestation.toml.sig",
    "evaluations.jsonl",
    "lock",
    "metrics.jsonl",
    "timings.jsonl",
    "trainer.toml",
    "writer",
];

/// Checks everything in the folder.
pub(super) fn check(
    paths: &Paths,
    experiment: &Experiment,
    inputs: LogInputs<'_>,
    report: &mut VerifyReport,
) -> Result<(), Problem> {
    report.trained_by = TrainedBy::Elsewhere("an engine that its files do not name".to_owned());
    let names = checkpoint::names(&paths.checkpoints())?;
    let path = paths.attestation();
    let attestation = read(&path);
    let run = match ExternalRun::read(paths) {
        Ok(run) => run,
        Err(error) => {
            report.faulty("", error);
            return other_files(paths, &FILES, report);
        }
    };
    report.trained_by = TrainedBy::Elsewhere(run.trainer.words());
    let finished = !matches!(attestation, Ok(None));
    let last = check_order(&run, experiment, finished, report);
    check_trainer(&run.trainer, experiment, report);
    // With canonc's evaluations, for what the lock and the data say of both.
    let merged = Log { records: run.records(), heads: Vec::new() };
    super::check_log(&merged, experiment, inputs, report);
    trust_windows(&run, report);
    let logged = Log { records: run.log.records(&[]), heads: run.log.heads.clone() };
    let ends = Ends { last, finished };
    let of = (Some(&logged), Some(run.trainer.digest()));
    let saved = checkpoints::check(paths, experiment, &names, of, ends, report)?;
    check_measured(paths, &run, &names, report);
    if finished {
        check_all_measured(&run, experiment, &names, report);
    }
    match attestation {
        Ok(None) => report.trusted(
            Subject::Attestation,
            "attestation: none; `canonc record` evaluates and attests a run that has its last step",
        ),
        Ok(Some(text)) => match ExternalAttestation::parse(&text) {
            Ok(attestation) => check_claims(&attestation, experiment, &run, saved, report),
            Err(reason) => report.broken(format!("attestation.toml: {reason}")),
        },
        Err(error) => report.unreadable(&path, &error),
    }
    check_times(paths, &run, report);
    other_files(paths, &FILES, report)?;
    trust(&run, report);
    Ok(())
}

/// The last step of the log, whose lines must be in order.
fn check_order(
    run: &ExternalRun,
    experiment: &Experiment,
    finished: bool,
    report: &mut VerifyReport,
) -> u64 {
    let order = finished::order_elsewhere(experiment.into(), run);
    let end = match finished {
        true => finished::complete_elsewhere(experiment.into(), run).map(|_| ()),
        false => Ok(()),
    };
    match order.and_then(|last| end.map(|()| last)) {
        Ok(last) => report.checked(
            Subject::Log,
            format!(
                "metrics: {} chained, to step {last} of {}",
                dsl::counted(run.log.end.1, "line"),
                experiment.budget.steps
            ),
        ),
        Err(reason) => report.broken(reason),
    }
    if run.log.torn.is_some() && !finished {
        report.trusted(
            Subject::Log,
            "metrics.jsonl continues after its last complete line: the engine may be writing it",
        );
    }
    run.last()
}

/// Whether the engine says that it trained this lock.
fn check_trainer(record: &TrainerRecord, experiment: &Experiment, report: &mut VerifyReport) {
    let refusals = trainer::refusals(record, experiment);
    if refusals.is_empty() {
        report.checked(
            Subject::Trainer,
            format!(
                "trainer record {}: the log names it, and it is one of this lock",
                record.digest().short()
            ),
        );
    }
    report.broken.extend(refusals.into_iter().map(|why| format!("not of this lock: {why}")));
}

/// Names data that no digest in the log ties to the lock.
fn trust_windows(run: &ExternalRun, report: &mut VerifyReport) {
    let without = run.log.steps.iter().filter(|step| step.batch.is_none()).count();
    if without > 0 {
        let steps = dsl::counted(run.log.steps.len(), "step");
        report.trusted_since(
            Subject::Batches,
            "no digests",
            format!(
                "batches of {without} of {steps}: the engine logged no digest of the windows that it read; only the \
                 counted targets were compared"
            ),
        );
    }
    if !run.trainer.reads_canonc_windows() {
        report.trusted_since(
            Subject::Batches,
            "another loader",
            "batches: the engine read its windows by a loader of its own, and its digests are its word",
        );
    }
}

/// Ties canonc's evaluations to the weights that are kept.
fn check_measured(paths: &Paths, run: &ExternalRun, names: &[String], report: &mut VerifyReport) {
    if run.measured.is_empty() {
        return;
    }
    let mut tied = 0;
    for one in &run.measured {
        let step = one.evaluation.step;
        let name = checkpoint::name_of(step);
        if !names.contains(&name) {
            continue;
        }
        let folder = paths.checkpoints().join(&name);
        let kept = match checkpoint::manifest_of(&folder, Some(run.trainer.digest())) {
            Ok(manifest) => manifest.weights.tensors,
            // A broken checkpoint is a finding already.
            Err(Refusal::Wrong(_)) => continue,
            Err(unread) => {
                report.faulty("", unread);
                continue;
            }
        };
        if kept != one.weights {
            report.broken(format!(
                "evaluations.jsonl: the evaluation after step {step} is of weights {}, but checkpoints/{name} has {}",
                one.weights.short(),
                kept.short()
            ));
        } else {
            tied += 1;
        }
    }
    let all = dsl::counted(run.measured.len(), "evaluation");
    report.checked(
        Subject::Evaluations,
        format!("{tied} of {all}: of the weights that are kept, by canonc"),
    );
}

/// Whether an attested run has an evaluation of each kept state where its lock has one.
fn check_all_measured(
    run: &ExternalRun,
    experiment: &Experiment,
    names: &[String],
    report: &mut VerifyReport,
) {
    let diverged = finished::end_elsewhere(experiment.into(), run).ok().flatten();
    let due = |step: &u64| {
        evaluates_after(experiment.evaluation.every, *step, run.last()) && Some(*step) != diverged
    };
    let kept = names.iter().filter_map(|name| checkpoint::step_of(name));
    for step in kept.filter(|step| (1..=run.last()).contains(step)).filter(due) {
        if !run.measured.iter().any(|one| one.evaluation.step == step) {
            report.broken(format!(
                "evaluations.jsonl has none after step {step}, whose checkpoint is kept and where the lock has one"
            ));
        }
    }
}

fn check_claims(
    attestation: &ExternalAttestation,
    experiment: &Experiment,
    run: &ExternalRun,
    saved: Option<Manifest>,
    report: &mut VerifyReport,
) {
    let before = report.broken.len();
    if let Err(reason) = finished::agrees_elsewhere(attestation, experiment.into(), run) {
        report.broken(format!("attestation.toml: {reason}"));
    }
    match saved {
        None => report.broken(format!(
            "attestation.toml: it claims weights {}, but the last step, {}, has no valid checkpoint",
            attestation.weights.short(),
            attestation.steps
        )),
        Some(saved) => {
            let claims: [(&str, Digest, Digest); 3] = [
                ("weights", attestation.weights, saved.weights.tensors),
                ("first moments", attestation.first_moment, saved.first_moment.tensors),
                ("second moments", attestation.second_moment, saved.second_moment.tensors),
            ];
            let wrong = claims.into_iter().filter(|(_, claimed, actual)| claimed != actual);
            report.broken.extend(wrong.map(|(what, claimed, actual)| {
                let (claimed, actual) = (claimed.short(), actual.short());
                format!("attestation.toml: it claims {what} {claimed}, but they are {actual}")
            }));
        }
    }
    if report.broken.len() == before {
        report.checked(
            Subject::Attestation,
            "attestation: seal, lock, trainer record, log, evaluations, weights and both moments agree",
        );
    }
}

/// Shortest and longest time of a step, in seconds.
const SECONDS: std::ops::RangeInclusive<f64> = 1e-6..=3e6;

/// Checks the form of the times, if there are any.
fn check_times(paths: &Paths, run: &ExternalRun, report: &mut VerifyReport) {
    let path = paths.timings();
    let text = match read(&path) {
        Ok(None) => return,
        Ok(Some(text)) => text,
        Err(error) => {
            report.unreadable(&path, &error);
            return;
        }
    };
    if let Err(reason) = times(&text, run.last()) {
        report.broken(format!("timings.jsonl: {reason}"));
    }
}

/// The seconds of each timed step, or what is wrong with the first line that is no time of a step of the log.
pub fn times(text: &str, last: u64) -> Result<Vec<f64>, String> {
    let mut before = 0;
    let mut seconds = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let value: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        let members = value.as_object().filter(|members| members.len() == 2);
        let step = members.and_then(|members| members.get("step")?.as_u64());
        let time = members.and_then(|members| members.get("seconds")?.as_f64());
        match (step, time) {
            (Some(step), Some(time))
                if step > before && step <= last && SECONDS.contains(&time) =>
            {
                before = step;
                seconds.push(time);
            }
            (_, _) => {
                let shown: String = line.chars().take(80).collect();
                return Err(format!(
                    "line {number} is not the time of a step of the log, in order: {shown}"
                ));
            }
        }
    }
    Ok(seconds)
}

/// Reports what only the engine knows.
fn trust(run: &ExternalRun, report: &mut VerifyReport) {
    let steps = run.log.steps.len();
    if steps > 0 {
        report.trusted(
            Subject::Losses,
            format!(
                "losses and gradient norms of {}: the engine's word; --replay computes some of them again",
                dsl::counted(steps, "step")
            ),
        );
        for Resumed { step, changes } in &run.log.resumed {
            let changes = changes.iter().map(|(key, value)| format!("{key} {value}"));
            report.trusted(
                Subject::Training,
                format!(
                    "the process that went on after step {step}, with {}",
                    changes.collect::<Vec<_>>().join(", ")
                ),
            );
        }
        report.trusted(
            Subject::Training,
            "the weights and moments after the start: their digests match, but nothing here shows that these steps lead \
             to them; --replay continues kept checkpoints",
        );
    }
    if !run.measured.is_empty() {
        let count = dsl::counted(run.measured.len(), "evaluation");
        report.trusted(
            Subject::Evaluations,
            format!("scores of {count} by canonc: only evaluating the weights again (--replay) can prove them"),
        );
    }
    for (subject, text) in [
        (Subject::Kernels, "the kernels that the engine names: nothing shows that they ran"),
        (Subject::Machine, "the machines of the engine: only its record names them"),
        (
            Subject::Trainer,
            "the trainer record: its engine, versions and precision are the engine's word",
        ),
        (
            Subject::Settings,
            "names and cadences in the lock, and which checkpoints were kept: no id covers them",
        ),
        (
            Subject::Times,
            "times: timings.jsonl and the line below the attestation's seal are not sealed",
        ),
    ] {
        report.trusted(subject, text);
    }
}
