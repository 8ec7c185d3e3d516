//! In: files of documents by source, and a tokenizer. Out: one prepared file, complete or absent, and a report. Any
//! number of threads make tokens, and one puts the results in input order. Must stay true: the file's bytes are a
//! function of the documents, the tokenizer and the names of sources and files, for any number of threads and any
//! number of kills on the way; memory grows with the documents only by a digest per block; every line is a document,
//! blank, empty, or named.

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
pub use input::{Format, Plain, format_of, format_of_file, is_open_pipe};
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
    /// Its name in messages and in the manifest.
    pub name: String,
    /// Size on disk; 0 if unknown.
    pub bytes: u64,
}

/// A request to prepare data.
#[derive(Debug)]
pub struct Request<'a> {
    pub sources: &'a [SourceInput],
    pub field: Field,
    /// How to split files of plain text.
    pub plain: Plain,
    pub on_bad_line: OnBadLine,
    pub tokenizer: &'a Tokenizer,
    /// Number of threads that make tokens. It does not affect the result.
    pub workers: usize,
    /// Bytes of input between two resume points.
    pub checkpoint: u64,
    /// The point where the process should abort, for tests.
    pub fault: Option<Fault>,
}

/// Progress so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Bytes read of the input files on disk.
    pub read: u64,
    pub documents: u64,
    pub tokens: u64,
}

/// An event during preparation.
#[derive(Debug)]
pub enum News {
    /// Continues from an earlier, interrupted preparation.
    Resumed(Done),
    /// Starts again: the earlier work is damaged, or is for other files or another tokenizer.
    Anew(&'static str),
    Progress(Done),
}

/// The outcome of a preparation.
#[derive(Debug)]
pub enum End {
    Finished {
        report: Report,
        losses: Losses,
        tokens: u64,
    },
    /// Interrupted; the same request continues from here.
    Interrupted(Done),
}

/// Makes the prepared file `out`. Unfinished work is kept in the folder `out` + `.partial`.
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
