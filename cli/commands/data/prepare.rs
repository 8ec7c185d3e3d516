//! `canonc data prepare`: tokenizes documents once, into the file that locks are bound to.
//!
//! Only a prepared file is ever overwritten, and never an input.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use data::text::file;
use data::text::index::{LineCounts, OnBadLine};
use data::text::lines::Field;
use data::text::prepare::{
    Done, Fault, Format, News, Plain, PrepareOutcome, Request, SourceInput, format_of_file,
    prepare as prepare_documents,
};
use data::text::tokenizer::{Kind, MarkNames, TokenizerKind};
use records::progress::{bytes, rounded};

use super::inputs::sources;
use super::screen::Screen;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::options::within;
use crate::signals::stop_on_signals;
use crate::{output, tokenizer};

/// Tokenize documents once, into a file for `canonc bind` and `canonc run --data`
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  canonc data prepare shards/*.jsonl --out data/c4.index
  canonc data prepare web=web/ code=code.jsonl.zst books=books.parquet --out data/mix.index
  canonc data prepare gutenberg/ --out data/books.index        a folder of .txt files
  canonc data prepare fineweb_edu_shuffled/ --tokenizer tiktoken --tokenizer-file tokenizer.model \\
      --workers 16 --out data/fineweb.index
  zcat c4.jsonl.gz | canonc data prepare - --out data/c4.index

`--help` describes the file formats and how to continue after an interruption.",
    after_long_help = "\
Examples:
  canonc data prepare shards/*.jsonl --out data/c4.index
  canonc data prepare web=web/ code=code.jsonl.zst books=books.parquet --out data/mix.index
  canonc data prepare gutenberg/ --out data/books.index        a folder of .txt files
  canonc data prepare fineweb_edu_shuffled/ --tokenizer tiktoken --tokenizer-file tokenizer.model \\
      --workers 16 --out data/fineweb.index
  zcat c4.jsonl.gz | canonc data prepare - --out data/c4.index

Files: JSON lines, Parquet and plain text; compressed by gzip, zstd (any window), xz or bzip2, which is seen
from the content. A document is the string under `text` or, if missing, under `content`, or under --field. A
plain text file (.txt, .text, or a named file that does not begin with `{`) is one document; with --lines one
per line, with --paragraphs one per run of lines between blank lines. The output says how it was read.
A folder means all such files below it, sorted, and plain text only if there is nothing else; a folder with
Lingua's chunks (NAME.chunk.N.jsonl) means its chunks, by number. Files of a folder that are not read are
listed. The weights in a recipe refer to the sources in the order in which they are first named.

Tokenizers: `bytes`; `sentencepiece` and `tiktoken` read Llama-2's and Llama-3's tokenizer.model,
`huggingface` reads a tokenizer.json. Text that spells a special token is encoded as text. Bos and eos come
from the tokenizer file, or from --bos and --eos; the recipe decides whether documents get them.

The prepared file contains tokens, digests of documents and a manifest, and appears only when it is complete.
Until then work is kept in FILE.partial: after Ctrl-C, a kill or a power cut the same command continues from
the last saved point (one every 64 MiB of text), and the result has the same bytes for any --workers. Locks
are bound to one digest of tokens, documents and tokenizer; names of files and sources do not affect it.
Every read is checked against the file's digests, so a run never trains on tokens other than those that were
bound."
)]
pub(super) struct PrepareArgs {
    /// Files or folders, or `-` for standard input; NAME=FILE names their source
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// The prepared file to write
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// The tokenizer
    #[arg(long, value_enum, value_name = "KIND", default_value_t)]
    pub tokenizer: TokenizerArg,
    /// The tokenizer's file; not for bytes
    #[arg(long, value_name = "FILE")]
    pub tokenizer_file: Option<PathBuf>,
    /// The token before a document [default: as the tokenizer's file says]
    #[arg(long, value_name = "TOKEN")]
    pub bos: Option<String>,
    /// The token after a document [default: as the tokenizer's file says]
    #[arg(long, value_name = "TOKEN")]
    pub eos: Option<String>,
    /// The field or column with the document [default: text, else content]
    #[arg(long, value_name = "NAME")]
    pub field: Option<String>,
    /// Treat each line of plain text as a document, instead of each file
    #[arg(long)]
    pub lines: bool,
    /// Treat each paragraph of plain text as a document: lines up to the next blank line
    #[arg(long, conflicts_with = "lines")]
    pub paragraphs: bool,
    /// Number of tokenizer threads [default: one per core]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<u16>(1, 1024))]
    pub workers: Option<u16>,
    /// How to treat lines without a document: skip and list them, or fail
    #[arg(long, value_enum, value_name = "POLICY", default_value_t)]
    pub malformed: Malformed,
    /// Bytes of text between two points from which preparation can continue
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, hide = true)]
    pub checkpoint: u64,
    /// Abort at this point, for tests
    #[arg(long, value_name = "POINT", hide = true)]
    pub fault: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum TokenizerArg {
    /// Bytes of UTF-8, with 256 and 257 before and after a document
    #[default]
    Bytes,
    /// A SentencePiece BPE model, such as Llama-2's tokenizer.model
    Sentencepiece,
    /// Base64 tokens and ranks, such as Llama-3's tokenizer.model
    Tiktoken,
    /// A tokenizer.json of Hugging Face
    Huggingface,
}

impl From<TokenizerArg> for Kind {
    fn from(typed: TokenizerArg) -> Kind {
        match typed {
            TokenizerArg::Bytes => Kind::Bytes,
            TokenizerArg::Sentencepiece => Kind::File(TokenizerKind::SentencePiece),
            TokenizerArg::Tiktoken => Kind::File(TokenizerKind::Tiktoken),
            TokenizerArg::Huggingface => Kind::File(TokenizerKind::HuggingFace),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Malformed {
    #[default]
    Refuse,
    Skip,
}

pub(super) fn prepare(args: &PrepareArgs) -> Outcome {
    let PrepareArgs { files: typed, out, field, malformed, checkpoint, .. } = args;
    let sources = sources(typed, out)?;
    let plain = match (args.lines, args.paragraphs) {
        (true, _) => Plain::Line,
        (false, true) => Plain::Paragraph,
        (false, false) => Plain::File,
    };
    say_plain(&sources, plain)?;
    let tokenizer = tokenizer::read(
        args.tokenizer.into(),
        args.tokenizer_file.as_deref(),
        MarkNames { bos: args.bos.clone(), eos: args.eos.clone() },
    )?;
    let before = out_of_the_way(out, &sources)?;
    let fault = match &args.fault {
        None => None,
        Some(text) => Some(Fault::parse(text).ok_or_else(|| {
            Failure::bad_input(format!("`{text}` is not a point at which it can abort"))
        })?),
    };
    let request = Request {
        sources: &sources,
        field: field.clone().map_or(Field::Usual, Field::Named),
        plain,
        on_bad_line: match malformed {
            Malformed::Refuse => OnBadLine::Refuse,
            Malformed::Skip => OnBadLine::Skip,
        },
        tokenizer: &tokenizer,
        workers: workers(args.workers),
        checkpoint: (*checkpoint).max(1),
        fault,
    };
    let stop = stop_on_signals()?;
    let total = sources.iter().flat_map(|source| &source.files).map(|file| file.bytes).sum();
    let mut screen = Screen::new(total);
    let mut start = 0;
    let ended = prepare_documents(&request, out, &stop, &mut |news| match news {
        News::Resumed(done) => {
            start = done.read;
            output::note(&resumed(done));
        }
        News::Anew(why) => {
            output::note(&format!("{}.partial cannot be continued: {why}", shown(out)))
        }
        News::Progress(done) => {
            let Done { read, documents, tokens: _ } = *done;
            screen.show(read, |seconds| {
                let rate = bytes((read.saturating_sub(start) as f64 / seconds.max(1e-9)) as u64);
                let documents = rounded(documents as f64);
                let (read, total) = (bytes(read), bytes(total.max(read)));
                format!("{read} of {total}  {documents} documents  {rate}/s")
            });
        }
    });
    screen.clear();
    match ended.map_err(Failure::from)? {
        PrepareOutcome::Finished { report, losses, tokens } => {
            say(&report, &losses.warnings(tokens), out, before)?;
            Ok(Exit::Fine)
        }
        PrepareOutcome::Interrupted(done) => {
            output::note(&format!(
                "interrupted after {}; the same command continues from there",
                so_far(&done)
            ));
            Ok(Exit::Interrupted)
        }
    }
}

/// Reports which files are read as plain text, and how they are split into documents.
fn say_plain(sources: &[SourceInput], plain: Plain) -> Result<(), Failure> {
    let (mut count, mut first, mut piped) = (0, None, false);
    for input in sources.iter().flat_map(|source| &source.files) {
        let Some(path) = &input.path else {
            piped = true;
            continue;
        };
        let format = format_of_file(path).map_err(|error| Failure::cannot_read(path, &error))?;
        if format == Format::Text {
            count += 1;
            first = first.or(Some(&input.name));
        }
    }
    let Some(first) = first else {
        let option = match plain {
            Plain::File => None,
            Plain::Line => Some("--lines"),
            Plain::Paragraph => Some("--paragraphs"),
        };
        if let (Some(option), false) = (option, piped) {
            let message = format!("{option} is for plain text, but no file is plain text");
            return Err(Failure::bad_input(message)
                .help("plain text files end in .txt or .text, or do not begin with `{`"));
        }
        return Ok(());
    };
    let which = match count {
        1 => format!("{first}: read as plain text"),
        _ => format!("{first} and {} more: read as plain text", count - 1),
    };
    let document = match plain {
        Plain::Line => "each line is a document",
        Plain::Paragraph => "each paragraph is a document",
        Plain::File => {
            "each file is a document (use --lines or --paragraphs for one document per line or paragraph)"
        }
    };
    output::note(&format!("{which}, {document}"));
    Ok(())
}

/// Says from where an interrupted preparation continues.
pub(super) fn resumed(done: &Done) -> String {
    format!("going on after {}", so_far(done))
}

fn so_far(done: &Done) -> String {
    let Done { read, documents, tokens: _ } = *done;
    format!("{} of {}", output::counted(documents, "document"), bytes(read))
}

/// Number of threads; a default if none was given.
pub(super) fn workers(asked: Option<u16>) -> usize {
    asked.map_or_else(
        || std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
        usize::from,
    )
}

fn say(
    report: &LineCounts,
    warnings: &[String],
    out: &Path,
    replaced: bool,
) -> Result<(), Failure> {
    if report.malformed > 0 {
        for line in report.malformed_lines().lines() {
            output::note(line);
        }
    }
    if report.empty > 0 {
        output::note(&format!("{} left out", output::counted(report.empty, "empty document")));
    }
    let index = file::load(out)?;
    for source in index.sources() {
        let documents = source.documents.end - source.documents.start;
        output::note(&format!(
            "source {}: {}, {}",
            source.name,
            output::counted(documents, "document"),
            output::counted(index.tokens_of(&source.documents)?, "token")
        ));
    }
    let (identity, tokenizer) = (index.identity().to_hex(), index.tokenizer());
    output::note(&format!(
        "{}: {} {}, {}, data {}, {}",
        shown(out),
        if replaced { "replaced by" } else { "wrote" },
        output::counted(report.documents, "document"),
        output::counted(report.bytes, "byte"),
        identity.get(..12).unwrap_or_default(),
        match tokenizer.kind {
            Kind::Bytes => "tokenizer bytes".to_owned(),
            Kind::File(_) => format!(
                "tokenizer {} {} of {}",
                tokenizer.kind,
                tokenizer.digest.to_hex().get(..12).unwrap_or_default(),
                output::counted(tokenizer.vocab, "token id")
            ),
        }
    ));
    for warning in warnings {
        output::note(&format!("warning: {warning}"));
    }
    Ok(())
}

/// Refuses to overwrite a file that is not a prepared one, or is an input. Returns whether one already exists.
fn out_of_the_way(out: &Path, sources: &[SourceInput]) -> Result<bool, Failure> {
    if out.as_os_str() == "-" || out.file_name().is_none() {
        return Err(Failure::bad_input("prepared documents cannot be written to a stream")
            .help("name it with --out FILE, such as data/c4.index"));
    }
    crate::out::outside_of_runs(out)?;
    if let Some(folder) = out.parent().filter(|folder| !folder.as_os_str().is_empty())
        && !folder.is_dir()
    {
        crate::out::folder(folder)?;
        disk::create_folders(folder).map_err(|error| Failure::cannot_write(folder, &error))?;
    }
    let is_link = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let mut partial = out.as_os_str().to_owned();
    partial.push(".partial");
    for path in [out, Path::new(&partial)] {
        if is_link(path) {
            return Err(Failure::bad_input(format!(
                "`{}` is a link, and canonc does not write through links to files",
                shown(path)
            ))
            .help("name the file itself, or another one with --out"));
        }
    }
    let Ok(real) = fs::canonicalize(out) else { return Ok(false) };
    let same = |path: &PathBuf| fs::canonicalize(path).is_ok_and(|path| path == real);
    let mut inputs = sources.iter().flat_map(|source| &source.files);
    let read = inputs.any(|input| input.path.as_ref().is_some_and(same));
    let index = real.is_file()
        && file::is_index(&real).map_err(|error| Failure::cannot_read(out, &error))?;
    if read || !index {
        let what = match (read, real.is_dir()) {
            (true, _) => "one of the files to be read",
            (false, true) => "a folder",
            (false, false) => "not a file of prepared documents",
        };
        return Err(Failure::bad_input(format!(
            "`{}` exists and is {what}; it is not overwritten",
            shown(out)
        ))
        .help("name another file with --out, or remove this one first"));
    }
    Ok(index)
}
