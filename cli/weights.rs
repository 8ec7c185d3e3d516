//! Weight files named on the command line.
//!
//! In: a path, or a run's name. Out: the file, if it may hold weights; for a run that of its last checkpoint. Must stay
//! true: every command that takes weights refuses files that only look like weights (a checkpoint's moments), and a
//! checkpoint's damaged weights.

use std::path::{Path, PathBuf};

use compiler::program::Compiled;
use interop::record::ImportRecord;
use interop::source::file_of;
use lab::experiment::Experiment;
use records::checkpoint::{self, Part, Pointer};
use records::run::{POINTER, Paths};

use crate::fail::{Exit, Failure, shown};
use crate::import::failure;
use crate::{files, foreign, load, named, runs};

/// The given file, or the weights file in a folder: a run's or its `checkpoints`' are those of the last checkpoint.
pub fn file(path: &Path) -> Result<PathBuf, Failure> {
    let path = last(&named::run_or_path(path)?)?;
    std::fs::metadata(&path).map_err(|error| files::missing(&path, &error))?;
    let path = file_of(&path).map_err(failure)?;
    refuse_moments(&path)?;
    refuse_damaged(&path)?;
    Ok(path)
}

/// The last weights, if the path is that of a run, of its checkpoints, or of the pointer to the last of these.
fn last(path: &Path) -> Result<PathBuf, Failure> {
    if Paths::new(path).lock().is_file() {
        return runs::weights(path, None);
    }
    let pointer = if path.is_dir() { path.join(POINTER) } else { path.to_owned() };
    // Other programs name their files so, too.
    let is_small = std::fs::metadata(&pointer).is_ok_and(|it| it.is_file() && it.len() < MOST);
    if !pointer.ends_with(POINTER) || !is_small {
        return Ok(path.to_owned());
    }
    let checkpoints = disk::parent(&pointer);
    Ok(match checkpoint::pointer(checkpoints).map_err(runs::failure)? {
        Pointer::To(latest) => checkpoints.join(latest),
        Pointer::None | Pointer::Unreadable(_) => path.to_owned(),
    })
}

/// The run that a checkpoint's file is in, and its lock.
pub fn run_of(path: &Path) -> Option<(PathBuf, Experiment)> {
    let file = path.canonicalize().ok()?;
    let checkpoints = file.parent()?.parent()?;
    let run = checkpoints.parent().filter(|run| Paths::new(run).checkpoints() == checkpoints)?;
    let (experiment, _) = runs::locked_in(run)?;
    let name = load::name(run);
    let name = if name.is_empty() { ".".to_owned() } else { name };
    Some((PathBuf::from(name), experiment))
}

/// A warning for weights that were trained or imported for another graph: shapes may fit where constants do not.
pub fn of_another_graph(path: &Path, compiled: &Compiled) -> Result<Option<String>, Failure> {
    let Some((run, experiment)) = run_of(path) else {
        let record = ImportRecord::beside(path).map_err(failure)?;
        return Ok(record.and_then(|record| foreign::edited(&record, compiled)));
    };
    let other = experiment.arch.compiled.identity.graph != compiled.identity.graph;
    Ok(other.then(|| {
        format!(
            "warning: the weights of the run `{0}` were trained for another graph than that of the arch `{1}`; its \
             own is in `{2}`",
            shown(&run),
            compiled.name,
            shown(&Paths::new(&run).lock())
        )
    }))
}

/// More bytes than the name of a checkpoint has.
const MOST: u64 = 64;

/// Refuses the other files of a checkpoint: their tensors have the names and shapes of weights.
fn refuse_moments(path: &Path) -> Result<(), Failure> {
    let is = |part: Part| path.file_name().is_some_and(|name| *name == *part.file());
    let beside = path.parent().map(|folder| folder.join(Part::Weights.file()));
    match beside.filter(|weights| weights.is_file()) {
        Some(weights) if is(Part::FirstMoment) || is(Part::SecondMoment) => {
            Err(Failure::bad_input(format!("`{}` holds the optimiser's moments", shown(path)))
                .help(format!("the weights are in `{}`", shown(&weights))))
        }
        Some(_) | None => Ok(()),
    }
}

/// Checks that a checkpoint's weights are those that it was saved with.
fn refuse_damaged(path: &Path) -> Result<(), Failure> {
    let is_weights =
        |file: &Path| file.file_name().is_some_and(|name| *name == *Part::Weights.file());
    let real = path.canonicalize().ok().filter(|file| is_weights(file));
    let is_saved = |place: &&Path| place.join(checkpoint::MANIFEST).is_file();
    let place = real.as_deref().and_then(Path::parent);
    let place = place.filter(|place| is_saved(place) || run_of(path).is_some());
    let Some(place) = place else { return Ok(()) };
    checkpoint::intact(place, Part::Weights).map_err(|why| {
        let failure = Failure::bad_input(format!(
            "`{}` is not what its checkpoint says it is: {why}",
            shown(path)
        ));
        Failure { exit: Exit::Finding, ..failure }
            .help("restore it from a copy, or copy it elsewhere to use it as plain weights")
    })
}
