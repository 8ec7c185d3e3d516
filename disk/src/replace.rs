//! Writes files that are complete or absent: a file is replaced only by renaming a synced one, and the folder is synced
//! afterwards.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Prefix of the names of unfinished files. Their process may be gone; any writer may delete them.
pub const UNFINISHED: &str = ".unfinished-";

/// Writes `bytes` to `path`, over any file already there. Calls `before_rename` when they are durable under the
/// temporary name. On an error the temporary file is deleted, and the old file is intact.
pub fn replace(
    path: &Path,
    bytes: &[u8],
    before_rename: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let write = |file: &mut File| {
        file.write_all(bytes)?;
        file.sync_all()?;
        before_rename()
    };
    complete(&unfinished(path), path, write)?
}

/// Like [`replace`], for content that `write` writes a part at a time. Processes that replace the same file at the same
/// time do not disturb each other: the last one wins. If `write` fails, the old file is intact.
pub fn replace_with<T, E>(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<T, E>,
) -> io::Result<Result<T, E>> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{UNFINISHED}{}-{number}", std::process::id());
    complete(&path.with_file_name(name), path, write)
}

/// Writes `temporary`, syncs it, and renames it to `path`. Deletes it on an error.
fn complete<T, E>(
    temporary: &Path,
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<T, E>,
) -> io::Result<Result<T, E>> {
    let completed = (|| {
        let mut file = create_anew(temporary)?;
        let written = write(&mut file);
        if written.is_ok() {
            file.sync_all()?;
            fs::rename(temporary, path)?;
            sync_folder(parent(path))?;
        }
        Ok(written)
    })();
    if !matches!(completed, Ok(Ok(_))) {
        // Remove only our own temporary file; the first error is the one to show.
        let _ = fs::remove_file(temporary);
    }
    completed
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
