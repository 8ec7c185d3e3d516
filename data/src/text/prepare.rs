//! Prepares files of documents: makes one prepared file with a tokenizer, and reports on the lines.
//!
//! Any number of threads make tokens, and one puts the results in input order. The file's bytes are a function of the
//! documents, the tokenizer and the names of sources and files, for any number of threads and of kills on the way.
//! Memory grows with the documents only by a digest per block. Every line is a document, blank, empty, or named in the
//! report.

mod fault;
mod input;
mod pages;
mod parquet;
mod partial;
mod piece;
mod work;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use dsl::Problem;

use super::lines::{Field, LineCounts, OnBadLine};
use super::losses::Losses;
use super::tokenizer::Tokenizer;

pub use fault::Fault;
pub use input::{Format, Plain, format_of_file, has_documents, is_open_pipe};

/// A named list of files, in reading order.
#[derive(Clone, Debug)]
pub struct SourceInput {
    /// The source's name.
    pub name: String,
    /// Its files.
    pub files: Vec<Input>,
}

/// A file, or standard input.
#[derive(Clone, Debug)]
pub struct Input {
    /// Path of the file; `None` for standard input.
    pub path: Option<PathBuf>,
    /// Its name in messages and in the manifest.
    pub name: String,
    /// Size on disk; 0 if unknown.
    pub bytes: u64,
}

/// A request to prepare data.
#[derive(Debug)]
pub struct Request<'a> {
    /// The sources, in the order of their documents.
    pub sources: &'a [SourceInput],
    /// The field or column that holds a document.
    pub field: Field,
    /// How to split files of plain text.
    pub plain: Plain,
    /// What to do with lines without a usable document.
    pub on_bad_line: OnBadLine,
    /// The tokenizer of all documents.
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
    /// Documents written.
    pub documents: u64,
    /// Tokens written.
    pub tokens: u64,
}

/// An event during preparation.
#[derive(Debug)]
pub enum News {
    /// Continues from an earlier, interrupted preparation.
    Resumed(Done),
    /// Starts again: the earlier work is damaged, or is for other files or another tokenizer.
    Anew(&'static str),
    /// The work has advanced to here.
    Progress(Done),
}

/// The outcome of a preparation.
#[derive(Debug)]
pub enum PrepareOutcome {
    /// The prepared file is complete.
    Finished {
        /// Counts of lines, documents and bytes.
        report: LineCounts,
        /// Text that the tokenizer lost.
        losses: Losses,
        /// Number of tokens in the file, without marks.
        tokens: u64,
    },
    /// Interrupted; the same request continues from here.
    Interrupted(Done),
}

/// Makes the prepared file `out`. Unfinished work is kept in the folder `out` + `.partial`. After an error or an
/// interruption, threads may still be inside a document until the process ends.
pub fn prepare(
    request: &Request<'_>,
    out: &Path,
    stop: &AtomicBool,
    on_news: &mut dyn FnMut(&News),
) -> Result<PrepareOutcome, Problem> {
    prepare_within(work::PATIENCE, request, out, stop, on_news)
}

fn prepare_within(
    patience: Duration,
    request: &Request<'_>,
    out: &Path,
    stop: &AtomicBool,
    on_news: &mut dyn FnMut(&News),
) -> Result<PrepareOutcome, Problem> {
    if let Some((report, losses, tokens)) = partial::finished(request, out)? {
        return Ok(PrepareOutcome::Finished { report, losses, tokens });
    }
    let mut partial = partial::Partial::open(request, out, on_news)?;
    if work::run(request, &mut partial, stop, patience, on_news)? == work::Stop::Asked {
        partial.save()?;
        return Ok(PrepareOutcome::Interrupted(partial.done()));
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
        let warning =
            losses.warnings(tokens).first().map_or(String::new(), |warning| format!(": {warning}"));
        return Err(Problem::input(
            format!("no part of the documents is left{warning}"),
            "use a tokenizer that knows their script, or `--tokenizer bytes`",
        ));
    }
    partial.finish()?;
    Ok(PrepareOutcome::Finished { report, losses, tokens })
}

#[cfg(test)]
mod replaced;
#[cfg(test)]
mod tests;
