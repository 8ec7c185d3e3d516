//! What a word on the command line means: a run, a lock, a model's folder, another file or folder, or nothing.
//!
//! An existing path comes before a name. A word that fits several runs is refused, with the list of them.

pub mod refuse;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use dsl::Problem;
use lab::comparison::Comparison;
use lab::experiment::{Experiment, check_name};
use lab::lock::{self, Lock, MAX_LOCK_BYTES};
use records::model_folder;
use records::run::{Paths, experiment_from_text, if_readable, if_there, lock_from_text, paths_in};

use crate::fail::{Failure, shown};
use crate::finished_runs::{FinishedRuns, attestation_of_any, folders};

/// Folder of runs; each run is in a folder of its lock's name.
pub const RUNS: &str = "runs";
/// Folder of locks.
pub const LOCKFILES: &str = "lockfiles";
/// Folder of architectures.
pub const ARCHS: &str = "arch";
/// Folder of recipes and comparisons.
pub const RECIPES: &str = "recipes";

/// The meaning of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The folder of one run.
    Run(PathBuf),
    /// A folder with a model of another program, or one that canonc exported or imported.
    Model(PathBuf),
    /// Another folder.
    Folder(PathBuf),
    /// A file that is named like a lock.
    Lock(PathBuf),
    /// Another file.
    File(PathBuf),
    /// Neither a path nor the name of a run.
    Missing(PathBuf),
}

impl Target {
    /// The meaning of a path that exists.
    fn existing(path: &Path) -> Result<Option<Target>, Problem> {
        if path.as_os_str().is_empty() {
            return Ok(None);
        }
        let Some(found) = if_readable(path, fs::metadata(path))? else { return Ok(None) };
        let path = path.to_owned();
        Ok(Some(match found.is_dir() {
            _ if is_run(&path)? => Target::Run(path),
            true if is_model(&path) => Target::Model(path),
            true => Target::Folder(path),
            false if is_lock(&path) => Target::Lock(path),
            false => Target::File(path),
        }))
    }

    /// Its path; of a missing one, the word.
    pub fn into_path(self) -> PathBuf {
        match self {
            Target::Run(path)
            | Target::Model(path)
            | Target::Folder(path)
            | Target::Lock(path)
            | Target::File(path)
            | Target::Missing(path) => path,
        }
    }

    /// The path of a run's lock, or its own.
    pub fn into_lock(self) -> PathBuf {
        match self {
            Target::Run(folder) => Paths::new(folder).lock(),
            other @ (Target::Model(_)
            | Target::Folder(_)
            | Target::Lock(_)
            | Target::File(_)
            | Target::Missing(_)) => other.into_path(),
        }
    }
}

/// Fewest digits of a lock's id that name its run: canonc prints 12.
const ID_DIGITS: usize = 8;

/// Resolves a path, a name under `runs`, the name of a comparison's run wherever it was trained, or the first digits of a
/// lock's id.
pub fn resolve(word: &Path) -> Result<Target, Failure> {
    resolve_under(Path::new(RUNS), word)
}

/// Like [`resolve`], with runs in another folder.
pub fn resolve_under(root: &Path, word: &Path) -> Result<Target, Failure> {
    for path in [word, &root.join(word)] {
        if let Some(target) = Target::existing(path)? {
            return Ok(target);
        }
    }
    let missing = || Target::Missing(word.to_owned());
    let Some(names) = names(word.strip_prefix(root).unwrap_or(word)) else { return Ok(missing()) };
    let mut runs = by_name(root, &names)?;
    if let ([id], true) = (names.as_slice(), runs.is_empty()) {
        runs = by_id(root, id)?;
    }
    let mut distinct: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for run in runs {
        distinct.entry(run.canonicalize().unwrap_or_else(|_| run.clone())).or_insert(run);
    }
    let runs: Vec<PathBuf> = distinct.into_values().collect();
    match runs.as_slice() {
        [] => Ok(missing()),
        [one] => Ok(Target::Run(one.clone())),
        several => Err(refuse::several(word, several)),
    }
}

/// The path that a word means; the word itself if it means nothing.
pub fn path(word: &Path) -> Result<PathBuf, Failure> {
    resolve(word).map(Target::into_path)
}

/// The path of the lock that a word means: that of a run if it names one.
pub fn lock_path(word: &Path) -> Result<PathBuf, Failure> {
    resolve(word).map(Target::into_lock)
}

/// The parts of a name: a run, or a comparison and a run of it.
fn names(word: &Path) -> Option<Vec<&str>> {
    let names = word.components().map(|component| match component {
        Component::Normal(part) => part.to_str().filter(|part| check_name(part).is_ok()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => {
            None
        }
    });
    let names = names.collect::<Option<Vec<&str>>>();
    names.filter(|names| matches!(names.len(), 1 | 2))
}

/// Runs of that name, and finished runs of locks of that name: an arm that one comparison trained serves all others.
fn by_name(root: &Path, names: &[&str]) -> Result<Vec<PathBuf>, Problem> {
    let (mut runs, mut experiments): (Vec<PathBuf>, Vec<Experiment>) = (Vec::new(), Vec::new());
    let mut add = |path: PathBuf| {
        match lock_at(&path)? {
            Some(Lock::Experiment(experiment)) => experiments.push(experiment),
            Some(Lock::Comparison(comparison)) => {
                let runs = comparison.runs().into_iter().map(|run| &run.experiment);
                let named = runs.filter(|run| names.last() == Some(&run.name.as_str()));
                experiments.extend(named.cloned());
            }
            Some(Lock::Arch(_)) | None => {}
        }
        Ok::<(), Problem>(())
    };
    let lock = |name: &str| format!("{name}.lock");
    match names {
        [name] => {
            for folder in folders(root)? {
                let run = folder.join(name);
                if is_run(&run)? {
                    runs.push(run);
                } else {
                    add(folder.join(lock(name)))?;
                }
            }
            add(Path::new(LOCKFILES).join(lock(name)))?;
        }
        [comparison, name] => {
            add(root.join(comparison).join(lock(name)))?;
            add(Path::new(LOCKFILES).join(lock(comparison)))?;
        }
        _ => {}
    }
    if runs.is_empty() && !experiments.is_empty() {
        let finished = FinishedRuns::under(root);
        for experiment in &experiments {
            runs.extend(finished.of(experiment)?);
        }
    }
    Ok(runs)
}

/// Runs of the lock with an id that starts with these digits. Includes unfinished runs.
fn by_id(root: &Path, id: &str) -> Result<Vec<PathBuf>, Problem> {
    let is_id = id.len() >= ID_DIGITS && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !is_id {
        return Ok(Vec::new());
    }
    let mut runs = Vec::new();
    for folder in folders(root)? {
        let inside = folders(&folder)?;
        for run in std::iter::once(folder).chain(inside) {
            if id_of_run(&Paths::new(&run))?.is_some_and(|lock| lock.starts_with(id)) {
                runs.push(run);
            }
        }
    }
    Ok(runs)
}

/// The id of a run's lock, from its attestation if it is finished: that is read faster.
fn id_of_run(run: &Paths) -> Result<Option<String>, Problem> {
    Ok(match attestation_of_any(run)? {
        Some(attestation) => Some(attestation.lock.to_string()),
        None => lock_at(&run.lock())?.map(|lock| lock.id().to_string()),
    })
}

/// Refuses a list that names a run or a file twice, under one name or two.
pub fn refuse_repeated(words: &[PathBuf]) -> Result<(), Failure> {
    let mut known: BTreeMap<PathBuf, &Path> = BTreeMap::new();
    for word in words {
        let path = lock_path(word)?;
        // The reader of a missing file reports it.
        let real = path.canonicalize().unwrap_or(path);
        if let Some(before) = known.insert(real, word) {
            return Err(refuse::repeated(before, word));
        }
    }
    Ok(())
}

/// The lock's file name in a run's folder.
const LOCK_OF_RUN: &str = "lock";

/// Whether a path has a lock's file name.
pub fn is_lock(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "lock")
        || path.file_name().is_some_and(|name| name == LOCK_OF_RUN)
}

/// Whether a folder contains a model of another program, or one that canonc exported or imported.
pub fn is_model(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).is_file();
    folder.is_dir() && !has(LOCK_OF_RUN) && model_folder::NAMES.into_iter().any(has)
}

/// The runs in a folder that is not a run itself, by name; `None` without any.
pub fn runs_in(folder: &Path) -> Result<Option<Vec<PathBuf>>, Problem> {
    if is_run(folder)? {
        return Ok(None);
    }
    let mut runs = Vec::new();
    for path in paths_in(folder)? {
        if is_run(&path)? {
            runs.push(path);
        }
    }
    Ok((!runs.is_empty()).then_some(runs))
}

/// Whether a folder has a run's lock.
fn is_run(folder: &Path) -> Result<bool, Problem> {
    let lock = Paths::new(folder).lock();
    Ok(if_readable(&lock, fs::metadata(&lock))?.is_some_and(|lock| lock.is_file()))
}

/// The lock at a path, if there is one for us to read.
pub fn lock_at(path: &Path) -> Result<Option<Lock>, Problem> {
    let text = if_readable(path, disk::read_text(path, disk::SMALL))?;
    Ok(text.and_then(|text| lock_from_text(&shown(path), &text).ok()))
}

/// The lock of a run's folder with its text; `None` if it is not one, which `canonc verify` reports.
pub fn experiment_of_run(folder: &Path) -> Result<Option<(Experiment, String)>, Problem> {
    let path = Paths::new(folder).lock();
    let Some(text) = if_there(&path, disk::read_text(&path, disk::SMALL))? else { return Ok(None) };
    Ok(experiment_from_text("lock", &text).ok().map(|experiment| (experiment, text)))
}

/// The lock that a word names, and its text.
pub fn read_lock(word: &Path) -> Result<(Lock, String), Failure> {
    let path = lock_path(word)?;
    let text = read_lock_at(&path)?;
    let lock = lock::read(&shown(&path), &text).map_err(|error| refuse::bad_lock(&path, error))?;
    Ok((lock, text))
}

/// The text of the lock that a word names.
pub fn read_lock_text(word: &Path) -> Result<String, Failure> {
    read_lock_at(&lock_path(word)?)
}

/// The comparison of the lock that a word names.
pub fn read_comparison(word: &Path) -> Result<Comparison, Failure> {
    let name = shown(word);
    let lock = lock_from_text(&name, &read_lock_text(word)?)?;
    lock::comparable(lock)
        .map_err(|error| Failure::bad_input(error.message).help(error.help).at(name))
}

fn read_lock_at(path: &Path) -> Result<String, Failure> {
    refuse::large_source(path)?;
    let bytes = lock_bytes(path).map_err(|error| refuse::no_lock(path, &error))?;
    refuse::source(path, &String::from_utf8_lossy(&bytes))?;
    let text = lock::text_of(&bytes).map_err(|error| refuse::bad_lock(path, error))?;
    Ok(text.to_owned())
}

/// Reads only slightly more than a lock's size limit.
fn lock_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = disk::open(path)?;
    file.take(MAX_LOCK_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a file that may be a lock; `None` without a file.
pub fn text_at(path: &Path) -> Result<Option<String>, Failure> {
    match lock_bytes(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::cannot_read(path, &error)),
    }
}

/// Files in a folder with the given ending, sorted by name; none if there is no such folder.
pub fn files_in(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, Problem> {
    let mut paths = paths_in(folder)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == ending));
    Ok(paths)
}

/// The only experiment lock under `lockfiles`.
pub fn only_experiment() -> Result<PathBuf, Failure> {
    let locks = files_in(Path::new(LOCKFILES), "lock")?;
    let mut experiments = Vec::new();
    for path in &locks {
        if let Some(Lock::Experiment(_)) = lock_at(path)? {
            experiments.push(path.clone());
        }
    }
    match experiments.as_slice() {
        [only] => Ok(only.clone()),
        several => Err(refuse::no_only_experiment(&locks, several)),
    }
}
