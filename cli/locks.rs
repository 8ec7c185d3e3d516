//! Lock files: read with every check, written whole or not at all.
//!
//! In: paths and locks. Out: locks with their text; files. Must stay true: a lock that differs from what
//! its own facts say is refused with its line; an equal file is not touched; nothing that canonc did not
//! write is written over.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use compiler::lock::{self, Lock, LockError, MAX_LOCK_BYTES};

use crate::fail::{Failure, shown};
use crate::files;

/// A lock and the text it was read from.
pub(crate) fn read(path: &Path) -> Result<(Lock, String), Failure> {
    let bytes = bytes(path).map_err(|error| match path.is_dir() {
        true => Failure::bad_input(format!("`{}` is a folder, not a lock", shown(path)))
            .help("name one of the locks in it"),
        false => files::missing(path, &error),
    })?;
    let name = shown(path);
    let lock = lock::read_bytes(&name, &bytes).map_err(|error| refused(path, error))?;
    // The reader has checked that it is text.
    Ok((lock, String::from_utf8(bytes).unwrap_or_default()))
}

/// Never more than a little over what a lock may have.
fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_LOCK_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text that stands at a path now; `None` where there is nothing.
pub(crate) fn standing(path: &Path) -> Result<Option<String>, Failure> {
    match bytes(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::cannot_read(path, &error)),
    }
}

/// Why a lock cannot be used, at its line.
pub(crate) fn refused(path: &Path, error: LockError) -> Failure {
    let LockError { code: _, message, line, help } = error;
    let place = line.map_or_else(|| shown(path), |line| format!("{}:{line}", shown(path)));
    Failure::bad_input(message).at(place).help(help)
}

/// Puts a lock's text in its place, making the folder if it is not there.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
        fs::create_dir_all(folder).map_err(|error| Failure::cannot_write(folder, &error))?;
    }
    files::replace(path, text)
}
