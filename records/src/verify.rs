//! Checks every claim of a run's folder, without libtorch.
//!
//! Everything that follows from the lock or from the bytes on disk is recomputed from them, never compared with a copy of
//! itself. One broken claim does not hide the next; claims that nothing here can prove are reported as trusted.

mod attested;
mod checkpoints;
mod ended;
mod log;
mod own;
mod report;
mod timings;
mod elsewhere;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use compiler::digest::Digest;
use dsl::{Problem, ProblemKind};
use lab::experiment::{DataSource, Experiment, Init, Missing};

use crate::attest::{Attestation, Circumstances};
use crate::checkpoint::{self, MANIFEST, name_of};
use crate::init;
use crate::initial::NamedWeights;
use crate::job::{Job, check_documents};
use crate::metrics::{Record, Start};
use crate::run::trained_elsewhere;
use crate::run::{POINTER, Paths, Refusal, cannot_read, experiment_from_text, if_there};
use crate::weights::WeightSource;
use data::text::index::TextIndex;

pub use elsewhere::times as times_elsewhere;
pub use log::{REMADE, Remake, plausible};
pub use own::{check as check_own, intact};
pub use report::{Claim, Subject, TrainedBy, VerifyReport};
pub use timings::{TimedRun, timed_seconds};

/// Whether a run's folder passes every check that needs neither documents nor training.
pub fn holds(folder: &Path) -> Result<bool, Problem> {
    match verify(folder, Inputs::default(), Remake::Spread) {
        Ok(report) => Ok(report.broken.is_empty()),
        Err(problem) if problem.kind == ProblemKind::Machine => Err(problem),
        Err(_) => Ok(false),
    }
}

use log::Log;

/// What a lock names beside its own text, as far as it is at hand.
#[derive(Debug, Default)]
pub struct Inputs {
    /// The documents that a run on text reads.
    pub documents: Option<Arc<TextIndex>>,
    /// The weights that a run begins from.
    pub weights: Option<Box<dyn WeightSource>>,
}

/// Checks everything in a run's folder. What needs a missing input is taken on trust. An error if a file could not be read.
pub fn verify(folder: &Path, inputs: Inputs, which: Remake) -> Result<VerifyReport, Problem> {
    let mut report = check_all(folder, inputs, which)?;
    match report.unread.take() {
        None => Ok(report),
        Some(problem) => Err(problem),
    }
}

fn check_all(folder: &Path, inputs: Inputs, which: Remake) -> Result<VerifyReport, Problem> {
    let paths = Paths::new(folder);
    let mut report = VerifyReport::default();
    special_files(&paths, &mut report);
    if !report.broken.is_empty() || report.unread.is_some() {
        return Ok(report);
    }
    let Some((text, experiment)) = read_lock(&paths, &mut report)? else { return Ok(report) };
    if trained_elsewhere(&paths)? {
        elsewhere::check(&paths, &experiment, (&text, inputs, which), &mut report)?;
        return Ok(report);
    }
    report.trained_by = TrainedBy::Canonc { shown: false };
    let (attestation, circumstances) = match attestation(&paths)? {
        None => (None, None),
        Some(Ok((attestation, circumstances))) => (Some(Ok(attestation)), Some(circumstances)),
        Some(Err(fault)) => (Some(Err(fault)), None),
    };
    let readable = attestation.as_ref().and_then(|read| read.as_ref().ok());
    // Before the log, because a concurrent training process saves a checkpoint after its log lines.
    let names = checkpoint::names(&paths.checkpoints())?;
    let finished = attestation.is_some();
    let diverged = readable.and_then(|attestation| attestation.diverged);
    let log = log::check(&paths, &experiment, finished, diverged, &mut report);
    if let Some(log) = &log {
        check_log(log, &experiment, (&text, inputs, which), &mut report);
    }
    // A diverged run ends there.
    let last = diverged.unwrap_or(experiment.budget.steps);
    let ends = checkpoints::Ends { last, finished };
    let logged = log.as_ref();
    let saved = checkpoints::check(&paths, &experiment, &names, (logged, None), ends, &mut report)?;
    let place = paths.checkpoints().join(name_of(last));
    let last_is_there = if_there(&place, std::fs::metadata(&place))?.is_some();
    let run = ended::RecordedEnd {
        begun: finished || log.as_ref().is_some_and(|log| log.steps().next().is_some()),
        finished,
        other_canonc: attested::other_canonc(readable).is_some(),
        steps: experiment.budget.steps,
        attestation: readable,
    };
    let events = ended::check_events(&paths, run, &mut report);
    ended::check_writer(&paths.writer(), run.begun, &mut report);
    if let Some(log) = log.as_ref().filter(|_| !run.other_canonc) {
        let timed = TimedRun {
            records: &log.records,
            processes: events.processes,
            steps: run.steps,
            finished,
        };
        let seconds = timed_seconds(&paths, timed);
        ended::check_times(&events, circumstances, seconds, &mut report);
    }
    if !finished {
        ended::check_unattested(&paths, last, log.as_ref(), saved.is_some(), events, &mut report);
    }
    let evidence = attested::Evidence { log: log.as_ref(), saved, last_is_there, finished };
    attested::check(&paths, &experiment, attestation, evidence, &mut report);
    other_files(&paths, &FILES, &mut report)?;
    report_trusted(log.as_ref(), &mut report);
    Ok(report)
}

/// The lock's text and what it means; `None` if it is broken.
fn read_lock(
    paths: &Paths,
    report: &mut VerifyReport,
) -> Result<Option<(String, Experiment)>, Problem> {
    let Some(text) = lock_text(paths, report)? else { return Ok(None) };
    let name = paths.lock().display().to_string();
    let experiment = match experiment_from_text(&name, &text) {
        Ok(experiment) => experiment,
        Err(error) => {
            report.broken(error.message);
            return Ok(None);
        }
    };
    report.recomputed(
        Subject::Lock,
        format!("lock {}: every line follows from its text", experiment.id().short()),
    );
    Ok(Some((text, experiment)))
}

/// A lock's text, what it names beside it, and how many batches to make again.
type LogInputs<'a> = (&'a str, Inputs, Remake);

/// Checks what the lock and the documents say about the log's lines.
fn check_log(
    log: &Log,
    experiment: &Experiment,
    (text, Inputs { documents, weights }, which): LogInputs<'_>,
    report: &mut VerifyReport,
) {
    log::check_rates(log, experiment, report);
    log::check_suites(log, experiment, report);
    let is_text = matches!(experiment.data.source, DataSource::Text { .. });
    let absent = is_text && documents.is_none();
    let others = documents.as_deref().and_then(|index| check_documents(experiment, index).err());
    if let Some(documents) = documents.as_deref().filter(|_| others.is_none()) {
        check_tokens(documents, experiment, report);
    }
    match Job::new(experiment, text, documents) {
        Ok(job) => log::check_data(log, job, which, report),
        Err(error) if absent || others.is_some() => {
            let reason = match others {
                None => "not recomputed: the documents are not available",
                Some(_) => "not recomputed: these are other documents",
            };
            let claim = |what: &str| format!("{what}: {}", error.message);
            report.trusted_since(Subject::Batches, reason, claim("batches of all steps"));
            report.trusted_since(Subject::HeldOut, reason, claim("held-out windows"));
        }
        Err(error) if error.kind == ProblemKind::Machine => report.faulty("", error),
        // With text, the prepared file may be at fault.
        Err(error) if is_text => {
            report.undecided(format!("batches and held-out windows: {}", error.message));
        }
        Err(error) => report.broken(format!(
            "metrics.jsonl has steps of a run that cannot be prepared from its lock: {}",
            error.message
        )),
    }
    check_initial(log, experiment, weights, report);
}

/// Whether the prepared tokens are those of the documents in the lock's digest. Bytes are their own tokens.
fn check_tokens(documents: &TextIndex, experiment: &Experiment, report: &mut VerifyReport) {
    let bytes = lab::field::FieldValue::text("bytes");
    match documents.check() {
        Ok(()) if experiment.value("data.tokenizer") == Some(&bytes) => report.recomputed(
            Subject::Tokens,
            "tokens of the documents: each document has the digest that the lock covers",
        ),
        // The lock's digest covers them, but the tokenizer is not here.
        Ok(()) => report.trusted_since(
            Subject::Tokens,
            "prepare them again to compare",
            "tokens of the documents: they are those of the lock; only preparing them again shows that the tokenizer \
             made them",
        ),
        Err(error) => report.faulty("the prepared documents: ", error),
    }
}

/// Maximum bytes of a text file in a run; a log line has a few hundred.
const MAX_TEXT: u64 = 4 << 30;

/// The files in a run's folder.
const FILES: [&str; 9] = [
    "attestation.toml",
    "attestation.toml.sig",
    "events.jsonl",
    "kernels.txt",
    "lock",
    "metrics.jsonl",
    "plan.txt",
    "timings.jsonl",
    "writer",
];

/// The files in its checkpoints, and beside them.
const CHECKPOINT_FILES: [&str; 5] = [
    MANIFEST,
    "first_moment.safetensors",
    POINTER,
    "second_moment.safetensors",
    "weights.safetensors",
];

/// Reports files that cannot be regular files of a run: reading a pipe never ends, and a device or a huge sparse file
/// fills the memory.
fn special_files(paths: &Paths, report: &mut VerifyReport) {
    let checkpoints = paths.checkpoints();
    if checkpoints.exists() && !checkpoints.is_dir() {
        report.broken("checkpoints is not a folder");
    }
    let mut folders = vec![paths.folder.clone(), checkpoints.clone()];
    folders.extend(entries(&checkpoints, report).into_iter().filter(|path| path.is_dir()));
    let all: Vec<_> = folders.iter().flat_map(|folder| entries(folder, report)).collect();
    for path in all {
        let name = path.strip_prefix(&paths.folder).unwrap_or(&path).display().to_string();
        // Hidden files in the run's folder are named and never read.
        let hidden = name.starts_with('.');
        if !hidden && std::fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink()) {
            report.broken(format!(
                "{name} is a link, but a run has no links: its target is outside of this folder and can be replaced"
            ));
        }
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => {
                let tensors = path.extension().is_some_and(|end| end == "safetensors");
                if !tensors && metadata.len() > MAX_TEXT {
                    let bytes = dsl::size(metadata.len());
                    report
                        .broken(format!("{name} has {bytes}, too large for a text file of a run"));
                }
            }
            Ok(metadata) if metadata.is_dir() => {
                let mut files = FILES.iter().chain(&elsewhere::FILES).chain(&CHECKPOINT_FILES);
                if files.any(|file| path.file_name().is_some_and(|name| name == *file)) {
                    report.broken(format!("{name} is a folder, but should be a file"));
                }
            }
            Ok(_) => report.broken(format!("{name} is neither a file nor a folder")),
            // A process that trains meanwhile renames and deletes what it has written.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => report
                .faulty(&format!("{name} cannot be inspected: "), Refusal::of_io(&path, &error)),
        }
    }
}

/// The paths in a folder, which may not be one.
fn entries(folder: &Path, report: &mut VerifyReport) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    match if_there(folder, listed) {
        Ok(paths) => paths.unwrap_or_default(),
        Err(problem) => {
            report.faulty("", problem);
            Vec::new()
        }
    }
}

/// The lock's text; `None` if a run's folder has lost it.
fn lock_text(paths: &Paths, report: &mut VerifyReport) -> Result<Option<String>, Problem> {
    let error = match disk::read_text(&paths.lock(), disk::SMALL) {
        Ok(text) => return Ok(Some(text)),
        Err(error) => error,
    };
    if disk::is_unread(&error) {
        return Err(cannot_read(&paths.lock(), &error));
    }
    let begun = [paths.metrics(), paths.attestation(), paths.checkpoints()];
    if begun.iter().any(|path| path.exists()) {
        report.broken(format!("lock cannot be read: {error}; every run has one"));
        return Ok(None);
    }
    let folder = paths.folder.display();
    Err(Problem::input(
        format!("{folder} is not a run's folder: its lock cannot be read: {error}"),
        "name a folder written by `canonc run`, such as runs/NAME, or a lock",
    ))
}

/// An attestation's content, or why it is invalid.
type ReadAttestation = Result<(Attestation, Circumstances), String>;

/// The attestation: `None` if there is none.
fn attestation(paths: &Paths) -> Result<Option<ReadAttestation>, Problem> {
    let path = paths.attestation();
    match read(&path) {
        Ok(Some(text)) => Ok(Some(Attestation::parse_with_circumstances(&text))),
        Ok(None) => Ok(None),
        Err(error) if disk::is_unread(&error) => Err(cannot_read(&path, &error)),
        Err(error) => Ok(Some(Err(error.to_string()))),
    }
}

/// Maximum number of parameters to draw again (a few minutes' work), since a lock can name any number.
const MAX_DRAWN: u64 = 1 << 33;

/// Checks the initial weights by making them again from what the lock names: its seed, a digest, a file.
fn check_initial(
    log: &Log,
    experiment: &Experiment,
    weights: Option<Box<dyn WeightSource>>,
    report: &mut VerifyReport,
) {
    let Some(Record::Start(Start { initial, .. })) = log.records.first() else { return };
    let slots = checkpoint::slots(&experiment.arch.compiled.graph, &experiment.updates);
    let elements = slots.iter().fold(0u64, |sum, slot| sum.saturating_add(slot.elements() as u64));
    if elements > MAX_DRAWN {
        let reason = "too many to recompute here";
        report.trusted_since(
            Subject::InitialWeights,
            reason,
            format!("initial weights {}: {elements} of them, {reason}", initial.short()),
        );
        return;
    }
    if let Some(named) = NamedWeights::of(experiment) {
        check_named(*initial, experiment, (named, weights), report);
        return;
    }
    match init::digest(&experiment.arch.compiled.graph, experiment.seeds.init) {
        Ok(drawn) if drawn == *initial => report.recomputed(
            Subject::InitialWeights,
            format!("initial weights {}: drawn again from the lock's seed", drawn.short()),
        ),
        Ok(drawn) => report.broken(format!(
            "metrics.jsonl: it says that the run began with weights {}, but the lock's seed gives {}",
            initial.short(),
            drawn.short()
        )),
        Err(error) => report.broken(format!("the initial weights cannot be drawn: {error}")),
    }
}

/// Checks the initial weights of a run that begins from a file.
fn check_named(
    initial: Digest,
    experiment: &Experiment,
    (named, weights): (NamedWeights, Option<Box<dyn WeightSource>>),
    report: &mut VerifyReport,
) {
    let follows = matches!(&experiment.init, Init::Weights { missing: Missing::Refused, .. });
    if weights.is_none() && !follows {
        let reason = "not recomputed: the weights that the lock names are not available";
        let text = format!("initial weights {}: {reason}", initial.short());
        report.trusted_since(Subject::InitialWeights, reason, text);
        return;
    }
    let graph = &experiment.arch.compiled.graph;
    match named.with_source(weights).initial(graph, experiment.seeds.init) {
        Ok(made) if made == initial => {
            let origin = match follows {
                true => "those whose digest the lock has",
                false => "read from the weights that the lock names, the rest drawn from its seed",
            };
            let text = format!("initial weights {}: {origin}", made.short());
            report.recomputed(Subject::InitialWeights, text);
        }
        Ok(made) => report.broken(format!(
            "metrics.jsonl: it says that the run began with weights {}, but the lock gives {}",
            initial.short(),
            made.short()
        )),
        Err(error) => report.faulty("the initial weights: ", error),
    }
}

/// Refuses files in the folder that do not belong to a run; hidden files, which nothing reads, are named.
fn other_files(paths: &Paths, files: &[&str], report: &mut VerifyReport) -> Result<(), Problem> {
    let failed = |error: io::Error| cannot_read(&paths.folder, &error);
    let (mut strange, mut hidden) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(&paths.folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if name != "checkpoints" && !files.contains(&name.as_str()) {
            if name.starts_with('.') { hidden.push(name) } else { strange.push(name) }
        }
    }
    strange.sort_unstable();
    hidden.sort_unstable();
    for name in strange {
        report.broken_stray(format!("{name} is not part of a run: move it elsewhere"));
    }
    if !hidden.is_empty() {
        report.trusted(
            Subject::OtherFiles,
            format!("hidden files that were not read: {}", hidden.join(", ")),
        );
    }
    Ok(())
}

/// Reports the claims that only a full rerun could prove, or that nothing can.
fn report_trusted(log: Option<&Log>, report: &mut VerifyReport) {
    let (steps, evaluations) =
        log.map_or((0, 0), |log| (log.steps().count(), log.evaluations().count()));
    if steps > 0 {
        report.trusted(
            Subject::Losses,
            format!(
                "losses and gradient norms of {}: only computing them again can prove them",
                dsl::counted(steps, "step")
            ),
        );
        report.trusted(
            Subject::Training,
            "the weights and moments after the start: their digests match, but only training again can prove that \
             the lock leads to them",
        );
    }
    if evaluations > 0 {
        report.trusted(
            Subject::Evaluations,
            format!(
                "scores of {}: only evaluating again can prove them",
                dsl::counted(evaluations, "evaluation")
            ),
        );
    }
    report.trusted(
        Subject::Settings,
        "names and cadences in the lock, and which older checkpoints were kept: no id covers them",
    );
    report.trusted(
        Subject::Times,
        "times, numbers of processes, and the machines of earlier processes: timings.jsonl, events.jsonl and the \
         lines below the attestation's seal are not sealed",
    );
}

/// A file's text; `None` if it does not exist.
fn read(path: &Path) -> io::Result<Option<String>> {
    match disk::read_text(path, disk::TEXT) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
