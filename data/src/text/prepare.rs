//! In: files of documents by source, a tokenizer. Out: one prepared file, whole or not at all, and what was read. Any
//! number of threads read, and one puts what they made in the order of the input. Must stay true: the file's bytes are a
//! function of the documents, the tokenizer and the names of sources and files, whatever the number of threads and
//! however often it was killed on the way; memory does not grow with the documents but for a digest per block; every
//! line is a document, blank, empty, or named.

mod fault;
mod input;
mod pages;
mod parquet;
mod partial;
mod work;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::DataError;

use super::lines::{Field, OnBadLine, Report};
use super::losses::Losses;
use super::tokenizer::Tokenizer;

pub use fault::Fault;
pub use input::{Format, Plain, format_of, format_of_file};
pub use partial::CANNOT_WRITE;

/// A named list of files, in reading order.
#[derive(Clone, Debug)]
pub struct SourceInput {
    pub name: String,
    pub files: Vec<Input>,
}

/// A file, or standard input.
#[derive(Clone, Debug)]
pub struct Input {
    pub path: Option<PathBuf>,
    /// In messages and in the manifest.
    pub name: String,
    /// On disk; 0 if unknown.
    pub bytes: u64,
}

/// What is to be prepared, and how.
#[derive(Debug)]
pub struct Request<'a> {
    pub sources: &'a [SourceInput],
    pub field: Field,
    /// Of files of plain text.
    pub plain: Plain,
    pub on_bad_line: OnBadLine,
    pub tokenizer: &'a Tokenizer,
    /// Threads that make tokens; no byte of the result depends on it.
    pub workers: usize,
    /// Bytes of input between two points from which it can go on.
    pub checkpoint: u64,
    /// Where it is broken on purpose.
    pub fault: Option<Fault>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Bytes of the input files, as they are on disk.
    pub read: u64,
    pub documents: u64,
    pub tokens: u64,
}

/// What is told on the way.
#[derive(Debug)]
pub enum News {
    /// It goes on where it was left.
    Resumed(Done),
    /// What was begun there before is of other files, another tokenizer or damaged, so it is made anew.
    Anew(&'static str),
    Progress(Done),
}

/// How it ended.
#[derive(Debug)]
pub enum End {
    Finished {
        report: Report,
        losses: Losses,
        tokens: u64,
    },
    /// The same request goes on from here.
    Interrupted(Done),
}

/// Makes the prepared file `out`; work in progress lies in the folder `out` + `.partial`.
pub fn prepare(
    request: &Request<'_>,
    out: &Path,
    stop: &AtomicBool,
    told: &mut dyn FnMut(&News),
) -> Result<End, DataError> {
    if let Some((report, losses, tokens)) = partial::finished(request, out)? {
        return Ok(End::Finished { report, losses, tokens });
    }
    let mut partial = partial::Partial::open(request, out, told)?;
    if work::run(request, &mut partial, stop, told)? == work::Stop::Asked {
        partial.save()?;
        return Ok(End::Interrupted(partial.done()));
    }
    let report = partial.report();
    if request.on_bad_line == OnBadLine::Refuse && report.malformed > 0 {
        partial.remove()?;
        return Err(super::index::malformed(&report));
    }
    let tokens = partial.done().tokens;
    let losses = partial.losses();
    if report.documents > 0 && losses.all(tokens) {
        partial.remove()?;
        let why = losses.warnings(tokens).first().map_or(String::new(), |why| format!(": {why}"));
        return Err(DataError::new(
            format!("nothing of the documents is left{why}"),
            "take a tokenizer that knows their script, or `--tokenizer bytes`",
        ));
    }
    partial.finish()?;
    Ok(End::Finished { report, losses, tokens })
}

#[cfg(test)]
mod replaced;
#[cfg(test)]
mod tests;
