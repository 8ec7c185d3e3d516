//! Loads a `.canon` file and all its imports into a program.
//!
//! Of each file at most `MAX_SOURCE_BYTES` are read, whatever it holds; names are the paths as typed, with `/`.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use compiler::load::{self, Files, Unread};
use compiler::program::Compiled;
use dsl::limits::MAX_SOURCE_BYTES;
use interop::source::file_of;

use crate::fail::{Exit, Failure, reason, shown};
use crate::files::{missing, nearest};
use crate::output;
use records::run::Paths;

pub use compiler::load::{Content, Loaded, Trouble, source_too_large};

/// Loads a file and its imports. Fails only if the file itself cannot be read.
pub fn load(path: &Path) -> Result<Loaded, Failure> {
    refuse_other(path)?;
    let content = read(path).map_err(|error| match path.is_dir() {
        true => folder_given(path),
        false => missing(path, &error),
    })?;
    Ok(load::load(name(path), content, &mut Disk))
}

/// Refuses a file that is named like another kind of file.
fn refuse_other(path: &Path) -> Result<(), Failure> {
    let name = shown(path);
    let (what, help) = match path
        .extension()
        .and_then(|end| end.to_str())
        .filter(|_| path.is_file())
    {
        Some("toml") => {
            ("a recipe", format!("name its arch, or the lock that `canonc build {name}` makes"))
        }
        Some("json") => ("JSON", "name the folder of a model, not its configuration".to_owned()),
        Some("safetensors" | "bin" | "pt" | "pth" | "ckpt") => (
            "a file of weights",
            format!("name an arch, which `canonc forward` and others take with `--weights {name}`"),
        ),
        Some("index" | "jsonl") => ("data", "name an arch, a lock or a run".to_owned()),
        Some(_) | None => return Ok(()),
    };
    Err(Failure::bad_input(format!("`{name}` is {what}, not a .canon file")).help(help))
}

/// The file system, by paths as typed.
struct Disk;

impl Files for Disk {
    fn read(&mut self, name: &str) -> Result<Content, Unread> {
        read(Path::new(name)).map_err(|error| match error.kind() == io::ErrorKind::NotFound {
            true => Unread::Missing,
            false => Unread::Refused(reason(&error)),
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

fn folder_given(path: &Path) -> Failure {
    if crate::runs::holds_runs(path) {
        return crate::runs::not_a_run(path);
    }
    let failure = Failure::bad_input(format!("`{}` is a folder, not a .canon file", shown(path)));
    let mut above = path.ancestors().skip(1).take(2);
    if let Some(run) = above.find(|folder| Paths::new(*folder).lock().is_file()) {
        let run = if run.as_os_str().is_empty() { Path::new(".") } else { run };
        return failure.help(format!("it belongs to the run `{}`: name that", shown(run)));
    }
    let first = crate::files::canon_files(path).ok().and_then(|files| files.into_iter().next());
    match first {
        Some(first) => failure.help(format!("name a file in it, such as `{}`", shown(&first))),
        None if file_of(path).is_ok() => failure.help(format!(
            "it has weights, but no config.json, params.json, arch.canon or import.toml says of which model; \
             `canonc forward` and others take an arch with `--weights {}`",
            shown(path)
        )),
        None => failure.help("it contains no .canon file; `canonc new DIR` writes an example"),
    }
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
