//! In: a run's folder. Out: every claim in it that was checked, and every one that does not hold. Must stay true:
//! nothing is written and no tensor is needed; a claim is checked against what it is about, never against a copy of
//! itself; one broken claim does not hide the next.

mod attested;
mod report;

use std::path::Path;
use std::sync::Arc;

use compiler::digest::Digest;
use compiler::lock::Experiment;

use crate::checkpoint::{self, PARTS};
use crate::data::batch::{Batch, digest_of_windows};
use crate::data::text::index::TextIndex;
use crate::job::Job;
use crate::metrics::{self, Record, Step};
use crate::run::{Paths, RunError, digest_of, read_experiment};

pub use report::{Claim, Report, Subject};

/// Whose data is made again to compare digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remake {
    /// [`REMADE`] steps spread evenly over the run, and its last one; all of a run that has no more.
    Spread,
    Every,
}

/// Steps that [`Remake::Spread`] takes, beside the last one.
pub const REMADE: u64 = 64;

/// Checks everything in a run's folder. `documents` are for runs on text.
pub fn verify(
    folder: &Path,
    documents: Option<Arc<TextIndex>>,
    which: Remake,
) -> Result<Report, RunError> {
    let paths = Paths::new(folder);
    let mut report = Report::default();
    let text = std::fs::read_to_string(paths.lock()).map_err(|error| {
        RunError::input(
            format!("{} is no run's folder: its lock cannot be read: {error}", folder.display()),
            "name a folder that `canonc run` made, such as runs/NAME, or a lock",
        )
    })?;
    let name = paths.lock().display().to_string();
    let experiment = match read_experiment(&name, &text) {
        Ok(experiment) => experiment,
        Err(error) => {
            report.broken.push(error.message);
            return Ok(report);
        }
    };
    report.recomputed(
        Subject::Lock,
        format!("lock {}: every line follows from its text", experiment.id().short()),
    );
    let log = check_log(&paths, &experiment, &mut report);
    if let Some(log) = &log {
        match Job::new(&experiment, &text, documents) {
            Ok(job) => remake(log, job, which, &mut report),
            Err(error) => {
                report.trusted(
                    Subject::Batches,
                    format!("batch digests and learning rates: {}", error.message),
                );
            }
        }
    }
    let saved = check_checkpoints(&paths, &experiment, log.as_ref(), &mut report)?;
    attested::check(&paths, &experiment, log.as_ref(), saved, &mut report);
    Ok(report)
}

/// A log whose chain holds.
struct Log {
    records: Vec<Record>,
    heads: Vec<Digest>,
}

impl Log {
    fn steps(&self) -> impl Iterator<Item = &Step> {
        self.records.iter().filter_map(|record| match record {
            Record::Step(step) => Some(step),
            Record::Start(_) | Record::Evaluation(_) => None,
        })
    }
}

fn check_log(paths: &Paths, experiment: &Experiment, report: &mut Report) -> Option<Log> {
    if let Ok(Some(_)) = metrics::torn(&paths.metrics()) {
        let what = "metrics.jsonl goes on after its last whole line".to_owned();
        match paths.attestation().exists() {
            true => report.broken.push(what),
            false => report
                .trusted(Subject::Log, format!("{what}; the run cuts that off when it goes on")),
        }
    }
    let (records, heads) = match metrics::read_with_heads(&paths.metrics()) {
        Ok(read) => read,
        Err(error) => {
            report.broken.push(error.message);
            return None;
        }
    };
    let before = report.broken.len();
    let mut wrong = |what: String| report.broken.push(format!("metrics.jsonl: {what}"));
    let digests = experiment.digests;
    let last = experiment.budget.steps;
    let every = experiment.evaluation.every;
    let due = |step: u64| step == last || (every > 0 && step.is_multiple_of(every));
    let (mut step, mut evaluated) = (0, true);
    for (at, record) in records.iter().enumerate() {
        match record {
            Record::Start(start) if at == 0 => {
                if start.lock != digests.train || start.eval != digests.eval {
                    wrong(format!(
                        "it is of lock {}, and the lock is {}",
                        start.lock.short(),
                        digests.train.short()
                    ));
                }
            }
            Record::Step(next) if at > 0 && evaluated && next.step == step + 1 && step < last => {
                step += 1;
                evaluated = !due(step);
            }
            Record::Evaluation(evaluation) if !evaluated && evaluation.step == step => {
                evaluated = true
            }
            Record::Start(_) | Record::Step(_) | Record::Evaluation(_) => {
                wrong(format!(
                    "line {} is {}, which does not follow there",
                    at + 1,
                    record.place()
                ));
                break;
            }
        }
    }
    if report.broken.len() == before {
        report.checked(
            Subject::Log,
            format!("metrics: {} lines chained, to step {step} of {last}", records.len()),
        );
    }
    Some(Log { records, heads })
}

/// Learning rates of all logged steps, and data of some, computed again.
fn remake(log: &Log, mut job: Job, which: Remake, report: &mut Report) {
    let before = report.broken.len();
    let count = log.steps().count() as u64;
    let (mut remade, mut rates) = (0, 0);
    for (at, step) in log.steps().enumerate() {
        let rate = job.rate(step.step - 1);
        if rate.to_bits() != step.lr.to_bits() {
            let what =
                format!("step {} logged lr {:?}, and the lock gives {rate:?}", step.step, step.lr);
            report.broken.push(what);
            break;
        }
        rates += 1;
        // Evenly over the run, its ends included.
        let at = at as u64;
        let all = which == Remake::Every || count <= REMADE;
        let chosen = all || at == 0 || at * REMADE / count != (at - 1) * REMADE / count;
        if !chosen && at + 1 != count {
            continue;
        }
        match job.batches(step.step - 1) {
            Ok(batches) => {
                let windows: Vec<_> = batches.iter().flat_map(Batch::window_digests).collect();
                let digest = digest_of(digest_of_windows(&windows));
                let counted: u64 = batches.iter().map(Batch::counted_targets).sum();
                if (digest, counted) != (step.batch, step.counted) {
                    report.broken.push(format!(
                        "step {} logged batch {} with {} targets, and the lock gives {} with {counted}",
                        step.step,
                        step.batch.short(),
                        step.counted,
                        digest.short()
                    ));
                    break;
                }
                remade += 1;
            }
            Err(error) => {
                report.trusted(Subject::Batches, format!("batch digests: {}", error.message));
                break;
            }
        }
    }
    if report.broken.len() == before && remade > 0 {
        let which_rates = match rates == count {
            true => format!("all {count} steps"),
            false => format!("{rates} of {count} steps"),
        };
        let rest = if remade < count { "; --all makes the rest, too" } else { "" };
        report.recomputed(
            Subject::Batches,
            format!("learning rates of {which_rates} and data of {remade} of {count} computed again: the same{rest}"),
        );
    }
}

/// Every checkpoint; the manifest of the last step's.
fn check_checkpoints(
    paths: &Paths,
    experiment: &Experiment,
    log: Option<&Log>,
    report: &mut Report,
) -> Result<Option<checkpoint::Manifest>, RunError> {
    let folder = paths.checkpoints();
    let mut last = None;
    for name in checkpoint::names(&folder)? {
        let mut wrong = |what: String| report.broken.push(format!("checkpoints/{name}: {what}"));
        let manifest = match checkpoint::verify(&folder.join(&name)) {
            Ok(manifest) => manifest,
            Err(why) => {
                wrong(why);
                continue;
            }
        };
        if manifest.lock != experiment.id() {
            wrong(format!("it is of lock {}", manifest.lock.short()));
            continue;
        }
        if let Some(log) = log
            && log.step_at(manifest.chain) != Some(manifest.step)
        {
            wrong(format!("the metrics log has no line of step {} with its chain", manifest.step));
            continue;
        }
        report.checked(
            Subject::Checkpoints,
            format!(
                "checkpoints/{name}: {} files, every byte; weights {}",
                PARTS.len(),
                manifest.weights.tensors.short()
            ),
        );
        if manifest.step == experiment.budget.steps {
            last = Some(manifest);
        }
    }
    if let Some(latest) = checkpoint::latest(&folder)?
        && !folder.join(&latest).exists()
    {
        report.broken.push(format!("checkpoints/latest names {latest}, which is gone"));
    }
    Ok(last)
}

impl Log {
    /// The step that was the last one when the log's chain was `head`.
    fn step_at(&self, head: Digest) -> Option<u64> {
        let at = self.heads.iter().position(|known| *known == head)?;
        let steps = self.records.get(..=at)?.iter().rev().find_map(|record| match record {
            Record::Step(step) => Some(step.step),
            Record::Start(_) | Record::Evaluation(_) => None,
        });
        Some(steps.unwrap_or(0))
    }
}
