//! Finds `.canon` files, in an order that does not depend on the file system, and replaces files so that none is ever half
//! written.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::fail::{Failure, shown};

pub use disk::nearest;

/// Most files of one search; more means a mistake in the argument, such as `/`.
const MAX_FOUND: usize = 10_000;
/// Maximum depth of nested folders.
const MAX_FOLDER_DEPTH: usize = 32;

/// The `.canon` files of an argument: the file itself, or all files under a folder.
pub fn canon_files(argument: &Path) -> Result<Vec<PathBuf>, Failure> {
    let metadata = fs::metadata(argument).map_err(|error| missing(argument, &error))?;
    if !metadata.is_dir() {
        return Ok(vec![argument.to_owned()]);
    }
    let mut found = Vec::new();
    search(argument, argument, 0, &mut found)?;
    if found.is_empty() {
        return Err(Failure::bad_input(format!("`{}` contains no .canon file", shown(argument)))
            .help("name a file or another folder; `canonc new DIR` writes an example"));
    }
    Ok(found)
}

fn search(
    root: &Path,
    folder: &Path,
    depth: usize,
    found: &mut Vec<PathBuf>,
) -> Result<(), Failure> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut entries = entries.map_err(|error| Failure::cannot_read(folder, &error))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let kind = entry.file_type().map_err(|error| Failure::cannot_read(&path, &error))?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if kind.is_dir() && !hidden && depth < MAX_FOLDER_DEPTH {
            search(root, &path, depth + 1, found)?;
        } else if !kind.is_dir() && path.extension() == Some(OsStr::new("canon")) {
            if found.len() == MAX_FOUND {
                return Err(Failure::bad_input(format!(
                    "more than {MAX_FOUND} .canon files are under `{}`",
                    shown(root)
                ))
                .help("name a smaller folder"));
            }
            found.push(path);
        }
    }
    Ok(())
}

/// Why a path that a person typed cannot be opened, with the most similar existing name.
pub fn missing(path: &Path, error: &io::Error) -> Failure {
    if error.kind() != io::ErrorKind::NotFound {
        return Failure::cannot_read(path, error);
    }
    let folder = disk::parent(path);
    if !folder.is_dir() {
        return Failure::bad_input(format!(
            "`{}` does not exist: its folder `{}` is missing",
            shown(path),
            shown(folder)
        ))
        .help("paths are relative to the current folder");
    }
    let failure = Failure::bad_input(format!("`{}` does not exist", shown(path)));
    match nearest(path) {
        Some(near) => failure.help(format!("did you mean `{}`?", shown(&near))),
        None => failure.help(format!("`ls {}` lists the files", shown(folder))),
    }
}

/// Refuses a file in a missing folder, before its contents are computed.
pub fn folder_of(path: &Path) -> Result<(), Failure> {
    names_a_file(path)?;
    match path.parent() {
        Some(folder) if folder != Path::new("") && !folder.is_dir() => Err(no_folder(path, folder)),
        Some(_) | None => Ok(()),
    }
}

/// Refuses a folder, and a path that is written like one.
pub fn names_a_file(path: &Path) -> Result<(), Failure> {
    let written = path.as_os_str().as_encoded_bytes();
    let last = written.rsplit(|byte| std::path::is_separator(char::from(*byte))).next();
    let refused = match last {
        _ if path.is_dir() => format!("`{}` is a folder", shown(path)),
        _ if written.is_empty() => "the file has no name".to_owned(),
        Some(b"" | b"." | b"..") => format!("`{}` ends like a folder", shown(path)),
        Some(_) | None => return Ok(()),
    };
    Err(Failure::bad_input(refused).help("name a file"))
}

/// Error for a file in a folder that does not exist.
pub fn no_folder(path: &Path, folder: &Path) -> Failure {
    let (path, folder) = (shown(path), shown(folder));
    Failure::bad_input(format!("`{path}` cannot be written: the folder `{folder}` does not exist"))
        .help(format!("run `mkdir -p {folder}` and repeat"))
}

/// Replaces a file's contents with `text`, completely or not at all. A link stays a link.
pub fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    replace_with(path, |file| {
        file.write_all(text.as_bytes()).map_err(|error| Failure::cannot_write(path, &error))
    })
}

/// Replaces a file's contents with the output of `write`; if that fails, the file is unchanged. A pipe or a device is
/// written to directly.
pub fn replace_with<T>(
    path: &Path,
    write: impl FnOnce(&mut fs::File) -> Result<T, Failure>,
) -> Result<T, Failure> {
    names_a_file(path)?;
    // Renaming over a link would replace the link itself.
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let cannot = |error: io::Error| Failure::cannot_write(path, &error);
    let before = match fs::metadata(&real) {
        Ok(before) => Some(before),
        Err(error) if disk::is_of_machine(&error) => return Err(cannot(error)),
        Err(_) => None,
    };
    if before.as_ref().is_some_and(|before| !before.is_file()) {
        return write(&mut fs::File::options().write(true).open(&real).map_err(cannot)?);
    }
    let folder = disk::parent(&real);
    // A rename needs no write permission on the file, but whoever removed that permission did so on purpose.
    let locked = |metadata: &fs::Metadata| metadata.permissions().readonly();
    if before.as_ref().is_some_and(locked) {
        return Err(Failure::machine(format!("`{}` is read-only", shown(path)))
            .help(format!("`chmod u+w {}`, and repeat", shown(path))));
    }
    if cfg!(unix) && fs::metadata(folder).as_ref().is_ok_and(locked) {
        return Err(Failure::machine(format!(
            "`{}` cannot be written: its folder is read-only",
            shown(path)
        ))
        .help(format!("`chmod u+w {}`, and repeat", shown(folder))));
    }
    if !folder.is_dir() {
        return Err(no_folder(path, folder));
    }
    let replaced = disk::replace_with(&real, |file| {
        let written = write(file)?;
        if let Some(before) = &before {
            file.set_permissions(before.permissions()).map_err(cannot)?;
        }
        Ok(written)
    });
    replaced.map_err(cannot)?
}
