//! Writes files that are complete or absent: a file is replaced only by renaming a synced one, and the folder is synced
//! afterwards.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use dsl::Problem;

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
    sweep_abandoned(parent(path));
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
        let mut file = held(|| create_anew(temporary).map(Some), temporary)?;
        let written = write(&mut file);
        if written.is_ok() {
            file.sync_all()?;
            rename_synced(temporary, path)?;
        }
        Ok(written)
    })();
    if !matches!(completed, Ok(Ok(_))) {
        // Remove only our own temporary file; the first error is the one to show.
        let _ = fs::remove_file(temporary);
    }
    completed
}

/// Gives a synced file or folder its name, durably. If only the last step fails, the error is one of [`not_durable`].
pub fn rename_synced(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_folder(parent(to)).map_err(|error| io::Error::new(error.kind(), NotDurable(error)))
}

/// What was written is there, but may be gone after a power failure.
#[derive(Debug)]
struct NotDurable(io::Error);

impl fmt::Display for NotDurable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for NotDurable {}

/// The problem of an output that was written whole and whose folder could not be synced; `None` for any other error.
pub fn not_durable(error: &io::Error, name: impl fmt::Display) -> Option<Problem> {
    let NotDurable(error) = error.get_ref()?.downcast_ref()?;
    Some(Problem::machine(
        format!(
            "{name} is complete, but its folder could not be synced ({error}): it may be lost if power fails"
        ),
        "check the disk, and copy it or make it again elsewhere",
    ))
}

/// Makes a folder for an output until it is complete, and holds it while the handle is there. Systems other than Unix
/// cannot open a folder as a file.
pub fn create_folder_held(folder: &Path) -> io::Result<Option<File>> {
    if cfg!(not(unix)) {
        return fs::create_dir(folder).map(|()| None);
    }
    let create = || {
        fs::create_dir(folder)?;
        match File::open(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    };
    held(create, folder).map(Some)
}

/// Creates and locks a temporary file or folder, so that [`sweep_abandoned`] leaves it. Another process may take it away
/// before it is locked.
fn held(create: impl Fn() -> io::Result<Option<File>>, path: &Path) -> io::Result<File> {
    loop {
        let Some(file) = create()? else { continue };
        // Where nothing can be locked, nothing is swept.
        let _ = file.lock();
        if path.try_exists()? {
            return Ok(file);
        }
    }
}

/// Deletes what ended processes left of [`replace_with`] and in [`unfinished_folder`]s in `folder`. What a process holds
/// stays, and what cannot be locked or deleted.
pub fn sweep_abandoned(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_string_lossy();
        let (is_file, is_folder) =
            (kind.is_file() && is_temporary(&name), kind.is_dir() && is_partial(&name));
        if !is_file && !is_folder {
            continue;
        }
        let Ok(file) = File::open(&path) else { continue };
        if file.try_lock().is_ok() {
            // It may be another user's, and nothing is wrong if it stays.
            let _ = if is_file { fs::remove_file(&path) } else { fs::remove_dir_all(&path) };
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether this is a name of [`replace_with`].
fn is_temporary(name: &str) -> bool {
    let parts = name.strip_prefix(UNFINISHED).and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(process, number)| is_number(process) && is_number(number))
}

/// Whether this is a name of [`unfinished_folder`].
fn is_partial(name: &str) -> bool {
    let inner = name.strip_prefix(UNFINISHED).and_then(|rest| rest.rsplit_once('.'));
    inner.is_some_and(|(_, process)| is_number(process))
}

/// The temporary name, in the same folder, for a folder that this process writes.
pub fn unfinished_folder(out: &Path) -> PathBuf {
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    parent(out).join(format!("{UNFINISHED}{name}.{}", std::process::id()))
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
