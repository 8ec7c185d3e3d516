//! The weights that a word names: a file, those of a run's last checkpoint, or those of a model's folder.
//!
//! Every command that takes weights refuses files that only look like weights (a checkpoint's moments), and a
//! checkpoint's damaged weights.

use std::path::{Path, PathBuf};

use compiler::digest::Digest;
use compiler::program::Compiled;
use dsl::Problem;
use interop::record::ImportRecord;
use interop::source::file_of;
use lab::experiment::Experiment;
use records::attest::Attested;
use records::checkpoint::{self, Manifest, Part, Pointer};
use records::run::{POINTER, Paths};

use cli::fail::{Failure, shown};
use cli::finished_runs::attestation;
use cli::workspace::{self, Target};
use cli::{comparison_folder, files, load};

use crate::foreign;

/// The weights to use: the given ones, those of a run's last checkpoint, or those of a folder of another program.
pub fn of(word: &Path, given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    let run = match workspace::resolve(word)? {
        Target::Model(folder) => return Ok(folder),
        Target::Run(folder) => Some(folder),
        // The lock of a run names the run.
        Target::Lock(path) => {
            path.parent().filter(|folder| Paths::new(*folder).lock() == path).map(Path::to_owned)
        }
        Target::Folder(_) | Target::File(_) | Target::Missing(_) => None,
    };
    let Some(run) = run else {
        return Err(Failure::bad_input("no weights are given")
            .help("give `--weights FILE`, or name a run's folder instead of a file"));
    };
    of_run(&run)
}

/// The weights of a run's last checkpoint; of a finished run, those that it attests.
fn of_run(folder: &Path) -> Result<PathBuf, Failure> {
    comparison_folder::refuse_others(folder)?;
    let run = Paths::new(folder);
    let folder = shown(folder);
    let broken = |message: String| {
        Problem::finding(message, format!("`canonc verify {folder}` lists the faults of the run"))
    };
    let latest = match checkpoint::pointer(&run.checkpoints())? {
        Pointer::To(latest) => latest,
        Pointer::Unreadable(_) => {
            return Err(
                broken(format!("`latest` of the run in `{folder}` names no checkpoint")).into()
            );
        }
        Pointer::None => {
            return Err(Failure::bad_input(format!("the run in `{folder}` has no checkpoint yet"))
                .help("continue it with `canonc run`, or give `--weights FILE`"));
        }
    };
    let saved = run.checkpoints().join(&latest);
    if let Some(attested) = attestation(&run)? {
        let manifest = checkpoint::manifest_of(&saved, attested.trainer_digest())
            .map_err(|refusal| refusal.problem(|fault| broken(format!("{latest}: {fault}"))))?;
        if attested.diverged.is_none() {
            refuse_unattested(&run, &saved, &manifest, &attested)?;
        }
    }
    Ok(saved.join(Part::Weights.file()))
}

/// Refuses a checkpoint other than the one that its run attests: the checkpoint of another run, or an earlier one of
/// this run, is also intact.
pub fn refuse_unattested(
    run: &Paths,
    saved: &Path,
    manifest: &Manifest,
    attested: &Attested,
) -> Result<(), Failure> {
    let actual = (manifest.lock, manifest.step, manifest.weights.tensors);
    let wanted = (attested.lock, attested.steps, attested.weights);
    if actual == wanted {
        return Ok(());
    }
    let of = |(lock, step, weights): (Digest, u64, Digest)| {
        format!("weights {} of step {step} of lock {}", weights.short(), lock.short())
    };
    let failure = Failure::finding(format!(
        "the run attests {}, but its last checkpoint has {}",
        of(wanted),
        of(actual)
    ));
    Err(failure.at(shown(saved)).help(format!(
        "restore the folder; `canonc verify {}` checks all of it",
        shown(&run.folder)
    )))
}

/// The given file, or the weights file in a folder: a run's or its `checkpoints`' are those of the last checkpoint.
pub fn file(path: &Path) -> Result<PathBuf, Failure> {
    let path = last(&workspace::path(path)?)?;
    std::fs::metadata(&path).map_err(|error| files::missing(&path, &error))?;
    let path = file_of(&path)?;
    refuse_moments(&path)?;
    refuse_damaged(&path)?;
    Ok(path)
}

/// The last weights, if the path is that of a run, of its checkpoints, or of the pointer to the last of these.
fn last(path: &Path) -> Result<PathBuf, Failure> {
    if Paths::new(path).lock().is_file() {
        return of_run(path);
    }
    let pointer = if path.is_dir() { path.join(POINTER) } else { path.to_owned() };
    // Other programs name their files so, too.
    let is_small =
        std::fs::metadata(&pointer).is_ok_and(|file| file.is_file() && file.len() < POINTER_BYTES);
    if !pointer.ends_with(POINTER) || !is_small {
        return Ok(path.to_owned());
    }
    let checkpoints = disk::parent(&pointer);
    Ok(match checkpoint::pointer(checkpoints)? {
        Pointer::To(latest) => checkpoints.join(latest),
        Pointer::None | Pointer::Unreadable(_) => path.to_owned(),
    })
}

/// The run that a checkpoint's file is in, and its lock.
pub fn run_of(path: &Path) -> Result<Option<(PathBuf, Experiment)>, Failure> {
    let file = path.canonicalize().ok();
    let run = file.as_deref().and_then(|file| {
        let checkpoints = file.parent()?.parent()?;
        checkpoints.parent().filter(|run| Paths::new(run).checkpoints() == checkpoints)
    });
    let Some(run) = run else { return Ok(None) };
    let Some((experiment, _)) = workspace::experiment_of_run(run)? else { return Ok(None) };
    let name = load::name(run);
    let name = if name.is_empty() { ".".to_owned() } else { name };
    Ok(Some((PathBuf::from(name), experiment)))
}

/// A warning for weights that were trained or imported for another graph: shapes may fit where constants do not.
pub fn of_another_graph(path: &Path, compiled: &Compiled) -> Result<Option<String>, Failure> {
    let Some((run, experiment)) = run_of(path)? else {
        let record = ImportRecord::beside(path)?;
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
const POINTER_BYTES: u64 = 64;

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
    let has_manifest = |folder: &Path| folder.join(checkpoint::MANIFEST).is_file();
    let folder = real.as_deref().and_then(Path::parent);
    let Some(saved) = folder else { return Ok(()) };
    if !has_manifest(saved) && run_of(path)?.is_none() {
        return Ok(());
    }
    let wrong = |fault: &str| {
        Problem::finding(
            format!("`{}` is not what its checkpoint says it is: {fault}", shown(path)),
            "restore it from a copy, or copy it elsewhere to use it as plain weights",
        )
    };
    Ok(checkpoint::intact(saved, Part::Weights).map_err(|refusal| refusal.problem(wrong))?)
}
