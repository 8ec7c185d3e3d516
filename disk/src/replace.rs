//! In: bytes and a path in a run's folder. Out: files that are there whole or not at all. Must stay true: nothing
//! is replaced but by rename of a synced file, and the folder is synced after; a failure names the path, what was
//! done to it and what to do, and leaves what was there before.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Prefix of names that are unfinished work of a process that may be gone; any writer may delete them.
pub const UNFINISHED: &str = ".unfinished-";

/// Writes `bytes` to `path`, over any file already there; `before_rename` runs when they are durable under the
/// temporary name.
pub fn replace(
    path: &Path,
    bytes: &[u8],
    before_rename: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let temporary = unfinished(path);
    let written = (|| {
        let mut file = create_anew(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        before_rename()?;
        fs::rename(&temporary, path)?;
        sync_folder(parent(path))
    })();
    if written.is_err() {
        // Only our own temporary file; the first error is the one to show.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// A new file, in the place of what a process that is gone may have left; never what a link there points to.
pub fn create_anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => File::create_new(path),
    }
}

/// The name beside `path` that its content has until it is whole.
pub fn unfinished(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(UNFINISHED);
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes renames inside `folder` durable.
#[cfg(unix)]
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Other systems cannot open a folder as a file; their rename is as durable as they make it.
#[cfg(not(unix))]
pub fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Deletes what processes that are gone left unfinished in `folder`.
pub fn sweep(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            let is_folder = entry.file_type()?.is_dir();
            if is_folder {
                fs::remove_dir_all(entry.path())?
            } else {
                fs::remove_file(entry.path())?
            }
        }
    }
    Ok(())
}
