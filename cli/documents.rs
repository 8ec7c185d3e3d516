//! The prepared documents that an experiment trains on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use data::Split;
use data::text::index::TextIndex;
use data::text::{TextWindows, file, locked};
use dsl::Problem;
use lab::experiment::{DataSource, Experiment};
use records::run::if_readable;

use crate::fail::{Failure, shown};
use crate::output;

/// The prepared documents of a lock that trains on text.
pub fn read(
    experiment: &Experiment,
    given: Option<&Path>,
) -> Result<Option<Arc<TextIndex>>, Failure> {
    refuse_unused(experiment, given)?;
    let DataSource::Text { name, .. } = &experiment.data.source else {
        return Ok(None);
    };
    let path = &match given {
        Some(path) => path.to_owned(),
        None => usual_path(experiment)?,
    };
    if !is_there(path)? {
        return Err(Failure::bad_input(format!(
            "the documents \"{name}\" are not at `{}`",
            shown(path)
        ))
        .help("name the prepared file with --data PATH; `canonc data prepare` writes one"));
    }
    output::detail(|| format!("documents: {}", shown(path)));
    Ok(Some(Arc::new(file::load(path)?)))
}

/// The prepared documents that are given, or those at their usual path if the file exists; an unusable file is an error.
pub fn read_if_present(
    experiment: &Experiment,
    given: Option<&Path>,
) -> Result<Option<Arc<TextIndex>>, Failure> {
    let DataSource::Text { name, .. } = &experiment.data.source else { return Ok(None) };
    let is_present = match usual(name) {
        Some(path) => is_there(&path)?,
        None => false,
    };
    if given.is_some() || is_present { read(experiment, given) } else { Ok(None) }
}

fn is_there(path: &Path) -> Result<bool, Problem> {
    Ok(if_readable(path, std::fs::metadata(path))?.is_some())
}

/// Whether an experiment trains on prepared documents.
pub fn trains_on(experiment: &Experiment) -> bool {
    matches!(experiment.data.source, DataSource::Text { .. })
}

/// Refuses documents for an experiment that reads none.
pub fn refuse_unused(experiment: &Experiment, given: Option<&Path>) -> Result<(), Failure> {
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

/// The default path of documents with that name. A name can be any text; one that leads to another folder has none.
fn usual(name: &str) -> Option<PathBuf> {
    let is_part = !name.starts_with('.') && !name.contains(['/', '\\', ':']);
    is_part.then(|| Path::new("data").join(format!("{name}.index")))
}

/// The default path of a lock's prepared documents.
pub fn usual_path(experiment: &Experiment) -> Result<PathBuf, Failure> {
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

/// The windows of a lock that trains on text.
pub fn windows(
    experiment: &Experiment,
    index: Arc<TextIndex>,
    split: Split,
) -> Result<TextWindows, Failure> {
    let data = &experiment.data;
    let seq_len = usize::try_from(data.seq_len).unwrap_or(usize::MAX);
    let seed = match split {
        Split::Train => experiment.seeds.data,
        Split::HeldOut => experiment.seeds.eval,
    };
    let options = locked::options(&data.source, seq_len, split, seed)
        .ok_or_else(|| Failure::bad_input(format!("`{}` reads no documents", experiment.name)))?;
    Ok(TextWindows::new(index, options)?)
}
