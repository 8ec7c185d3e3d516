//! Reads files that other people may have written, within limits, and writes files that are complete or absent.
//!
//! A pipe, a device or a folder is never read, so reads never block or run for ever. Memory is limited by the kind of file,
//! never by sizes that the file claims.
//!
//! A file that fits in memory is read at once ([`read`], [`read_text`]). A larger one is a [`checked::CheckedFile`],
//! which detects bytes that change between two reads:
//!
//! ```
//! use disk::checked::{CheckedFile, ReadBuffer, ReadFault};
//!
//! # fn main() -> std::io::Result<()> {
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("weights");
//! disk::replace(&path, &[7; 300_000], || Ok(()))?;
//! assert_eq!(disk::read(&path, disk::SMALL)?.len(), 300_000);
//! let error = disk::read(&path, 1024).unwrap_err();
//! assert_eq!(error.to_string(), "it has 292.9 KiB; at most 1 KiB are read");
//!
//! let (file, _digest) = CheckedFile::first_read(disk::open_large(&path)?)?;
//! let mut buffer = ReadBuffer::default();
//! std::fs::write(&path, [8; 300_000])?;
//! let read = file.read(100..104, &mut buffer);
//! assert!(matches!(read, Err(ReadFault::Changed { .. })));
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

pub mod checked;
pub mod content;
pub mod json;
mod replace;

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use checked::read_at;
use content::Content;
use dsl::Problem;
pub use replace::{
    UNFINISHED, create_anew, create_folder_held, not_durable, parent, rename_synced, replace,
    replace_with, sweep, sweep_abandoned, sync_folder, unfinished, unfinished_folder,
};

/// Maximum bytes of a lock, an attestation, a manifest, a signature, a list of signers, a key.
pub const SMALL: u64 = 64 << 20;
/// Maximum bytes of a text that grows with its use: questions, prompts, a plan.
pub const TEXT: u64 = 1 << 30;
/// Maximum bytes of one line of a log.
pub const LINE: u64 = 16 << 20;
/// Files of at least this size are checked for holes.
const LARGE: u64 = 1 << 30;
/// Number of positions of a file that are checked for zeros.
const PROBES: u64 = 64;

/// Most names of a folder that are compared with that of a missing file.
const NAMES: usize = 10_000;

/// The file in the same folder with the name most similar to that of a missing one.
pub fn nearest(path: &Path) -> Option<PathBuf> {
    let wanted = path.file_name()?.to_str()?;
    let folder = path.parent()?;
    let entries = std::fs::read_dir(parent(path)).ok()?.take(NAMES);
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    let name = dsl::suggest(wanted, names.iter().map(String::as_str))?;
    Some(folder.join(name))
}

/// Whether an error is due to the path rather than the machine: a file in the place of a folder or the other way round,
/// a pipe, a device, an impossible name, a circle of links.
pub fn is_wrong_path(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidFilename
    ) || cfg!(target_os = "linux") && error.raw_os_error() == Some(TOO_MANY_LINKS)
}

/// Whether an error is the machine's: the file is there, but the disk, the system or a limit kept it from being read or
/// written. It says nothing about the content, and the same call may succeed later.
pub fn is_of_machine(error: &io::Error) -> bool {
    let of_system = error.raw_os_error().is_some() || error.kind() == io::ErrorKind::OutOfMemory;
    of_system
        && !is_wrong_path(error)
        && !matches!(
            error.kind(),
            io::ErrorKind::NotFound
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::FileTooLarge
                | io::ErrorKind::InvalidData
                | io::ErrorKind::UnexpectedEof
        )
}

/// The same for a file that canonc wrote itself, whose missing permission is the machine's, too.
pub fn is_unread(error: &io::Error) -> bool {
    is_of_machine(error) || error.kind() == io::ErrorKind::PermissionDenied
}

/// The problem of a file that somebody names and that could not be read. `help` is for what is the file's or the path's
/// fault.
pub fn cannot_read(
    error: &io::Error,
    message: impl Into<String>,
    help: impl Into<String>,
) -> Problem {
    match is_of_machine(error) {
        true => Problem::machine(message, "check the disk and the machine, and repeat the command"),
        false => Problem::input(message, help),
    }
}

/// Makes a folder and those around it, unless they are there.
pub fn create_folders(folder: &Path) -> io::Result<()> {
    match std::fs::create_dir_all(folder) {
        // It was there already, but the standard library could not look at it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            match std::fs::metadata(folder) {
                Ok(found) if found.is_dir() => Ok(()),
                Err(unread) if is_of_machine(&unread) => Err(unread),
                Ok(_) | Err(_) => Err(error),
            }
        }
        made => made,
    }
}

/// Linux's ELOOP; the standard library's kind for it is unstable.
const TOO_MANY_LINKS: i32 = 40;

/// Opens a file for reading. Refuses folders, pipes and devices with an error. Checks that it is a regular file
/// before opening it, since opening a pipe blocks.
pub fn open(path: &Path) -> io::Result<File> {
    regular(&std::fs::metadata(path)?)?;
    let file = File::open(path)?;
    // The file may have been replaced since the check.
    regular(&file.metadata()?)?;
    Ok(file)
}

/// Like [`open`], for a file that can be larger than memory. Refuses a partly copied file: most of it is not on the
/// disk, and would be read as zeros.
pub fn open_large(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    let metadata = file.metadata()?;
    // Some systems compress files, or update sizes late, so refuse a file only if it also reads as zeros.
    if metadata.len() >= LARGE
        && stored(&metadata) < metadata.len() / 16
        && is_zero(&file, metadata.len())?
    {
        return Err(refused(format!(
            "it has {}, but only {} are on the disk: it was not completely written or copied",
            dsl::size(metadata.len()),
            dsl::size(stored(&metadata))
        )));
    }
    Ok(file)
}

/// Whether a file holds only zeros, judging by [`PROBES`] positions in it.
fn is_zero(file: &File, length: u64) -> io::Result<bool> {
    let mut piece = [0; 4096];
    for probe in 0..PROBES {
        // The ends of such a file are often present.
        let at = length / (PROBES + 1) * (probe + 1);
        read_at(file, &mut piece, at)?;
        if piece.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads the whole of a file. One of more than `most` bytes is an error of the kind [`io::ErrorKind::FileTooLarge`].
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let length = file.metadata()?.len();
    if length > most {
        return Err(too_large(length, most));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    // Some files, such as those of /proc, are longer than their stated size.
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(too_large(bytes.len() as u64, most));
    }
    Ok(bytes)
}

/// Like [`read`], for text. Bytes that are not UTF-8 are an error of the kind [`io::ErrorKind::InvalidData`].
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(|error| {
        let bytes = error.as_bytes();
        let content = Content::of_start(bytes.get(..content::START).unwrap_or(bytes));
        let message = match matches!(content, Content::Other) {
            true => "it is not text in UTF-8".to_owned(),
            false => format!("it is {}, not text in UTF-8", content.name()),
        };
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

/// Passes each line of a log to `take`, including its line feed; the last one may lack it. Stops at the first line that
/// `take` refuses, or that is longer than [`LINE`].
pub fn each_line<E>(
    path: &Path,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> io::Result<Result<(), E>> {
    let mut reader = BufReader::with_capacity(1 << 16, open(path)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.by_ref().take(LINE + 1).read_until(b'\n', &mut line)? == 0 {
            return Ok(Ok(()));
        }
        if line.len() as u64 > LINE {
            return Err(refused(format!("it has a line of more than {}", dsl::size(LINE))));
        }
        if let Err(error) = take(&line) {
            return Ok(Err(error));
        }
    }
}

/// The lines of a file that are valid JSON; none if there is no such file. Skips a line torn by the end of a process, and
/// what no process of ours wrote. An error only if the machine could not read the file.
pub fn json_lines(path: &Path) -> io::Result<Vec<serde_json::Value>> {
    let mut values = Vec::new();
    let read = each_line(path, |line| {
        values.extend(serde_json::from_slice(line).ok());
        Ok::<(), ()>(())
    });
    match read {
        Err(error) if is_unread(&error) => Err(error),
        Ok(_) | Err(_) => Ok(values),
    }
}

fn regular(metadata: &std::fs::Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    Err(match metadata.is_dir() {
        true => io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"),
        false => refused("it is a pipe or a device, not a file".to_owned()),
    })
}

/// Bytes that a file occupies on disk.
#[cfg(unix)]
fn stored(metadata: &std::fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    metadata.blocks().saturating_mul(512)
}

#[cfg(not(unix))]
fn stored(metadata: &std::fs::Metadata) -> u64 {
    metadata.len()
}

fn too_large(length: u64, most: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it has {}", dsl::over(length, most)))
}

fn refused(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_text(&path, 5).unwrap(), "12345");
        let error = read(&path, 4).unwrap_err();
        assert_eq!(error.to_string(), "it has 5 bytes; at most 4 bytes are read");
        std::fs::write(&path, [0xff]).unwrap();
        assert!(read_text(&path, 5).unwrap_err().to_string().contains("not text"));
        std::fs::write(&path, [0x1f, 0x8b, 8, 0xff]).unwrap();
        let error = read_text(&path, 5).unwrap_err();
        assert_eq!(error.to_string(), "it is compressed by gzip, not text in UTF-8");
        assert_eq!(read(folder.path(), 5).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(read(&folder.path().join("no"), 5).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn an_error_of_the_machine_is_told_from_one_of_the_file() {
        // Linux's EIO, EMFILE, ENOMEM, ESTALE and ETIMEDOUT.
        for of_machine in [5, 24, 12, 116, 110] {
            let error = io::Error::from_raw_os_error(of_machine);
            assert!(cfg!(not(target_os = "linux")) || is_of_machine(&error), "{error}");
        }
        // ENOENT, EISDIR, ENOTDIR, ENAMETOOLONG, ELOOP, EACCES.
        for of_path in [2, 21, 20, 36, 40, 13] {
            let error = io::Error::from_raw_os_error(of_path);
            assert!(cfg!(not(target_os = "linux")) || !is_of_machine(&error), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [0xff]).unwrap();
        for error in [read(&path, 0).unwrap_err(), read_text(&path, 5).unwrap_err()] {
            assert!(!is_unread(&error), "{error}");
        }
    }

    #[test]
    fn a_log_is_read_line_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, "{\"a\":1}\n\nnot json\n{\"a\":2}").unwrap();
        let mut lines = Vec::new();
        let all = each_line(&path, |line| {
            lines.push(line.to_vec());
            Ok::<(), ()>(())
        });
        assert!(all.unwrap().is_ok());
        assert_eq!(lines.concat(), std::fs::read(&path).unwrap());
        assert_eq!(json_lines(&path).unwrap().len(), 2);
        assert!(json_lines(&folder.path().join("no")).unwrap().is_empty());
    }

    #[test]
    fn a_file_is_replaced_completely_or_not_at_all() {
        use std::io::Write as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        replace(&path, b"old", || Ok(())).unwrap();
        let stopped = replace(&path, b"new", || Err(io::Error::other("stopped")));
        assert_eq!(stopped.unwrap_err().to_string(), "stopped");
        let stopped = replace_with(&path, |file| {
            file.write_all(b"new").unwrap();
            Err::<(), _>("stopped")
        });
        assert_eq!(stopped.unwrap(), Err("stopped"));
        assert_eq!(read_text(&path, 5).unwrap(), "old");
        let written = replace_with(&path, |file| file.write_all(b"new").map(|()| 3));
        assert_eq!(written.unwrap().unwrap(), 3);
        assert_eq!(read_text(&path, 5).unwrap(), "new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_killed_process_left_is_swept_and_what_a_live_one_writes_is_not() {
        use std::io::Write as _;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let names = || {
            let entries = std::fs::read_dir(folder.path()).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let kept = [".unfinished-o.txt", ".unfinished-plan.12", "o.12"];
        for name in kept {
            std::fs::write(at(name), "").unwrap();
        }
        std::fs::write(at(".unfinished-12-0"), "half").unwrap();
        std::fs::create_dir(at(".unfinished-o.12")).unwrap();
        std::fs::write(at(".unfinished-o.12").join("weights"), "half").unwrap();
        let written = replace_with(&at("file"), |file| {
            file.write_all(b"new")?;
            // Another process that begins meanwhile.
            sweep_abandoned(folder.path());
            Ok::<(), io::Error>(())
        });
        written.unwrap().unwrap();
        assert_eq!(std::fs::read(at("file")).unwrap(), b"new");
        let mut left: Vec<&str> = kept.to_vec();
        left.push("file");
        left.sort_unstable();
        if cfg!(unix) {
            assert_eq!(names(), left);
            let partial = unfinished_folder(&at("out"));
            let held = create_folder_held(&partial).unwrap();
            sweep_abandoned(folder.path());
            assert!(partial.exists());
            drop(held);
            sweep_abandoned(folder.path());
            assert!(!partial.exists());
        }
    }

    #[test]
    fn an_output_that_is_not_durable_is_told_from_one_that_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let error = rename_synced(&from, &to).unwrap_err();
        assert!(not_durable(&error, "to").is_none(), "{error}");
        std::fs::write(&from, "new").unwrap();
        rename_synced(&from, &to).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), b"new");
    }

    #[cfg(unix)]
    #[test]
    fn pipes_and_devices_are_refused() {
        for device in ["/dev/zero", "/dev/null", "/dev/random"] {
            let error = read(Path::new(device), 1).unwrap_err();
            assert_eq!(error.to_string(), "it is a pipe or a device, not a file", "{device}");
        }
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let status = std::process::Command::new("mkfifo").arg(&pipe).status();
        if status.is_ok_and(|status| status.success()) {
            assert!(open(&pipe).unwrap_err().to_string().contains("pipe"));
            assert!(json_lines(&pipe).unwrap().is_empty());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_of_holes_is_refused_without_reading_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("holes");
        File::create(&path).unwrap().set_len(4 << 40).unwrap();
        assert!(
            open_large(&path).unwrap_err().to_string().contains("not completely written or copied")
        );
        assert!(read(&path, SMALL).unwrap_err().to_string().contains("at most"));
        let ended = each_line(&path, |_| Ok::<(), ()>(()));
        assert!(ended.unwrap_err().to_string().contains("a line of more than"));
    }
}
