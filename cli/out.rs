//! Decides whether a path may be written to.
//!
//! Only an older file of the same kind that canonc wrote is overwritten. A link to a file is never followed, and a link
//! to a folder always is.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use lab::lock;
use records::run::Paths;

use crate::fail::{Failure, shown};
use crate::files;

/// The kind of an output file, which also decides how an older one is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind {
    Lock,
    /// A report's page.
    Page,
    /// A picture of several comparisons.
    Picture,
    /// A JSON lines file: objects with exactly these keys.
    Lines(&'static [&'static str]),
    /// Samples of a task, in any of their formats.
    Samples,
    /// Tensors of a forward pass.
    Tensors,
    /// A file that TensorBoard reads.
    Events,
    /// Windows of a lock.
    Windows,
    /// A manual page.
    Manual,
    /// Results of `selftest`.
    Selftest,
    /// Results of `eval`.
    Evaluation,
}

/// Bytes of a file that are inspected.
const LOOKED_AT: usize = 1 << 16;

/// Refuses a path that may not be written to.
pub fn check(path: &Path, kind: OutputKind) -> Result<(), Failure> {
    files::names_a_file(path)?;
    outside_of_runs(path)?;
    if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) {
        folder(parent)?;
    }
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::cannot_write(path, &error)),
    };
    if found.is_symlink() {
        // A link to a terminal or a pipe, such as /dev/stdout, has no file behind it to lose.
        return match fs::metadata(path) {
            Ok(behind) if !behind.is_file() && !behind.is_dir() => Ok(()),
            Ok(_) | Err(_) => Err(Failure::bad_input(format!(
                "`{}` is a link, and canonc does not write through links to files",
                shown(path)
            ))
            .help("name the file itself, or another one")),
        };
    }
    if is_pipe(&found) {
        return Err(Failure::bad_input(format!(
            "`{}` is a pipe, but canonc writes files",
            shown(path)
        ))
        .help("name a file, or /dev/stdout"));
    }
    if found.is_file() && found.len() > 0 && !is_ours(path, kind)? {
        return Err(Failure::bad_input(format!(
            "`{}` exists and does not look like {} written by canonc",
            shown(path),
            kind.name()
        ))
        .help("name another file, or move this one away"));
    }
    Ok(())
}

/// Opening a pipe waits for its reader, and replacing it would take it from that reader.
#[cfg(unix)]
fn is_pipe(found: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    found.file_type().is_fifo() || found.file_type().is_socket()
}

#[cfg(not(unix))]
fn is_pipe(_: &fs::Metadata) -> bool {
    false
}

/// Refuses a path inside the folder of a run: `canonc verify` would find a file that no run writes.
pub fn outside_of_runs(path: &Path) -> Result<(), Failure> {
    let is_run = |folder: &&Path| {
        let paths = Paths::new(*folder);
        paths.lock().is_file() && paths.writer().is_file()
    };
    let above = path.parent().unwrap_or(Path::new(""));
    // A link may lead into a run.
    let real = above.ancestors().find_map(|folder| folder.canonicalize().ok());
    let found = above.ancestors().find(is_run).map(Path::to_owned).or_else(|| {
        let real = real.as_deref()?;
        real.ancestors().find(is_run).map(Path::to_owned)
    });
    match found {
        None => Ok(()),
        Some(folder) => Err(Failure::bad_input(format!(
            "`{}` is inside the run in `{}`, which may contain only files of the run",
            shown(path),
            shown(&folder)
        ))
        .help("name a path outside of it")),
    }
}

/// Writes a file of the given kind, and makes its folder if needed.
pub fn put(path: &Path, kind: OutputKind, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    check(path, kind)?;
    if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
        disk::create_folders(folder).map_err(|error| Failure::cannot_write(folder, &error))?;
    }
    put_with(path, kind, |file| {
        io::Write::write_all(file, bytes.as_ref())
            .map_err(|error| Failure::cannot_write(path, &error))
    })
}

/// Writes the output of `write` to a file; if `write` fails, the file is unchanged.
pub fn put_with<T>(
    path: &Path,
    kind: OutputKind,
    write: impl FnOnce(&mut File) -> Result<T, Failure>,
) -> Result<T, Failure> {
    check(path, kind)?;
    files::replace_with(path, write)
}

/// The path of `name` in a folder. All names become paths here.
pub fn named(folder: &Path, name: &str, ending: &str) -> Result<PathBuf, Failure> {
    lab::experiment::check_name(name).map_err(|why| {
        Failure::bad_input(why).help("rename it in its source, and build it again")
    })?;
    Ok(folder.join(format!("{name}{ending}")))
}

impl OutputKind {
    fn name(self) -> &'static str {
        match self {
            OutputKind::Lock => "a lock",
            OutputKind::Page => "a report",
            OutputKind::Picture => "a picture",
            OutputKind::Lines(_) => "a file of such lines",
            OutputKind::Samples => "a file of samples",
            OutputKind::Tensors => "a file of a forward pass",
            OutputKind::Events => "an event file",
            OutputKind::Windows => "a file of windows",
            OutputKind::Manual => "a manual page",
            OutputKind::Selftest => "results of selftest",
            OutputKind::Evaluation => "results of eval",
        }
    }
}

/// Whether canonc wrote the file, judged by its first bytes.
fn is_ours(path: &Path, kind: OutputKind) -> Result<bool, Failure> {
    let start = beginning(path).map_err(|error| Failure::cannot_read(path, &error))?;
    let text = String::from_utf8_lossy(&start);
    Ok(match kind {
        OutputKind::Lock => lock::source_of(&text).is_some(),
        OutputKind::Page => {
            let title =
                text.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
            text.trim_start().starts_with("<!doctype html>")
                && title.is_some_and(|(title, _)| title.ends_with(" · canonc report"))
        }
        OutputKind::Picture => {
            let style = "font-family=\"system-ui, sans-serif\" font-size=\"11\">\n<rect width=\"";
            text.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ")
                && text.lines().take(2).collect::<Vec<_>>().join("\n").contains(style)
        }
        OutputKind::Lines(keys) => is_line(&text, keys),
        // Samples and windows do not name their writer: somebody's corpus looks the same.
        OutputKind::Samples | OutputKind::Windows => false,
        OutputKind::Manual => text.contains("\n.TH canonc"),
        OutputKind::Selftest => {
            text.starts_with("{\"part\":\"machine\",\"schema\":\"canonc.selftest.")
        }
        OutputKind::Evaluation => text.contains("\"schema\": \"canonc.eval.v1\""),
        OutputKind::Tensors => {
            let length = start.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
            let mark = "{\"__metadata__\":{\"canonc\":\"forward\"}";
            length.is_some_and(|length| length < u64::MAX / 2)
                && start.get(8..).is_some_and(|json| json.starts_with(mark.as_bytes()))
        }
        OutputKind::Events => {
            let version = b"brain.Event:2";
            let first = start.get(..64).unwrap_or(&start);
            // Zeros: a power cut can leave them of a file whose name was on the disk before its records.
            (first.windows(version.len()).any(|window| window == version)
                || first.iter().all(|byte| *byte == 0))
                && path.extension().is_some_and(|extension| extension == "canonc")
        }
    })
}

/// A key that only some lines of answers have.
const OPTIONAL: &str = "flag";

/// Whether a text begins with a line that is an object with exactly these keys.
fn is_line(text: &str, keys: &[&str]) -> bool {
    let first = text.split_inclusive('\n').next().filter(|line| line.ends_with('\n'));
    let line = first.and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let object = line.as_ref().and_then(serde_json::Value::as_object);
    object.is_some_and(|object| {
        let has = |key: &&&str| **key == OPTIONAL || object.contains_key(**key);
        keys.iter().all(|key| has(&key)) && object.keys().all(|key| keys.contains(&key.as_str()))
    })
}

/// The first bytes of a file.
fn beginning(path: &Path) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    disk::open(path)?.take(LOOKED_AT as u64).read_to_end(&mut start)?;
    Ok(start)
}

/// Refuses a path that cannot be a folder for output: a file or a pipe is there, or above it, or a link to nothing. A
/// link to a folder is that folder.
pub fn folder(path: &Path) -> Result<(), Failure> {
    if path.as_os_str().is_empty() {
        return Err(Failure::bad_input("the folder has no name").help("name a folder"));
    }
    outside_of_runs(path)?;
    let is_there = |part: &&Path| fs::symlink_metadata(part).is_ok();
    let parts = path.ancestors().filter(|part| !part.as_os_str().is_empty());
    let Some(part) = parts.into_iter().find(is_there) else { return Ok(()) };
    let what = match fs::metadata(part) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(found) if found.is_file() => "a file",
        Ok(_) => "a pipe or a device",
        Err(error) if disk::is_of_machine(&error) => {
            return Err(Failure::cannot_read(part, &error));
        }
        Err(_) => "a broken link",
    };
    let name = shown(part);
    Err(Failure::bad_input(format!("`{name}` is {what}, but a folder is needed"))
        .help("name a folder, or a path that does not exist yet"))
}

/// Like [`folder`], for a folder that files are put into: it is not a run either.
pub fn container(path: &Path) -> Result<(), Failure> {
    folder(path)?;
    outside_of_runs(&path.join("file"))
}

/// The folder that a link leads to, or the path itself. A new folder takes the place of an empty one, so the link would
/// be in its way.
pub fn real_folder(path: &Path) -> Result<PathBuf, Failure> {
    container(path)?;
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    match is_link {
        true => fs::canonicalize(path).map_err(|error| Failure::cannot_write(path, &error)),
        false => Ok(path.to_owned()),
    }
}
