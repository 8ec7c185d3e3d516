//! The logs that a process appends to, watched: it stops if another program removes, replaces or changes one meanwhile.

use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};

use dsl::Problem;

use super::{cannot_read, cannot_write, parent, sync_folder};

/// The logs that this process has opened, by path.
#[derive(Debug, Default)]
pub(super) struct Watched {
    logs: BTreeMap<PathBuf, WatchedLog>,
}

/// A log with the content that this process knows.
#[derive(Debug)]
struct WatchedLog {
    file: File,
    content: blake3::Hasher,
    bytes: u64,
}

impl Watched {
    /// Opens a log, or begins it, durably.
    pub(super) fn open(&mut self, path: &Path, synced: bool) -> Result<(), Problem> {
        let write = |error: io::Error| cannot_write(path, &error);
        let log = WatchedLog::open(path, synced).map_err(write)?;
        sync_folder(parent(path)).map_err(write)?;
        self.logs.insert(path.to_owned(), log);
        Ok(())
    }

    /// Adds a line.
    pub(super) fn append(&mut self, path: &Path, line: &str, synced: bool) -> Result<(), Problem> {
        if !self.logs.contains_key(path) {
            self.open(path, synced)?;
        }
        let Some(log) = self.logs.get_mut(path) else { return Ok(()) };
        log.check(path)?;
        let text = format!("{line}\n");
        log.file
            .write_all(text.as_bytes())
            .and_then(|()| if synced { log.file.sync_all() } else { Ok(()) })
            .map_err(|error| cannot_write(path, &error))?;
        log.content.update(text.as_bytes());
        log.bytes += text.len() as u64;
        Ok(())
    }

    /// Refuses to go on if a log is missing, another file or of another length; with `contents`, also if its content differs.
    pub(super) fn check(&self, contents: bool) -> Result<(), Problem> {
        for (path, log) in &self.logs {
            log.check(path)?;
            if !contents {
                continue;
            }
            let mut file = disk::open(path).map_err(|error| cannot_read(path, &error))?;
            let mut content = blake3::Hasher::new();
            io::copy(&mut file, &mut content).map_err(|error| cannot_read(path, &error))?;
            if content.finalize() != log.content.finalize() {
                return Err(changed(path, "its lines are others than this process read and wrote"));
            }
        }
        Ok(())
    }
}

/// No line of these logs is as long.
const LONGEST: u64 = 64 << 20;

/// Whether a line of a log was written whole. A power cut can leave zeros in the place of what was not on the disk yet.
fn is_whole(line: &[u8]) -> bool {
    line.ends_with(b"\n") && !line.contains(&0)
}

impl WatchedLog {
    /// Opens a log and cuts it where a process or the machine ended while it was written: at a last line without its end,
    /// or at zeros in the place of lines that a power cut took, with all that follows them. Of a log that is synced line by
    /// line a power cut takes the last one only.
    fn open(path: &Path, synced: bool) -> io::Result<WatchedLog> {
        let mut file = OpenOptions::new().append(true).read(true).create(true).open(path)?;
        let mut lines = BufReader::new(&mut file);
        let (mut content, mut bytes, mut line) = (blake3::Hasher::new(), 0, Vec::new());
        let is_cut = loop {
            line.clear();
            if lines.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
                break false;
            }
            if !is_whole(&line) && (!synced || lines.fill_buf()?.is_empty()) {
                break true;
            }
            content.update(&line);
            bytes += line.len() as u64;
        };
        if is_cut {
            file.set_len(bytes)?;
            file.sync_all()?;
        }
        Ok(WatchedLog { file, content, bytes })
    }

    fn check(&self, path: &Path) -> Result<(), Problem> {
        in_place(&self.file, path)?;
        match self.file.metadata().map(|metadata| metadata.len()) {
            Ok(bytes) if bytes == self.bytes => Ok(()),
            Ok(bytes) => {
                let wrote = dsl::counted(self.bytes, "byte");
                Err(changed(
                    path,
                    &format!("it has {}, but should have {wrote}", dsl::counted(bytes, "byte")),
                ))
            }
            Err(error) => Err(cannot_write(path, &error)),
        }
    }
}

/// The folder at a path, or the link to one.
#[derive(Debug)]
pub(super) struct FolderPlace(Metadata);

impl FolderPlace {
    pub(super) fn of(folder: &Path) -> io::Result<FolderPlace> {
        std::fs::symlink_metadata(folder).map(FolderPlace)
    }

    /// Refuses to go on if another folder or a link is in its place: what is written would be elsewhere.
    pub(super) fn check(&self, folder: &Path) -> Result<(), Problem> {
        still_there(Some(&self.0), folder, "another folder or a link is in its place")
    }
}

/// Refuses to go on if an open file is no longer the one at its path.
pub(crate) fn in_place(file: &File, path: &Path) -> Result<(), Problem> {
    still_there(file.metadata().ok().as_ref(), path, "another file is in its place")
}

/// Refuses to go on if a path is no longer that of what was opened.
fn still_there(opened: Option<&Metadata>, path: &Path, other: &str) -> Result<(), Problem> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(changed(path, "it is missing"))
        }
        Err(error) => Err(cannot_write(path, &error)),
        Ok(on_disk) if opened.is_some_and(|opened| !is_same(opened, &on_disk)) => {
            Err(changed(path, other))
        }
        Ok(_) => Ok(()),
    }
}

#[cfg(unix)]
fn is_same(opened: &Metadata, on_disk: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (opened.dev(), opened.ino()) == (on_disk.dev(), on_disk.ino())
}

#[cfg(not(unix))]
fn is_same(opened: &Metadata, on_disk: &Metadata) -> bool {
    opened.len() == on_disk.len()
}

fn changed(path: &Path, how: &str) -> Problem {
    let folder = parent(path).display();
    Problem::finding(
        format!(
            "{} was changed by another program while this process wrote it: {how}",
            path.display()
        ),
        format!(
            "restore the file and let no other program write to {folder}, then the same command continues from the last \
             checkpoint; or move {folder} away and run the lock again"
        ),
    )
}
