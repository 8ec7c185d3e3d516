//! Loads a `.canon` file and all its imports into a program; or loads a lock.
//!
//! Of each file at most `MAX_SOURCE_BYTES` are read, whatever it holds; names are the paths as typed, with `/`.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use compiler::load::{self, Files, Unread};
use compiler::plan::{Loss, TrainOptions};
use compiler::program::Compiled;
use dsl::limits::MAX_SOURCE_BYTES;
use lab::experiment::{DataSource, Experiment};
use lab::lock::Lock;

use crate::fail::{Exit, Failure, reason, shown};
use crate::files::{missing, nearest};
use crate::foreign::{self, Foreign};
use crate::{locks, named, output};

pub use compiler::load::{Content, Loaded, Trouble, source_too_large};

/// Loads a file and its imports. Fails only if the file itself cannot be read.
pub fn load(path: &Path) -> Result<Loaded, Failure> {
    let content = read(path).map_err(|error| match path.is_dir() {
        true => folder_given(path),
        false => missing(path, &error),
    })?;
    Ok(load::load(name(path), content, &mut Disk))
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
    let first = crate::files::canon_files(path).ok().and_then(|files| files.into_iter().next());
    match first {
        Some(first) => failure.help(format!("name a file in it, such as `{}`", shown(&first))),
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

/// Architectures of one file.
pub struct Archs {
    /// The file's name, as programs and locks use it.
    pub name: String,
    pub found: Vec<Found>,
}

/// One architecture, with its training setup if known.
pub struct Found {
    pub compiled: Compiled,
    pub train: Option<Trained>,
    /// The data section of its lock.
    pub data: Option<DataSource>,
}

/// The training section of a lock.
#[derive(Clone)]
pub struct Trained {
    pub loss: Loss,
    pub options: TrainOptions,
    /// Tokens of a training sequence.
    pub seq_len: u64,
}

/// Splits `FILE.canon#NAME`, as recipes write it, unless there is a file of that name.
pub fn split(path: &Path) -> (PathBuf, Option<String>) {
    let parts = path.to_str().and_then(|text| text.split_once(".canon#"));
    match parts.filter(|_| !path.exists()) {
        Some((file, arch)) => (PathBuf::from(format!("{file}.canon")), Some(arch.to_owned())),
        None => (path.to_owned(), None),
    }
}

/// The archs of a `.canon` file, a lock or a folder of another program, or the one named by `arch` or in
/// `FILE.canon#NAME`. Diagnostics have been shown.
pub fn archs(path: &Path, arch: Option<&str>) -> Result<Archs, Failure> {
    let (file, written) = split(path);
    if let (Some(arch), Some(written)) = (arch, &written)
        && arch != written
    {
        let message = format!("`{}` names `{written}`, but --arch names `{arch}`", shown(path));
        return Err(Failure::bad_input(message).help("name the arch once"));
    }
    let arch = arch.or(written.as_deref());
    if let Some(Foreign { compiled, texts: _ }) = foreign::open(&file, arch)? {
        let found = vec![Found { compiled, train: None, data: None }];
        return Ok(Archs { name: name(&file), found });
    }
    let path = &named::lock(&file)?;
    if locks::is_lock(path) {
        return locked(path, arch);
    }
    let (loaded, compiled) = compile(path, arch)?;
    let found = compiled.into_iter().map(|compiled| Found { compiled, train: None, data: None });
    Ok(Archs { name: loaded.name, found: found.collect() })
}

/// The only arch, or the named one, as [`archs`].
pub fn one(path: &Path, arch: Option<&str>) -> Result<Found, Failure> {
    let Archs { name, found } = archs(path, arch)?;
    let names: Vec<String> = found.iter().map(|found| found.compiled.name.clone()).collect();
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(Failure::bad_input(format!(
            "`{name}` has {} archs: {}",
            names.len(),
            names.join(", ")
        ))
        .help(format!("name one: `--arch {}`", names.first().map_or("", String::as_str)))),
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

/// The archs of a lock: one, or one for each arm.
fn locked(path: &Path, arch: Option<&str>) -> Result<Archs, Failure> {
    let of = |experiment: &Experiment| Found {
        compiled: experiment.arch.compiled.clone(),
        train: Some(Trained {
            loss: experiment.loss,
            options: experiment.train_options(),
            seq_len: experiment.data.seq_len,
        }),
        data: Some(experiment.data.source.clone()),
    };
    let (lock, _) = locks::read(path)?;
    let all: Vec<Found> = match lock {
        Lock::Arch(lock) => {
            vec![Found { compiled: lock.arch.compiled.clone(), train: None, data: None }]
        }
        Lock::Experiment(experiment) => vec![of(&experiment)],
        Lock::Comparison(comparison) => {
            comparison.arms.iter().map(|arm| of(&arm.experiment)).collect()
        }
    };
    let names: Vec<String> = all.iter().map(|found| found.compiled.name.clone()).collect();
    let wanted = |found: &Found| arch.is_none_or(|arch| found.compiled.name == arch);
    let found: Vec<Found> = all.into_iter().filter(wanted).collect();
    match arch {
        Some(arch) if found.is_empty() => {
            Err(Failure::bad_input(format!("this lock has no arch `{arch}`"))
                .at(name(path))
                .help(format!("it has {}", names.join(", "))))
        }
        Some(_) | None => Ok(Archs { name: name(path), found }),
    }
}
