//! Lock files: read with every check, written completely or not at all.
//!
//! In: paths and locks. Out: locks with their text; files. Must stay true: a lock that contradicts
//! its own facts is refused with the line; an equal file is not touched; a file that canonc did not
//! write is never overwritten.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use dsl::limits::MAX_SOURCE_BYTES;
use lab::error::LockError;
use lab::lock::{self, Lock, MAX_LOCK_BYTES};
use lab::recipe::{self, Source};

use crate::fail::{Failure, shown};
use crate::files;

/// Most locks that are listed.
const SHOWN: usize = 12;

/// The lock's file name in a run's folder.
const OF_A_RUN: &str = "lock";

/// Whether a path has a lock's file name.
pub fn is_lock(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "lock")
        || path.file_name().is_some_and(|name| name == OF_A_RUN)
}

/// A lock and the text it was read from. A run's name is as good as the path of its lock.
pub fn read(path: &Path) -> Result<(Lock, String), Failure> {
    let path = &crate::named::lock(path)?;
    refuse_large_source(path)?;
    let bytes = bytes(path).map_err(|error| unreadable(path, &error))?;
    let name = shown(path);
    refuse_source(path, &String::from_utf8_lossy(&bytes))?;
    let lock = lock::read_bytes(&name, &bytes).map_err(|error| refused(path, error))?;
    // The reader has already checked that the bytes are text.
    Ok((lock, String::from_utf8(bytes).unwrap_or_default()))
}

/// Error for a path that cannot be read as a lock.
pub fn unreadable(path: &Path, error: &io::Error) -> Failure {
    match path.is_dir() {
        true if crate::runs::holds_runs(path) => crate::runs::not_a_run(path),
        true => {
            let failure = Failure::bad_input(format!("`{}` is a folder, not a lock", shown(path)));
            let folders = [path.to_owned(), path.join(FOLDER)];
            let locks = folders.iter().flat_map(|folder| {
                stems(folder).into_iter().map(|stem| folder.join(format!("{stem}.lock")))
            });
            let first = locks.min_by_key(|path| !is_of_experiment(path));
            failure.help(match first {
                Some(first) => format!("name a lock in it, such as `{}`", shown(&first)),
                None if files::is_foreign(path) => {
                    "it contains a model, but no training; name the lock of a recipe".to_owned()
                }
                None => format!("it contains no lock; `canonc build` writes them into {FOLDER}/"),
            })
        }
        false => missing(path, error),
    }
}

/// The default folder of locks.
pub const FOLDER: &str = "lockfiles";

/// Error for a missing lock, with the one that was probably meant: `demo` is `lockfiles/demo.lock`.
pub fn missing(path: &Path, error: &io::Error) -> Failure {
    let found = path.file_name().and_then(|name| name.to_str());
    let (Some(name), io::ErrorKind::NotFound) = (found, error.kind()) else {
        return files::missing(path, error);
    };
    let known = stems(Path::new(FOLDER));
    let stem = name.strip_suffix(".lock").unwrap_or(name);
    let same = known.iter().map(String::as_str).find(|known| *known == stem);
    let what = match path.extension().and_then(|extension| extension.to_str()) {
        Some("lock") => "lock",
        Some("tsv" | "csv") => "table",
        Some(_) => "file",
        None => "lock or run",
    };
    let failure = || Failure::bad_input(format!("there is no {what} `{}`", shown(path)));
    match same.or_else(|| dsl::suggest(stem, known.iter().map(String::as_str))) {
        Some(near) => failure().help(format!("did you mean `{FOLDER}/{near}.lock`?")),
        None if known.is_empty() => files::missing(path, error)
            .help("`canonc build` makes locks of architectures, recipes and comparisons"),
        None => {
            let listed: Vec<String> =
                known.iter().take(SHOWN).map(|name| format!("{FOLDER}/{name}.lock")).collect();
            let more = if known.len() > SHOWN { ", …" } else { "" };
            failure().help(format!("there are {}{more}", listed.join(", ")))
        }
    }
}

/// Names of the locks in a folder.
fn stems(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut known: Vec<String> = entries
        .filter(|entry| entry.path().is_file())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".lock").map(str::to_owned))
        .collect();
    known.sort();
    known
}

fn is_of_experiment(path: &Path) -> bool {
    let text = disk::read_text(path, disk::SMALL).unwrap_or_default();
    lock::read(&shown(path), &text).is_ok_and(|lock| matches!(lock, Lock::Experiment(_)))
}

/// Refuses a file that is named like a source and is too large for one, before it is read.
pub fn refuse_large_source(path: &Path) -> Result<(), Failure> {
    let source =
        path.extension().is_some_and(|extension| extension == "toml" || extension == "canon");
    let length = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    if !source || length <= MAX_SOURCE_BYTES as u64 {
        return Ok(());
    }
    Err(Failure::bad_input(format!(
        "`{}` has {}, too large for a recipe or an architecture; a lock is needed",
        shown(path),
        dsl::size(length)
    ))
    .help(format!("name a lock: `canonc build` writes them into {FOLDER}/")))
}

/// Refuses a source file given in place of a lock, and names the next command.
pub fn refuse_source(path: &Path, text: &str) -> Result<(), Failure> {
    let (name, stem) = (shown(path), path.file_stem().unwrap_or_default().to_string_lossy());
    let lock = format!("{FOLDER}/{stem}.lock");
    let (what, then) = match path.extension().and_then(|extension| extension.to_str()) {
        Some("index") => {
            let failure =
                Failure::bad_input(format!("`{name}` is prepared documents, but a lock is needed"));
            return Err(failure.help(format!(
                "`canonc data about {name}` describes them; name a lock that reads them"
            )));
        }
        Some("canon") => (
            "an architecture",
            "has the arch alone; to train it, name the lock of a recipe that uses it",
        ),
        Some("toml") => match recipe::source(text) {
            Source::Recipe => ("a recipe", "run"),
            Source::Comparison => ("a comparison file", "compare"),
        },
        Some(_) | None => return Ok(()),
    };
    let failure = Failure::bad_input(format!("`{name}` is {what}, but a lock is needed"));
    let build = format!("`canonc build {name}` makes its lock");
    Err(failure.help(match then {
        "run" => format!("{build}; then `canonc run --lock {lock}`"),
        "compare" => format!("{build}; then `canonc compare {lock}`"),
        other => format!("{build}, {lock}, which {other}"),
    }))
}

/// Reads only slightly more than a lock's size limit.
fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = disk::open(path)?;
    file.take(MAX_LOCK_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The current text at a path; `None` without a file.
pub fn standing(path: &Path) -> Result<Option<String>, Failure> {
    match bytes(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::cannot_read(path, &error)),
    }
}

/// Error for a lock that cannot be used, with its line.
pub fn refused(path: &Path, error: LockError) -> Failure {
    let LockError { code, message, line, help } = error;
    let help = match path.parent().filter(|_| code == "lock-version" && path.ends_with("lock")) {
        Some(folder) => records::run::of_another_version(folder),
        None => help,
    };
    let place = line.map_or_else(|| shown(path), |line| format!("{}:{line}", shown(path)));
    Failure::bad_input(message).at(place).help(help)
}
