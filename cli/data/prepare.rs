//! `canonc data prepare`: files of JSON lines, made an index that locks are bound to.
//!
//! In: files, each of a source, in their order. Out: the index, whole or not at all; what was read, on standard
//! error. Must stay true: a file is opened when its turn comes, so their number is not bounded by what a process
//! may hold open; nothing is written over but an index, and never what is read.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use runtime::data::text::file;
use runtime::data::text::index::{OnBadLine, Report, SourceFiles, TextIndex};
use runtime::progress::bytes;

use super::failure;
use super::screen::Screen;
use crate::args::PrepareArgs;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::signals::stop_on_signals;
use crate::{files, output};

/// Read from a file at a time.
const CHUNK: usize = 1 << 16;

pub(super) fn prepare(args: &PrepareArgs) -> Outcome {
    let PrepareArgs { files: named, out, skip_bad_lines } = args;
    let inputs = inputs(named, out)?;
    let before = out_of_the_way(out, &inputs)?;
    let stop = stop_on_signals()?;
    let total = inputs.iter().map(|input| input.bytes).sum();
    let reading = Rc::new(RefCell::new(Reading {
        screen: Screen::new(total),
        read: 0,
        total,
        stop: stop.clone(),
    }));
    let on_bad_line = if *skip_bad_lines { OnBadLine::Skip } else { OnBadLine::Refuse };
    let built = TextIndex::build(sources(&inputs, &reading), on_bad_line);
    reading.borrow_mut().screen.clear();
    if stop.load(Ordering::Relaxed) {
        return Err(interrupted(out));
    }
    let (index, report) = built.map_err(failure)?;
    files::replace_with(out, |to| {
        file::write(&index, &mut BufWriter::with_capacity(CHUNK, to))
            .map_err(|error| Failure::cannot_write(out, &error))?;
        // One Ctrl-C while a large index is written: it is not put in the other's place.
        if stop.load(Ordering::Relaxed) { Err(interrupted(out)) } else { Ok(()) }
    })?;
    say(&index, &report, out, before);
    Ok(Exit::Fine)
}

fn interrupted(out: &Path) -> Failure {
    let message = format!("interrupted; `{}` is as it was", shown(out));
    Failure { exit: Exit::Stopped, ..Failure::bad_input(message) }
}

fn say(index: &TextIndex, report: &Report, out: &Path, replaced: bool) {
    let bad = report.malformed + report.empty;
    if bad > 0 {
        output::note(&format!(
            "{bad} of {} lines hold no document:",
            output::grouped(report.lines)
        ));
        for line in &report.first_bad {
            output::note(&format!("  {line}"));
        }
        let more = bad - report.first_bad.len() as u64;
        if more > 0 {
            output::note(&format!("  … and {more} more"));
        }
    }
    for source in index.sources() {
        let documents = source.documents.end - source.documents.start;
        let documents = output::counted(documents.into(), "document");
        output::note(&format!("source {}: {documents}", source.name));
    }
    let identity = index.identity().to_hex();
    output::note(&format!(
        "{}: {} {}, {}, data {}",
        shown(out),
        if replaced { "replaced by" } else { "wrote" },
        output::counted(report.documents, "document"),
        output::counted(report.bytes, "byte"),
        identity.get(..12).unwrap_or_default(),
    ));
}

/// A file and the source it is of.
struct Input {
    source: String,
    /// None: standard input.
    path: Option<PathBuf>,
    name: String,
    /// As far as it is known before it is read.
    bytes: u64,
}

fn inputs(named: &[PathBuf], out: &Path) -> Result<Vec<Input>, Failure> {
    let usual =
        out.file_stem().map_or("text".to_owned(), |stem| stem.to_string_lossy().into_owned());
    let mut inputs: Vec<Input> = Vec::with_capacity(named.len());
    for argument in named {
        let (source, path) = split(argument).unwrap_or((usual.clone(), argument.clone()));
        let input = if path.as_os_str() == "-" {
            Input { source, path: None, name: "standard input".to_owned(), bytes: 0 }
        } else {
            let metadata = fs::metadata(&path).map_err(|error| files::missing(&path, &error))?;
            if metadata.is_dir() {
                return Err(Failure::bad_input(format!("`{}` is a folder", shown(&path)))
                    .help(format!("name its files: {}/*.jsonl", shown(&path))));
            }
            Input { source, name: shown(&path), bytes: metadata.len(), path: Some(path) }
        };
        if inputs.iter().any(|known| known.path == input.path) {
            return Err(Failure::bad_input(format!("`{}` is named twice", input.name)).help(
                "name each file once; a weight in the recipe says how often a source is read",
            ));
        }
        inputs.push(input);
    }
    Ok(inputs)
}

/// NAME=FILE, unless that is itself a file's name.
fn split(argument: &Path) -> Option<(String, PathBuf)> {
    let (name, path) = argument.to_str()?.split_once('=')?;
    let is_name = !name.is_empty() && !name.contains(['/', '\\']);
    (is_name && !argument.exists()).then(|| (name.to_owned(), PathBuf::from(path)))
}

/// Refuses to write over what is no index or is being read. Gives whether there is one already.
fn out_of_the_way(out: &Path, inputs: &[Input]) -> Result<bool, Failure> {
    if out.as_os_str() == "-" {
        return Err(Failure::bad_input("an index is a file, not a stream")
            .help("name it with --out FILE, such as data/c4.index"));
    }
    let Ok(real) = fs::canonicalize(out) else { return Ok(false) };
    let same = |path: &PathBuf| fs::canonicalize(path).is_ok_and(|path| path == real);
    let read = inputs.iter().filter_map(|input| input.path.as_ref()).any(same);
    let index = real.is_file()
        && file::is_index(&real).map_err(|error| Failure::cannot_read(out, &error))?;
    if read || !index && !real.is_dir() {
        let what = if read { "one of the files to be read" } else { "no index of documents" };
        return Err(Failure::bad_input(format!(
            "`{}` is there, and is {what}; it is not written over",
            shown(out)
        ))
        .help("name another file with --out, or remove that one first"));
    }
    Ok(index)
}

/// How far reading is.
struct Reading {
    screen: Screen,
    read: u64,
    total: u64,
    stop: Arc<AtomicBool>,
}

type Reader = BufReader<Lazy>;

/// Sources in the order in which they are first named.
fn sources(inputs: &[Input], reading: &Rc<RefCell<Reading>>) -> Vec<SourceFiles<Reader>> {
    let mut sources: Vec<SourceFiles<Reader>> = Vec::new();
    for Input { source, path, name, bytes: _ } in inputs {
        let lazy = Lazy { state: State::Closed(path.clone()), reading: reading.clone() };
        let file = (name.clone(), BufReader::with_capacity(CHUNK, lazy));
        match sources.iter_mut().find(|known| known.name == *source) {
            Some(known) => known.files.push(file),
            None => sources.push(SourceFiles { name: source.clone(), files: vec![file] }),
        }
    }
    sources
}

/// A file that is open while it is read.
struct Lazy {
    state: State,
    reading: Rc<RefCell<Reading>>,
}

enum State {
    Closed(Option<PathBuf>),
    Open(Box<dyn Read>),
    Read,
}

impl Read for Lazy {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut reading = self.reading.borrow_mut();
        if reading.stop.load(Ordering::Relaxed) {
            // Not of the kind `Interrupted`, after which readers try again.
            return Err(io::Error::other("interrupted"));
        }
        if let State::Closed(path) = &self.state {
            self.state = State::Open(match path {
                Some(path) => Box::new(File::open(path)?),
                None => Box::new(io::stdin()),
            });
        }
        let State::Open(file) = &mut self.state else { return Ok(0) };
        let count = file.read(buffer)?;
        if count == 0 {
            self.state = State::Read;
        }
        reading.read += count as u64;
        let Reading { screen, read, total, stop: _ } = &mut *reading;
        let (read, total) = (*read, *total);
        screen.show(read, |seconds| {
            let rate = bytes((read as f64 / seconds.max(1e-9)) as u64);
            format!("{} of {}  {rate}/s", bytes(read), bytes(total.max(read)))
        });
        Ok(count)
    }
}
