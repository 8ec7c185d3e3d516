//! Runs and locks on this machine: finding them, and their errors on the command line.
//!
//! In: the name a person gave, or none. Out: paths, texts, prepared documents. Must stay true: without
//! a name there is exactly one candidate, or the candidates are listed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use compiler::digest::Digest;
use data::text::file;
use data::text::index::TextIndex;
use lab::experiment::{DataSource, Experiment};
use lab::lock;
use records::attest::Attestation;
use records::checkpoint::Manifest;
use records::run::{Paths, RunError, RunErrorKind, read_experiment};

use crate::fail::{Exit, Failure, shown};
use crate::{beside, files, locks, named};

/// Folder of runs; each run is in a folder of its lock's name.
pub const FOLDER: &str = "runs";
const LOCKS: &str = "lockfiles";

/// Gives a run's error its exit code.
pub fn failure(error: RunError) -> Failure {
    let RunError { kind, message, help } = error;
    let failure = Failure::bad_input(message).help(help);
    let exit = match kind {
        RunErrorKind::Finding => Exit::Finding,
        RunErrorKind::Input => Exit::BadInput,
        RunErrorKind::Machine => Exit::Machine,
    };
    Failure { exit, ..failure }
}

/// Most runs of a folder that are listed.
const LISTED: usize = 8;

/// Error for a folder that is not one run: it holds several, or none.
pub fn not_a_run(folder: &Path) -> Failure {
    let inside = inside(folder);
    let name = shown(folder);
    match inside.as_slice() {
        [] => Failure::bad_input(format!("`{name}` is not a run's folder: it has no lock"))
            .help(format!("name a folder written by `canonc run`, such as {FOLDER}/NAME")),
        several => {
            let count = dsl::counted(several.len(), "run");
            let more = if several.len() > LISTED { ", …" } else { "" };
            let names: Vec<String> =
                several.iter().take(LISTED).map(|run| format!("`{}`", shown(run))).collect();
            Failure::bad_input(format!("`{name}` is not a run, but contains {count}"))
                .help(format!("name one: {}{more}", names.join(", ")))
        }
    }
}

/// The runs in a folder, by name.
fn inside(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut inside: Vec<PathBuf> = paths.filter(|path| Paths::new(path).lock().is_file()).collect();
    inside.sort();
    inside
}

/// Whether a folder holds runs but is not a run itself.
pub fn holds_runs(folder: &Path) -> bool {
    !Paths::new(folder).lock().is_file() && !inside(folder).is_empty()
}

/// The runs of a comparison's folder, by path; `None` for anything else.
pub fn all_in(folder: &Path) -> Option<Vec<PathBuf>> {
    holds_runs(folder).then(|| inside(folder))
}

/// The weights to use: the given ones, those of a run's last checkpoint, or those of a folder of another program.
pub fn weights(word: &Path, given: Option<&Path>) -> Result<PathBuf, Failure> {
    use records::checkpoint::{self, Part, Pointer};
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    if files::is_foreign(word) {
        return Ok(word.to_owned());
    }
    let lock = named::lock(word)?;
    let run = lock.parent().map(Paths::new).filter(|run| run.lock() == lock);
    let Some(run) = run else {
        return Err(Failure::bad_input("no weights are given")
            .help("give `--weights FILE`, or name a run's folder instead of a file"));
    };
    beside::refuse_others(&run.folder)?;
    let folder = shown(&run.folder);
    let broken = |what: String| {
        let failure = Failure::bad_input(what);
        Failure { exit: Exit::Finding, ..failure }
            .help(format!("`canonc verify {folder}` lists the faults of the run"))
    };
    let latest = match checkpoint::pointer(&run.checkpoints()).map_err(failure)? {
        Pointer::To(latest) => latest,
        Pointer::Unreadable(_) => {
            return Err(broken(format!("`latest` of the run in `{folder}` names no checkpoint")));
        }
        Pointer::None => {
            return Err(Failure::bad_input(format!("the run in `{folder}` has no checkpoint yet"))
                .help("continue it with `canonc run`, or give `--weights FILE`"));
        }
    };
    let place = run.checkpoints().join(&latest);
    // For a finished run, use the weights that it attests.
    let text = disk::read_text(&run.attestation(), disk::SMALL).ok();
    if let Some(attested) = text.and_then(|text| Attestation::parse(&text).ok()) {
        let manifest =
            checkpoint::manifest(&place).map_err(|why| broken(format!("{latest}: {why}")))?;
        if attested.diverged.is_none() {
            holds_what_is_attested(&run, &place, &manifest, &attested)?;
        }
    }
    Ok(place.join(Part::Weights.file()))
}

/// Refuses a checkpoint other than the one that its run attests: the checkpoint of another run, or an earlier one of
/// this run, is also intact.
pub fn holds_what_is_attested(
    run: &Paths,
    place: &Path,
    manifest: &Manifest,
    attested: &Attestation,
) -> Result<(), Failure> {
    let found = (manifest.lock, manifest.step, manifest.weights.tensors);
    let wanted = (attested.lock, attested.steps, attested.weights);
    if found == wanted {
        return Ok(());
    }
    let of = |(lock, step, weights): (Digest, u64, Digest)| {
        format!("weights {} of step {step} of lock {}", weights.short(), lock.short())
    };
    let failure = Failure::bad_input(format!(
        "the run attests {}, but its last checkpoint has {}",
        of(wanted),
        of(found)
    ));
    Err(Failure { exit: Exit::Finding, ..failure }.at(shown(place)).help(format!(
        "restore the folder; `canonc verify {}` checks all of it",
        shown(&run.folder)
    )))
}

/// The text of a lock.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    let path = &named::lock(path)?;
    locks::refuse_large_source(path)?;
    let bytes = disk::read(path, disk::SMALL).map_err(|error| locks::unreadable(path, &error))?;
    let text = String::from_utf8(bytes).map_err(|_| {
        Failure::bad_input(format!("`{}` is not a lock: it is not text", shown(path)))
    })?;
    locks::refuse_source(path, &text)?;
    Ok(text)
}

/// Locks that an error names, where there are many.
const NAMED: usize = 5;

/// The only experiment lock.
pub fn only_experiment() -> Result<PathBuf, Failure> {
    let entries = std::fs::read_dir(LOCKS).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "lock"))
        .collect();
    paths.sort();
    let is_experiment = |path: &PathBuf| {
        let text = disk::read_text(path, disk::SMALL).ok()?;
        let lock = records::run::read_lock(&shown(path), &text).ok()?;
        (lock.kind() == "experiment").then(|| path.clone())
    };
    let is_old =
        |path: &PathBuf| disk::read_text(path, disk::SMALL).is_ok_and(|text| lock::is_older(&text));
    let found: Vec<PathBuf> = paths.iter().filter_map(is_experiment).collect();
    match found.as_slice() {
        [only] => Ok(only.clone()),
        [] if paths.iter().any(is_old) => {
            let message = format!("the locks in `{LOCKS}` were written by an older canonc");
            Err(Failure::bad_input(message).help("`canonc build` writes them again"))
        }
        [] => Err(Failure::bad_input(format!("`{LOCKS}` contains no experiment lock")).help(
            "`canonc build recipes/NAME.toml` writes one; `canonc new DIR` writes an example recipe",
        )),
        several => {
            let mut failure = Failure::bad_input(format!(
                "no lock is named, but `{LOCKS}` has {} experiment locks",
                several.len()
            ));
            for path in several.iter().take(NAMED) {
                failure = failure.help(format!("canonc run --lock {}", shown(path)));
            }
            let more = several.len().saturating_sub(NAMED);
            Err(if more > 0 { failure.help(format!("or one of {more} more")) } else { failure })
        }
    }
}

/// The lock of a run's folder with its text; `None` if it cannot be read, which `canonc verify` reports.
pub fn locked_in(folder: &Path) -> Option<(Experiment, String)> {
    let text = disk::read_text(&Paths::new(folder).lock(), disk::SMALL).ok()?;
    let experiment = read_experiment("lock", &text).ok()?;
    Some((experiment, text))
}

/// A warning for a run whose name is that of another lock: the name means the run.
pub fn of_another_lock(run: &Paths, experiment: &Experiment) -> Option<String> {
    let path = Path::new(LOCKS).join(format!("{}.lock", experiment.name));
    let text = disk::read_text(&path, disk::SMALL).ok()?;
    let other = read_experiment("lock", &text).ok()?;
    (other.id() != experiment.id()).then(|| {
        format!(
            "warning: the run in `{}` is of lock {}, and `{path}` is lock {}; `canonc run {path} --dir FOLDER` \
             trains that",
            shown(&run.folder),
            experiment.id().short(),
            other.id().short(),
            path = shown(&path),
        )
    })
}

/// The prepared documents that are given, or those at their usual path if the file exists; an unusable file is an error.
pub fn documents_if_there(
    experiment: &Experiment,
    given: Option<&Path>,
) -> Result<Option<Arc<TextIndex>>, Failure> {
    let is_there = |name: &str| usual(name).is_some_and(|path| path.exists());
    match &experiment.data.source {
        DataSource::Text { name, .. } if given.is_some() || is_there(name) => {
            documents(experiment, given)
        }
        DataSource::Text { .. } | DataSource::Task { .. } => Ok(None),
    }
}

/// Whether an experiment trains on prepared documents.
pub fn reads_documents(experiment: &Experiment) -> bool {
    matches!(experiment.data.source, DataSource::Text { .. })
}

/// Refuses documents for an experiment that reads none.
pub fn reads(experiment: &Experiment, given: Option<&Path>) -> Result<(), Failure> {
    match (&experiment.data.source, given) {
        (DataSource::Task { task, .. }, Some(path)) => Err(Failure::bad_input(format!(
            "`{}` trains on the task {}, which reads no documents, but `--data {}` names some",
            experiment.name,
            task.name(),
            shown(path)
        ))
        .help("remove --data")),
        (DataSource::Task { .. } | DataSource::Text { .. }, _) => Ok(()),
    }
}

/// The default path of documents with that name. A name can be any text; one that leads to another folder has no
/// default path.
fn usual(name: &str) -> Option<PathBuf> {
    let is_part = !name.starts_with('.') && !name.contains(['/', '\\', ':']);
    is_part.then(|| Path::new("data").join(format!("{name}.index")))
}

/// The default path of a lock's prepared documents.
pub fn usual_documents(experiment: &Experiment) -> Result<PathBuf, Failure> {
    match &experiment.data.source {
        DataSource::Text { name, .. } => usual(name).ok_or_else(|| {
            Failure::bad_input(format!("the documents {name:?} have no default path"))
                .help("name the prepared file with --data PATH; `canonc data prepare` writes one")
        }),
        DataSource::Task { task, .. } => Err(Failure::bad_input(format!(
            "`{}` trains on the task {}, which reads no documents",
            experiment.name,
            task.name()
        ))),
    }
}

/// A warning for an experiment in which no step changes a weight.
pub fn learns_nothing(experiment: &Experiment) -> Option<String> {
    if records::job::learns(experiment) {
        return None;
    }
    let steps = crate::output::counted(experiment.budget.steps, "step");
    Some(format!(
        "warning: {}: the learning rate is 0 at every one of {steps}, so nothing is learned; lower \
         schedule.warmup, raise the budget or optimizer.lr",
        experiment.name
    ))
}

/// The prepared documents of a lock that trains on text.
pub fn documents(
    experiment: &Experiment,
    given: Option<&Path>,
) -> Result<Option<Arc<TextIndex>>, Failure> {
    reads(experiment, given)?;
    let DataSource::Text { name, .. } = &experiment.data.source else {
        return Ok(None);
    };
    let path = &match given {
        Some(path) => path.to_owned(),
        None => usual_documents(experiment)?,
    };
    if !path.exists() {
        return Err(Failure::bad_input(format!(
            "the documents \"{name}\" are not at `{}`",
            shown(path)
        ))
        .help("name the prepared file with --data PATH; `canonc data prepare` writes one"));
    }
    crate::output::detail(|| format!("documents: {}", shown(path)));
    let index =
        file::load(path).map_err(|error| Failure::bad_input(error.message).help(error.help))?;
    Ok(Some(Arc::new(index)))
}
