//! Loads a `.canon` file and all its imports into a program.
//!
//! Of each file at most `MAX_SOURCE_BYTES` are read, whatever it holds; names are the paths as typed, with `/`.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use compiler::load::{self, Files, Unread};
use compiler::program::Compiled;
use dsl::limits::MAX_SOURCE_BYTES;

use crate::fail::{Exit, Failure, reason};
use crate::files::nearest;
use crate::output;
use crate::workspace::refuse;

pub use compiler::load::{Content, Loaded, Trouble, source_too_large};

/// Loads a file and its imports. Fails only if the file itself cannot be read, or the machine cannot read an import.
pub fn load(path: &Path) -> Result<Loaded, Failure> {
    refuse::other_than_canon(path)?;
    let content = read(path).map_err(|error| refuse::no_canon(path, &error))?;
    let mut disk = Disk::default();
    let loaded = load::load(name(path), content, &mut disk);
    disk.unread.map_or(Ok(loaded), Err)
}

/// The file system, by paths as typed.
#[derive(Default)]
struct Disk {
    /// An import that the machine could not read, which is no fault of the texts.
    unread: Option<Failure>,
}

impl Files for Disk {
    fn read(&mut self, name: &str) -> Result<Content, Unread> {
        let path = Path::new(name);
        read(path).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                return Unread::Missing;
            }
            if disk::is_of_machine(&error) {
                self.unread = Some(Failure::cannot_read(path, &error));
            }
            Unread::Refused(reason(&error))
        })
    }

    fn nearest(&self, name: &str) -> Option<String> {
        let near = nearest(Path::new(name))?;
        near.file_name()?.to_str().map(str::to_owned)
    }
}

/// Reads only slightly more than the language allows, so that a file that is too large costs little.
pub fn read(path: &Path) -> io::Result<Content> {
    let file = disk::open(path)?;
    let size = file.metadata()?.len();
    if size > MAX_SOURCE_BYTES as u64 {
        return Ok(Content::Not(Trouble::TooLarge(Some(size))));
    }
    let mut bytes = Vec::new();
    file.take(MAX_SOURCE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Content::from_bytes(bytes))
}

/// A path in the form that programs and locks use: relative if possible, with `/` and without `.` parts.
pub fn name(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let relative = here.and_then(|here| path.strip_prefix(here).ok().map(PathBuf::from));
    let text = relative.as_deref().unwrap_or(path).to_string_lossy();
    let text = if cfg!(windows) { text.replace('\\', "/") } else { text.into_owned() };
    let mut parts: Vec<&str> = text.split('/').filter(|part| *part != ".").collect();
    if parts.len() > 1 {
        // `a//b` is `a/b`; the empty part before a leading `/` stays.
        let first = parts.remove(0);
        parts.retain(|part| !part.is_empty());
        parts.insert(0, first);
    }
    parts.join("/")
}

/// Splits `FILE.canon#NAME`, as recipes write it, unless there is a file of that name.
pub fn split(path: &Path) -> (PathBuf, Option<String>) {
    let parts = path.to_str().and_then(|text| text.split_once(".canon#"));
    match parts.filter(|_| !path.exists()) {
        Some((file, arch)) => (PathBuf::from(format!("{file}.canon")), Some(arch.to_owned())),
        None => (path.to_owned(), None),
    }
}

/// The archs of a `.canon` file, or the named one. Diagnostics have been shown.
pub fn compile(path: &Path, arch: Option<&str>) -> Result<(Loaded, Vec<Compiled>), Failure> {
    let loaded = load(path)?;
    output::diagnostics(&loaded.program.sources, &loaded.diagnostics);
    if loaded.has_errors() {
        return Err(Failure::shown(Exit::BadInput));
    }
    let names = match arch {
        Some(name) => vec![name.to_owned()],
        None => loaded.archs(),
    };
    if names.is_empty() {
        return Err(Failure::bad_input("this file defines no arch")
            .at(&loaded.name)
            .help("define one: `arch NAME { … }`; `canonc new DIR` writes a first one"));
    }
    let mut compiled = Vec::new();
    let mut failed = false;
    let mut said = BTreeSet::new();
    for name in names {
        let (result, mut found) = loaded.compile(&name);
        // Archs made from the same definition repeat its diagnostics.
        found.retain(|d| {
            let places: Vec<_> =
                d.labels.iter().map(|label| (label.span.file, label.span.start)).collect();
            said.insert((d.message.clone(), places))
        });
        output::diagnostics(&loaded.program.sources, &found);
        match result {
            Some(result) => compiled.push(result),
            None => failed = true,
        }
    }
    if failed { Err(Failure::shown(Exit::BadInput)) } else { Ok((loaded, compiled)) }
}

/// The only one of a file's archs.
pub fn only<T>(file: &str, archs: Vec<T>, name: impl Fn(&T) -> &str) -> Result<T, Failure> {
    let names: Vec<String> = archs.iter().map(|arch| name(arch).to_owned()).collect();
    let mut archs = archs.into_iter();
    match (archs.next(), archs.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(Failure::bad_input(format!(
            "`{file}` has {} archs: {}",
            names.len(),
            names.join(", ")
        ))
        .help(format!("name one: `--arch {}`", names.first().map_or("", String::as_str)))),
    }
}
