//! What sources make: the locks of architectures, recipes and comparisons, and how the locks that are there compare.

mod known;

use std::path::Path;

use compiler::program::Compiled;
use lab::experiment::Experiment;
use lab::lock::{self, ArchLock, Lock};
use lab::recipe::{self, FileKind};
use records::run::Paths;

use crate::archs::{self, Archs};
use crate::fail::{Failure, shown};
use crate::workspace::{self, LOCKFILES, RECIPES, lock_at, refuse};
use crate::{load, output};

pub use known::Known;

/// The locks that a file makes. Its diagnostics have been shown.
pub fn built(known: &mut Known, file: &Path) -> Result<Vec<Lock>, Failure> {
    let (path, _) = load::split(file);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("canon") => archs(file),
        Some("toml") => {
            let (sources, id) = known::toml(file)?;
            match recipe::file_kind(sources.text(id)) {
                FileKind::Recipe => {
                    let made = known.recipe(file, None)?;
                    Ok(made.iter().cloned().map(Lock::Experiment).collect())
                }
                FileKind::Comparison => known.comparisons(&sources, id),
            }
        }
        Some("lock") => Err(Failure::bad_input(format!("`{}` is already a lock", shown(file)))
            .help("name its source instead, as in its `source` line")),
        Some(_) | None => Err(Failure::bad_input(format!(
            "`{}` is neither an architecture (.canon) nor a recipe (.toml)",
            shown(file)
        ))
        .help("name a .canon or .toml file; `canonc new DIR` writes examples")),
    }
}

fn archs(file: &Path) -> Result<Vec<Lock>, Failure> {
    let Archs { name: source, archs } = archs::all(file, None)?;
    let lock = |arch: &Compiled| {
        let locked = ArchLock::new(arch.name.clone(), source.clone(), arch);
        locked.map(Lock::Arch).map_err(|error| refuse::bad_lock(file, error))
    };
    archs.iter().map(|arch| lock(&arch.compiled)).collect()
}

/// A file's name without its ending. Its locks are named after it.
fn stem(file: &Path) -> Result<String, Failure> {
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or("");
    if lab::experiment::check_name(stem).is_err() {
        return Err(Failure::bad_input(format!("`{}` cannot name a lock", shown(file))).help(
            "rename it: use only letters, digits, `_`, `-` and `.`, starting with a letter, digit or `_`",
        ));
    }
    Ok(stem.to_owned())
}

/// The recipes that name an arch of a file, by their paths. Files that are no recipes are passed over.
pub fn recipes_of(source: &str, arch: &str) -> Vec<String> {
    let paths = workspace::files_in(Path::new(RECIPES), "toml").unwrap_or_default();
    let names_it = |path: &Path| {
        let Ok((sources, id)) = known::toml(path) else { return false };
        let (Some(recipe), _) = recipe::read(&sources, id) else { return false };
        recipe.archs.iter().any(|(named, _)| {
            named.path == source && named.name.as_ref().is_none_or(|name| name == arch)
        })
    };
    paths.iter().filter(|path| names_it(path)).map(|path| shown(path)).collect()
}

/// A lock as its source makes it now, compared with the file at its path.
pub struct Built {
    /// It keeps the binding of the lock in the file.
    pub lock: Lock,
    /// The text in the file.
    pub before: Option<String>,
    pub state: State,
}

/// Whether building a lock changes its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Missing,
    Current,
    Stale,
}

/// Compares a lock with the file at its path; refuses a file that building it must not replace.
pub fn compare(path: &Path, lock: Lock) -> Result<Built, Failure> {
    let Some(before) = workspace::text_at(path)? else {
        return Ok(Built { lock, before: None, state: State::Missing });
    };
    if before == lock::write(&lock) {
        return Ok(Built { lock, before: Some(before), state: State::Current });
    }
    let lock = bound_as_before(path, lock, &before)?;
    let state = if before == lock::write(&lock) { State::Current } else { State::Stale };
    Ok(Built { lock, before: Some(before), state })
}

/// The lock with the binding that the lock in the file has.
fn bound_as_before(path: &Path, lock: Lock, before: &str) -> Result<Lock, Failure> {
    match lock::source_of(before) {
        None => Err(Failure::bad_input(format!("`{}` is not a lock of canonc", shown(path)))
            .help("move it away, or choose another folder for locks with --out")),
        Some(source) if source != lock.source() => Err(Failure::bad_input(format!(
            "`{}` was made from `{source}`, not from `{}`",
            shown(path),
            lock.source()
        ))
        .help(format!(
            "delete it if `{source}` no longer exists, rename one of the two, or use --out"
        ))),
        Some(_) => {
            let known = lock::read(&shown(path), before);
            if let Err(error) = &known
                && error.code == "lock-version"
                && !lock::is_older(before)
            {
                let failure = refuse::bad_lock(path, error.clone());
                return Err(failure.help("or delete it, and build it with this canonc"));
            }
            // A lock that cannot be read has no binding to keep.
            let bound = known.and_then(|known| lock::keep_binding(&lock, &known)).unwrap_or(None);
            Ok(bound.unwrap_or(lock))
        }
    }
}

/// What a lock's source makes of it now.
enum SourceState {
    /// The same lock.
    Same,
    Changed,
    /// It cannot be built.
    Broken,
    /// It is not there, or cannot say anything about this file.
    Gone,
}

/// Builds the source of a lock below this folder again, silently.
fn source_state(path: &Path, lock: &Lock) -> SourceState {
    let source = Path::new(lock.source());
    let below = Path::new(".").canonicalize().ok().zip(path.canonicalize().ok());
    if !below.is_some_and(|(folder, path)| path.starts_with(folder)) || !source.is_file() {
        return SourceState::Gone;
    }
    // The experiments of a comparison have the locks that `canonc compare` wrote, which has asked already.
    let text = disk::read_text(source, disk::TEXT).unwrap_or_default();
    if matches!((recipe::file_kind(&text), lock), (FileKind::Comparison, Lock::Experiment(_))) {
        return SourceState::Gone;
    }
    let Ok(locks) = output::silently(|| built(&mut Known::default(), source)) else {
        return SourceState::Broken;
    };
    let Some(now) = locks.into_iter().find(|now| now.name() == lock.name()) else {
        return SourceState::Changed;
    };
    match compare(path, now) {
        Ok(now) if now.lock.id() != lock.id() => SourceState::Changed,
        Ok(_) | Err(_) => SourceState::Same,
    }
}

/// A warning for a lock below this folder that the file it was made from, if that is there, does not make any more.
pub fn warning_of_source(path: &Path, lock: &Lock) -> Option<String> {
    let (source, name) = (lock.source(), shown(path));
    match source_state(path, lock) {
        SourceState::Same | SourceState::Gone => None,
        SourceState::Broken => Some(format!(
            "warning: `{source}`, which `{name}` was made from, has errors now; `canonc build {source}` shows them"
        )),
        SourceState::Changed => Some(format!(
            "warning: `{source}`, or what it names, has changed since `{name}` was built; `canonc build {source}` builds \
             it again"
        )),
    }
}

/// A warning for a run whose name is that of another lock: the name means the run.
pub fn warning_of_other_lock(run: &Paths, experiment: &Experiment) -> Option<String> {
    let path = Path::new(LOCKFILES).join(format!("{}.lock", experiment.name));
    let Lock::Experiment(other) = lock_at(&path).ok()?? else { return None };
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
