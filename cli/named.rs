//! The meaning of a run's or a lock's name on the command line: one function for every command.
//!
//! In: a word as typed, and the folder of runs. Out: the folder of a run, another path that exists, or nothing. Must
//! stay true: an existing path comes before a name; a word that fits several runs is refused, with the list of them.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use lab::experiment::{Experiment, check_name};
use lab::lock::Lock;
use records::attest::Attestation;
use records::run::{Paths, read_lock};

use crate::fail::{Failure, shown};
use crate::found::{Found, folders};
use crate::{locks, runs};

/// The meaning of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// The folder of one run.
    Run(PathBuf),
    /// A file, or a folder that is not a run.
    Path(PathBuf),
    Nothing,
}

/// Fewest digits of a lock's id that name its run: canonc prints 12.
const ID_DIGITS: usize = 8;
/// Most runs that are listed.
const LISTED: usize = 8;

/// Resolves a path, a name under the folder of runs, the name of a comparison's run wherever it was trained, or the
/// first digits of a lock's id.
pub fn named(root: &Path, word: &Path) -> Result<Named, Failure> {
    if let Some(found) = there(word).or_else(|| there(&root.join(word))) {
        return Ok(found);
    }
    let Some(names) = names(word.strip_prefix(root).unwrap_or(word)) else {
        return Ok(Named::Nothing);
    };
    let mut runs = by_name(root, &names);
    if let ([id], true) = (names.as_slice(), runs.is_empty()) {
        runs = by_id(root, id);
    }
    let mut distinct: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for run in runs {
        distinct.entry(run.canonicalize().unwrap_or_else(|_| run.clone())).or_insert(run);
    }
    let found: Vec<PathBuf> = distinct.into_values().collect();
    match found.as_slice() {
        [] => Ok(Named::Nothing),
        [one] => Ok(Named::Run(one.clone())),
        several => {
            let count = dsl::counted(several.len(), "run");
            let more = if several.len() > LISTED { ", …" } else { "" };
            let list: Vec<String> =
                several.iter().take(LISTED).map(|run| format!("`{}`", shown(run))).collect();
            Err(Failure::bad_input(format!("`{}` names {count}", shown(word)))
                .help(format!("name one of these folders: {}{more}", list.join(", "))))
        }
    }
}

/// A path that exists.
fn there(path: &Path) -> Option<Named> {
    if path.as_os_str().is_empty() || !path.exists() {
        return None;
    }
    Some(match Paths::new(path).lock().is_file() {
        true => Named::Run(path.to_owned()),
        false => Named::Path(path.to_owned()),
    })
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
fn by_name(root: &Path, names: &[&str]) -> Vec<PathBuf> {
    let (mut runs, mut experiments): (Vec<PathBuf>, Vec<Experiment>) = (Vec::new(), Vec::new());
    let mut add = |path: PathBuf| {
        let text = disk::read_text(&path, disk::SMALL).ok();
        match text.and_then(|text| read_lock(&shown(&path), &text).ok()) {
            Some(Lock::Experiment(experiment)) => experiments.push(experiment),
            Some(Lock::Comparison(comparison)) => {
                let runs = comparison.runs().into_iter();
                let own = runs
                    .map(|run| &run.experiment)
                    .filter(|own| names.last() == Some(&own.name.as_str()));
                experiments.extend(own.cloned());
            }
            Some(Lock::Arch(_)) | None => {}
        }
    };
    let lock = |name: &str| format!("{name}.lock");
    match names {
        [name] => {
            for folder in folders(root) {
                let run = folder.join(name);
                if Paths::new(&run).lock().is_file() {
                    runs.push(run);
                } else {
                    add(folder.join(lock(name)));
                }
            }
            add(Path::new(locks::FOLDER).join(lock(name)));
        }
        [comparison, name] => {
            add(root.join(comparison).join(lock(name)));
            add(Path::new(locks::FOLDER).join(lock(comparison)));
        }
        _ => {}
    }
    if runs.is_empty() && !experiments.is_empty() {
        let found = Found::under(root);
        runs.extend(experiments.iter().filter_map(|experiment| found.finished(experiment)));
    }
    runs
}

/// Runs of the lock with an id that starts with these digits. Includes unfinished runs.
fn by_id(root: &Path, id: &str) -> Vec<PathBuf> {
    let is_id = id.len() >= ID_DIGITS && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !is_id {
        return Vec::new();
    }
    let places = folders(root).into_iter().flat_map(|folder| {
        let inside = folders(&folder);
        std::iter::once(folder).chain(inside)
    });
    places
        .filter(|run| lock_of(&Paths::new(run)).is_some_and(|lock| lock.starts_with(id)))
        .collect()
}

/// The id of a run's lock, from its attestation if it is finished: that is read faster.
fn lock_of(run: &Paths) -> Option<String> {
    let text = disk::read_text(&run.attestation(), disk::SMALL).ok();
    if let Some(attested) = text.and_then(|text| Attestation::parse(&text).ok()) {
        return Some(attested.lock.to_string());
    }
    let text = disk::read_text(&run.lock(), disk::SMALL).ok()?;
    Some(read_lock("lock", &text).ok()?.id().to_string())
}

/// The path of a run or a lock: the folder of a run, another path, or the word itself if it names nothing.
pub fn run_or_path(word: &Path) -> Result<PathBuf, Failure> {
    Ok(match named(Path::new(runs::FOLDER), word)? {
        Named::Run(path) | Named::Path(path) => path,
        Named::Nothing => word.to_owned(),
    })
}

/// The path of a lock: that of a run if the word names one.
pub fn lock(word: &Path) -> Result<PathBuf, Failure> {
    Ok(match named(Path::new(runs::FOLDER), word)? {
        Named::Run(folder) => Paths::new(folder).lock(),
        Named::Path(path) => path,
        Named::Nothing => word.to_owned(),
    })
}

/// Refuses a list that names a run or a file twice, under one name or two.
pub fn once(words: &[PathBuf]) -> Result<(), Failure> {
    let mut known: BTreeMap<PathBuf, &Path> = BTreeMap::new();
    for word in words {
        let path = lock(word)?;
        // The reader of a missing file reports it.
        let real = path.canonicalize().unwrap_or(path);
        if let Some(before) = known.insert(real, word) {
            let message = match before == word {
                true => format!("`{}` is given twice", shown(word)),
                false => format!("`{}` and `{}` are the same", shown(before), shown(word)),
            };
            return Err(Failure::bad_input(message).help("name it once"));
        }
    }
    Ok(())
}
