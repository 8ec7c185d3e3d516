//! The names of a run's checkpoints, and `latest`, which names the newest.

use std::fs;
use std::io;
use std::path::Path;

use dsl::Problem;

use crate::run::{POINTER, cannot_read};

/// Names of the checkpoints in a folder, newest first.
pub fn names(folder: &Path) -> Result<Vec<String>, Problem> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(cannot_read(folder, &error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| cannot_read(folder, &error))?.file_name();
        let name = name.to_string_lossy().into_owned();
        if step_of(&name).is_some() {
            names.push(name);
        }
    }
    // Ten digits each, so names sort like steps.
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

/// The name in `latest`.
pub fn latest(folder: &Path) -> Result<Option<String>, Problem> {
    Ok(match pointer(folder)? {
        Pointer::To(name) => Some(name),
        Pointer::Unreadable(_) | Pointer::None => None,
    })
}

/// Folder name of the checkpoint after that step.
pub fn name_of(step: u64) -> String {
    format!("step-{step:010}")
}

/// The step in a folder's name.
pub fn step_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("step-")?;
    let all = digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all { digits.parse().ok() } else { None }
}

/// The name of a checkpoint that a run refused and did not go on from.
pub fn set_aside(name: &str) -> String {
    format!("{REFUSED}{name}")
}

/// Whether this is such a name.
pub fn was_set_aside(name: &str) -> bool {
    name.strip_prefix(REFUSED).is_some_and(|name| step_of(name).is_some())
}

const REFUSED: &str = "refused-";

/// The content of `latest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pointer {
    /// The name of the newest checkpoint.
    To(String),
    /// Its text is not a checkpoint's name.
    Unreadable(String),
    /// The file does not exist.
    None,
}

/// Reads `latest`.
pub fn pointer(folder: &Path) -> Result<Pointer, Problem> {
    let path = folder.join(POINTER);
    let text = match disk::read(&path, disk::SMALL) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Pointer::None),
        Err(error) => return Err(cannot_read(&path, &error)),
    };
    Ok(match text.strip_suffix('\n').filter(|name| step_of(name).is_some()) {
        Some(name) => Pointer::To(name.to_owned()),
        None => Pointer::Unreadable(text),
    })
}
