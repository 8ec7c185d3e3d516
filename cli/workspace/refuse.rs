//! What is said of a word that does not mean what a command needs: one text for each case.

use std::path::{Path, PathBuf};
use std::{fs, io};

use dsl::limits::MAX_SOURCE_BYTES;
use lab::error::LockError;
use lab::lock::{self, Lock};
use lab::recipe::{self, FileKind};
use records::run::Paths;

use super::{ARCHS, LOCKFILES, RUNS, is_model, lock_at, runs_in};
use crate::extensions::models;
use crate::fail::{Failure, shown};
use crate::files::{self, canon_files};

/// Most runs that are listed.
const LISTED_RUNS: usize = 8;
/// Most locks that are listed.
const LISTED_LOCKS: usize = 12;
/// Most locks that are listed as commands.
const LISTED_COMMANDS: usize = 5;

fn list(runs: &[PathBuf]) -> String {
    let more = if runs.len() > LISTED_RUNS { ", …" } else { "" };
    let names: Vec<String> =
        runs.iter().take(LISTED_RUNS).map(|run| format!("`{}`", shown(run))).collect();
    format!("{}{more}", names.join(", "))
}

/// A word that names several runs.
pub(super) fn several(word: &Path, runs: &[PathBuf]) -> Failure {
    let count = dsl::counted(runs.len(), "run");
    Failure::bad_input(format!("`{}` names {count}", shown(word)))
        .help(format!("name one of these folders: {}", list(runs)))
}

/// A word that names what an earlier word named.
pub(super) fn repeated(before: &Path, word: &Path) -> Failure {
    let message = match before == word {
        true => format!("`{}` is given twice", shown(word)),
        false => format!("`{}` and `{}` are the same", shown(before), shown(word)),
    };
    Failure::bad_input(message).help("name it once")
}

/// A folder that is not one run: it holds several, or none.
pub fn not_a_run(folder: &Path) -> Failure {
    let name = shown(folder);
    let several = match runs_in(folder) {
        Ok(several) => several,
        Err(problem) => return problem.into(),
    };
    match several.as_deref() {
        None => Failure::bad_input(format!("`{name}` is not a run's folder: it has no lock"))
            .help(format!("name a folder written by `canonc run`, such as {RUNS}/NAME")),
        Some(several) => {
            let count = dsl::counted(several.len(), "run");
            Failure::bad_input(format!("`{name}` is not a run, but contains {count}"))
                .help(format!("name one: {}", list(several)))
        }
    }
}

/// A path that cannot be read as a lock.
pub fn no_lock(path: &Path, error: &io::Error) -> Failure {
    if !path.is_dir() {
        return missing_lock(path, error);
    }
    if !matches!(runs_in(path), Ok(None)) {
        return not_a_run(path);
    }
    let failure = Failure::bad_input(format!("`{}` is a folder, not a lock", shown(path)));
    let folders = [path.to_owned(), path.join(LOCKFILES)];
    let locks = folders.iter().flat_map(|folder| {
        stems(folder).into_iter().map(|stem| folder.join(format!("{stem}.lock")))
    });
    let is_of_experiment = |path: &PathBuf| matches!(lock_at(path), Ok(Some(Lock::Experiment(_))));
    failure.help(match locks.min_by_key(|path| !is_of_experiment(path)) {
        Some(first) => format!("name a lock in it, such as `{}`", shown(&first)),
        None if is_model(path) => {
            "it contains a model, but no training; name the lock of a recipe".to_owned()
        }
        None => format!("it contains no lock; `canonc build` writes them into {LOCKFILES}/"),
    })
}

/// A missing lock, with the one that was probably meant: `demo` is `lockfiles/demo.lock`. The name of an arch alone is
/// refused as such: its lock trains nothing.
pub fn missing_lock(path: &Path, error: &io::Error) -> Failure {
    let name = path.file_name().and_then(|name| name.to_str());
    let (Some(name), io::ErrorKind::NotFound) = (name, error.kind()) else {
        return files::missing(path, error);
    };
    let known = stems(Path::new(LOCKFILES));
    let stem = name.strip_suffix(".lock").unwrap_or(name);
    let same = known.iter().map(String::as_str).find(|known| *known == stem);
    let what = match path.extension().and_then(|extension| extension.to_str()) {
        Some("lock") => "lock",
        Some("tsv" | "csv") => "table",
        Some(_) => "file",
        None => "lock or run",
    };
    let arch = Path::new(ARCHS).join(format!("{stem}.canon"));
    let trains =
        same.and_then(|stem| lock_at(&Path::new(LOCKFILES).join(format!("{stem}.lock"))).ok()?);
    let trains = trains.is_some_and(|lock| !matches!(lock, Lock::Arch(_)));
    let with_arch = |failure: Failure| match !trains && arch.is_file() {
        true => failure.help(format!(
            "`{}` is an arch; to train it, name the lock of a recipe that uses it",
            shown(&arch)
        )),
        false => failure,
    };
    let failure = || with_arch(Failure::bad_input(format!("there is no {what} `{}`", shown(path))));
    match same.or_else(|| dsl::suggest(stem, known.iter().map(String::as_str))) {
        Some(near) => failure().help(format!("did you mean `{LOCKFILES}/{near}.lock`?")),
        None if known.is_empty() => with_arch(files::missing(path, error))
            .help("`canonc build` makes locks of architectures, recipes and comparisons"),
        None => {
            let names = known.iter().take(LISTED_LOCKS);
            let listed: Vec<String> =
                names.map(|name| format!("{LOCKFILES}/{name}.lock")).collect();
            let more = if known.len() > LISTED_LOCKS { ", …" } else { "" };
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

/// Refuses a file that is named like a source and is too large for one, before it is read.
pub(super) fn large_source(path: &Path) -> Result<(), Failure> {
    let is_source =
        path.extension().is_some_and(|extension| extension == "toml" || extension == "canon");
    let length = fs::metadata(path).map_or(0, |metadata| metadata.len());
    if !is_source || length <= MAX_SOURCE_BYTES as u64 {
        return Ok(());
    }
    Err(Failure::bad_input(format!(
        "`{}` has {}, too large for a recipe or an architecture; a lock is needed",
        shown(path),
        dsl::size(length)
    ))
    .help(format!("name a lock: `canonc build` writes them into {LOCKFILES}/")))
}

/// Refuses a source file given in place of a lock, and names the next command.
pub(super) fn source(path: &Path, text: &str) -> Result<(), Failure> {
    let (name, stem) = (shown(path), path.file_stem().unwrap_or_default().to_string_lossy());
    let lock = format!("{LOCKFILES}/{stem}.lock");
    let build = format!("`canonc build {name}` makes its lock");
    let (what, help) = match path.extension().and_then(|extension| extension.to_str()) {
        Some("index") => (
            "prepared documents",
            format!("`canonc data about {name}` describes them; name a lock that reads them"),
        ),
        Some("canon") => (
            "an architecture",
            format!(
                "{build}, {lock}, which has the arch alone; to train it, name the lock of a recipe that uses it"
            ),
        ),
        Some("toml") => match recipe::file_kind(text) {
            FileKind::Recipe => ("a recipe", format!("{build}; then `canonc run --lock {lock}`")),
            FileKind::Comparison => {
                ("a comparison file", format!("{build}; then `canonc compare {lock}`"))
            }
        },
        Some(_) | None => return Ok(()),
    };
    Err(Failure::bad_input(format!("`{name}` is {what}, but a lock is needed")).help(help))
}

/// A lock that cannot be used, with its line.
pub fn bad_lock(path: &Path, error: LockError) -> Failure {
    let LockError { code, message, line, help } = error;
    let help = match path.parent().filter(|_| code == "lock-version" && path.ends_with("lock")) {
        Some(folder) => records::run::of_another_version(folder),
        None => help,
    };
    let place = line.map_or_else(|| shown(path), |line| format!("{}:{line}", shown(path)));
    Failure::bad_input(message).at(place).help(help)
}

/// No lock is named, and none or several could be meant. `locks` are all that are there.
pub(super) fn no_only_experiment(locks: &[PathBuf], experiments: &[PathBuf]) -> Failure {
    let is_old =
        |path: &PathBuf| disk::read_text(path, disk::SMALL).is_ok_and(|text| lock::is_older(&text));
    if !experiments.is_empty() {
        let mut failure = Failure::bad_input(format!(
            "no lock is named, but `{LOCKFILES}` has {} experiment locks",
            experiments.len()
        ));
        for path in experiments.iter().take(LISTED_COMMANDS) {
            failure = failure.help(format!("canonc run --lock {}", shown(path)));
        }
        let more = experiments.len().saturating_sub(LISTED_COMMANDS);
        return if more > 0 { failure.help(format!("or one of {more} more")) } else { failure };
    }
    if locks.iter().any(is_old) {
        let message = format!("the locks in `{LOCKFILES}` were written by an older canonc");
        return Failure::bad_input(message).help("`canonc build` writes them again");
    }
    Failure::bad_input(format!("`{LOCKFILES}` contains no experiment lock")).help(
        "`canonc build recipes/NAME.toml` writes one; `canonc new DIR` writes an example recipe",
    )
}

/// Refuses a file that is named like another kind of file than a `.canon` file.
pub fn other_than_canon(path: &Path) -> Result<(), Failure> {
    let name = shown(path);
    let extension = path.extension().and_then(|end| end.to_str()).filter(|_| path.is_file());
    let (what, help) = match extension {
        Some("toml") => {
            ("a recipe", format!("name its arch, or the lock that `canonc build {name}` makes"))
        }
        Some("json") => ("JSON", "name the folder of a model, not its configuration".to_owned()),
        Some("safetensors" | "bin" | "pt" | "pth" | "ckpt") => (
            "a file of weights",
            format!("name an arch, which `canonc forward` and others take with `--weights {name}`"),
        ),
        Some("index" | "jsonl") => ("data", "name an arch, a lock or a run".to_owned()),
        Some(_) | None => return Ok(()),
    };
    Err(Failure::bad_input(format!("`{name}` is {what}, not a .canon file")).help(help))
}

/// A path that cannot be read as a `.canon` file.
pub fn no_canon(path: &Path, error: &io::Error) -> Failure {
    if !path.is_dir() {
        return files::missing(path, error);
    }
    if !matches!(runs_in(path), Ok(None)) {
        return not_a_run(path);
    }
    let failure = Failure::bad_input(format!("`{}` is a folder, not a .canon file", shown(path)));
    let mut above = path.ancestors().skip(1).take(2);
    if let Some(run) = above.find(|folder| Paths::new(*folder).lock().is_file()) {
        let run = if run.as_os_str().is_empty() { Path::new(".") } else { run };
        return failure.help(format!("it belongs to the run `{}`: name that", shown(run)));
    }
    let first = canon_files(path).ok().and_then(|files| files.into_iter().next());
    match first {
        Some(first) => failure.help(format!("name a file in it, such as `{}`", shown(&first))),
        None if models().has_weights(path) => failure.help(format!(
            "it has weights, but no config.json, params.json, arch.canon or import.toml says of which model; \
             `canonc forward` and others take an arch with `--weights {}`",
            shown(path)
        )),
        None => failure.help("it contains no .canon file; `canonc new DIR` writes an example"),
    }
}
