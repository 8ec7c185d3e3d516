//! Errors for files of a run that cannot be read or written, and why a file of a run is refused.

use std::io;
use std::path::{Path, PathBuf};

use compiler::digest::Digest;
use dsl::{Problem, ProblemKind};
use serde_json::Value;

/// The error when `path` could not be written (or made, synced, deleted).
pub fn cannot_write(path: &Path, error: &io::Error) -> Problem {
    if let Some(problem) = disk::not_durable(error, path.display()) {
        return problem;
    }
    if disk::is_wrong_path(error) {
        return wrong_path(path, error);
    }
    let path = path.display();
    let kind = error.kind();
    if matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return Problem::machine(
            format!("the disk is full: {path} was not written"),
            "free some space and repeat the command; the run continues from its last checkpoint",
        );
    }
    if matches!(kind, io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) {
        return Problem::machine(
            format!("{path} cannot be written: {error}"),
            "make the folder writable, or name another one with --dir",
        );
    }
    Problem::machine(
        format!("{path} was not written: {error}"),
        "check that the folder can be created and the disk works, or name another folder with --dir",
    )
}

/// The error for a path of the wrong kind, which another machine would refuse too.
fn wrong_path(path: &Path, error: &io::Error) -> Problem {
    let text = error.to_string();
    let fault = if error.kind() == io::ErrorKind::NotADirectory {
        "a part of the path is not a folder"
    } else if error.kind() == io::ErrorKind::AlreadyExists {
        "a file is in the place of a folder"
    } else {
        text.split(" (os error").next().unwrap_or(&text)
    };
    Problem::input(format!("`{}` cannot be used: {fault}", path.display()), "name another path")
}

/// The error when `path` could not be read.
pub fn cannot_read(path: &Path, error: &io::Error) -> Problem {
    if disk::is_wrong_path(error) {
        return wrong_path(path, error);
    }
    if matches!(error.kind(), std::io::ErrorKind::FileTooLarge | std::io::ErrorKind::InvalidData) {
        return Problem::input(
            format!("{} cannot be used: {error}", path.display()),
            "restore it from a copy; `canonc verify` lists every fault of a run",
        );
    }
    Problem::machine(
        format!("{} cannot be read: {error}", path.display()),
        "check that it exists and is readable, and repeat the command",
    )
}

/// What was read of a file of a run; `None` if there is nothing of that kind. An error if the machine could not read it.
pub fn if_there<T>(path: &Path, read: io::Result<T>) -> Result<Option<T>, Problem> {
    unless(disk::is_unread, path, read)
}

/// The same of a file that nobody named, which may be somebody else's and not for us to read.
pub fn if_readable<T>(path: &Path, read: io::Result<T>) -> Result<Option<T>, Problem> {
    unless(disk::is_of_machine, path, read)
}

fn unless<T>(
    is_failure: fn(&io::Error) -> bool,
    path: &Path,
    read: io::Result<T>,
) -> Result<Option<T>, Problem> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_failure(&error) => Err(cannot_read(path, &error)),
        Err(_) => Ok(None),
    }
}

/// The paths in a folder that nobody named, sorted; none if it is no folder, or not for us to read.
pub fn paths_in(folder: &Path) -> Result<Vec<PathBuf>, Problem> {
    let listed = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths: Vec<PathBuf> = if_readable(folder, listed)?.unwrap_or_default();
    paths.sort();
    Ok(paths)
}

/// The lines of a log of a run, or of a comparison, that are valid JSON, as far as there are any.
pub fn json_lines(path: &Path) -> Result<Vec<Value>, Problem> {
    disk::json_lines(path).map_err(|error| cannot_read(path, &error))
}

/// Why a checkpoint or another file of a run is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It could not be read, which says nothing about its content.
    Unread(Problem),
    /// Its content is wrong, or it is missing; in words.
    Wrong(String),
}

impl Refusal {
    /// The refusal for a file of a run that could not be read.
    pub fn of_io(path: &Path, error: &io::Error) -> Refusal {
        match disk::is_unread(error) {
            true => Refusal::Unread(cannot_read(path, error)),
            false => Refusal::Wrong(error.to_string()),
        }
    }

    /// The same refusal, with these words before what is wrong.
    pub fn about(self, what: &str) -> Refusal {
        match self {
            Refusal::Wrong(why) => Refusal::Wrong(format!("{what}{why}")),
            Refusal::Unread(problem) => Refusal::Unread(problem),
        }
    }

    /// The problem: `wrong` makes it of what is wrong.
    pub fn problem(self, wrong: impl FnOnce(&str) -> Problem) -> Problem {
        match self {
            Refusal::Wrong(why) => wrong(&why),
            Refusal::Unread(problem) => problem,
        }
    }
}

impl From<String> for Refusal {
    fn from(why: String) -> Refusal {
        Refusal::Wrong(why)
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Refusal {
        match problem.kind {
            ProblemKind::Machine => Refusal::Unread(problem),
            ProblemKind::Finding | ProblemKind::Input => Refusal::Wrong(problem.message),
        }
    }
}

/// A BLAKE3 hash as a digest of a lock.
pub fn digest_of(hash: blake3::Hash) -> Digest {
    Digest::parse(&hash.to_hex()).expect("a hash is 64 lower-case hexadecimal digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_read_is_not_wrong() {
        let path = Path::new("checkpoint.toml");
        let of = |error: io::Error| Refusal::of_io(path, &error).about("checkpoint.toml: ");
        // EIO, and no permission to read a file of a run.
        for error in [io::Error::from_raw_os_error(5), io::ErrorKind::PermissionDenied.into()] {
            let text = error.to_string();
            let Refusal::Unread(problem) = of(error) else { panic!("{text}") };
            assert_eq!(problem.kind, ProblemKind::Machine);
            assert!(problem.message.contains(&text), "{problem}");
            assert_eq!(Refusal::from(problem.clone()), Refusal::Unread(problem));
        }
        for kind in [io::ErrorKind::NotFound, io::ErrorKind::InvalidData] {
            let Refusal::Wrong(why) = of(kind.into()) else { panic!("{kind}") };
            assert!(why.starts_with("checkpoint.toml: "), "{why}");
        }
        let finding = Problem::finding("its chain differs", "help");
        assert_eq!(Refusal::from(finding), Refusal::Wrong("its chain differs".to_owned()));
    }
}
