//! In: bytes and a path in a run's folder. Out: files that are complete or absent. Must stay true: a file is replaced
//! only by renaming a synced file, and the folder is synced afterwards; an error names the path, the failed operation
//! and a remedy, and the old file stays intact.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Prefix of the names of unfinished files. Their process may be gone; any writer may delete them.
pub const UNFINISHED: &str = ".unfinished-";

/// Writes `bytes` to `path`, over any file already there. Calls `before_rename` when they are durable under the
/// temporary name. On an error the temporary file is deleted, and the old file is intact.
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
        // Remove only our own temporary file; the first error is the one to show.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Creates a new file, replacing a leftover of an earlier process. Never follows a link.
pub fn create_anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => File::create_new(path),
    }
}

/// The temporary name, in the same folder, for the content of `path` until it is complete.
pub fn unfinished(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(UNFINISHED);
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

/// The folder of a path; `.` for a bare name.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes renames inside `folder` durable.
#[cfg(unix)]
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Does nothing: systems other than Unix cannot open a folder as a file, and durability of renames is up to them.
#[cfg(not(unix))]
pub fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Deletes unfinished files of earlier processes in `folder`.
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
