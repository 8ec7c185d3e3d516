//! Runs and locks on this machine: where they lie, and what a run's error is to the command line.
//!
//! In: what a person named, or nothing. Out: paths, texts, prepared documents. Must stay true: where
//! nothing is named there is exactly one thing it can mean, or the list is shown.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use compiler::lock::{DataSource, Experiment};
use runtime::data::text::file;
use runtime::data::text::index::TextIndex;
use runtime::run::{Kind, RunError};

use crate::fail::{Exit, Failure, shown};
use crate::locks;

/// Where runs go, each in a folder of its lock's name.
pub(crate) const FOLDER: &str = "runs";
#[cfg(feature = "torch")]
const LOCKS: &str = "lockfiles";

/// A run's error with its exit code.
pub(crate) fn failure(error: RunError) -> Failure {
    let RunError { kind, message, help } = error;
    let failure = Failure::bad_input(message).help(help);
    let exit = match kind {
        Kind::Finding => Exit::Finding,
        Kind::Input => Exit::BadInput,
        Kind::Machine => Exit::Machine,
    };
    Failure { exit, ..failure }
}

/// The folder of a run: as named, or of that name under `runs/`.
pub(crate) fn folder(named: &Path) -> PathBuf {
    let usual = Path::new(FOLDER).join(named);
    if !named.exists() && usual.is_dir() { usual } else { named.to_owned() }
}

/// The text of a lock.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    let bytes = std::fs::read(path).map_err(|error| locks::missing(path, &error))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::bad_input(format!("`{}` is no lock: it is not text", shown(path))))?;
    locks::refuse_source(path, &text)?;
    Ok(text)
}

/// The one experiment lock there is.
#[cfg(feature = "torch")]
pub(crate) fn only_experiment() -> Result<PathBuf, Failure> {
    let entries = std::fs::read_dir(LOCKS).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "lock"))
        .collect();
    paths.sort();
    let is_experiment = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).ok()?;
        let lock = runtime::run::read_lock(&shown(path), &text).ok()?;
        (lock.kind() == "experiment").then(|| path.clone())
    };
    let found: Vec<PathBuf> = paths.iter().filter_map(is_experiment).collect();
    match found.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Failure::bad_input(format!("no experiment lock is under `{LOCKS}`")).help(
            "`canonc build recipes/NAME.toml` writes one; `canonc new DIR` writes a first recipe",
        )),
        several => {
            let mut failure = Failure::bad_input(format!(
                "{} experiment locks are under `{LOCKS}`, and none is named",
                several.len()
            ));
            for path in several {
                failure = failure.help(format!("canonc run --lock {}", shown(path)));
            }
            Err(failure)
        }
    }
}

/// The prepared documents at their usual place, if there is a file; one that cannot be used is an error.
pub(crate) fn documents_if_there(
    experiment: &Experiment,
) -> Result<Option<Arc<TextIndex>>, Failure> {
    match &experiment.data.source {
        DataSource::Text { name, .. } if usual(name).exists() => documents(experiment, None),
        DataSource::Text { .. } | DataSource::Task { .. } => Ok(None),
    }
}

/// Where a lock's prepared documents are looked for.
pub(crate) fn usual_documents(experiment: &Experiment) -> Result<PathBuf, Failure> {
    match &experiment.data.source {
        DataSource::Text { name, .. } => Ok(usual(name)),
        DataSource::Task { name, .. } => Err(Failure::bad_input(format!(
            "`{}` trains on the task {name}, which reads no documents",
            experiment.name
        ))),
    }
}

fn usual(name: &str) -> PathBuf {
    Path::new("data").join(format!("{name}.index"))
}

/// A warning where no step of an experiment changes a weight.
pub(crate) fn learns_nothing(experiment: &Experiment) -> Option<String> {
    if runtime::job::learns(experiment) {
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
pub(crate) fn documents(
    experiment: &Experiment,
    given: Option<&Path>,
) -> Result<Option<Arc<TextIndex>>, Failure> {
    let DataSource::Text { name, .. } = &experiment.data.source else {
        return Ok(None);
    };
    let usual = usual(name);
    let path = given.unwrap_or(&usual);
    if !path.exists() {
        return Err(Failure::bad_input(format!(
            "the documents \"{name}\" are not at `{}`",
            shown(path)
        ))
        .help("name the prepared file with --data PATH; `canonc data prepare` makes one"));
    }
    let index =
        file::load(path).map_err(|error| Failure::bad_input(error.message).help(error.help))?;
    Ok(Some(Arc::new(index)))
}
