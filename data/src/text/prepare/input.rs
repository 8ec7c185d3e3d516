//! Reads an input file from a position on, in pieces of about a megabyte, each with the position after it.
//!
//! Pieces depend only on the file, and memory exceeds a piece by at most one document or one batch of rows. A compressed
//! file may have any number of frames; a truncated one is an error, never a shorter file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::content::{Content, unpacked};
use dsl::Problem;
use serde::{Deserialize, Serialize};

use super::super::guard::guarded;
use super::super::index::BYTE_ORDER_MARK;
use super::super::lines::{Field, LONGEST_LINE};
use super::Input;
use super::parquet::Table;

/// Bytes of records that are tokenized together.
const PIECE: usize = 1 << 20;

/// The format of an input file, after it was decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON lines.
    Lines,
    /// A Parquet table with a column of texts.
    Parquet,
    /// Plain text.
    Text,
}

/// What counts as a document in plain text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plain {
    /// Each file is one document.
    #[default]
    File,
    /// Each line is one document.
    Line,
    /// Each run of lines between blank lines is one document.
    Paragraph,
}

/// Endings of compressed files.
const PACKED: [&str; 6] = [".zst", ".zstd", ".gz", ".xz", ".bz2", ".bzip2"];

/// The name of a file in lower case without the ending of its compression, and whether it had one.
fn inner_name(path: &Path) -> Option<(String, bool)> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let inner = PACKED.iter().find_map(|end| name.strip_suffix(end)).map(str::to_owned);
    Some(inner.map_or((name, false), |inner| (inner, true)))
}

/// The format by file name.
fn format_of(path: &Path) -> Option<Format> {
    let (name, _) = inner_name(path)?;
    let ends = |end: &&str| name.ends_with(*end);
    if [".txt", ".text"].iter().any(&ends) {
        return Some(Format::Text);
    }
    if [".jsonl", ".json", ".ndjson"].iter().any(ends) {
        return Some(Format::Lines);
    }
    name.ends_with(".parquet").then_some(Format::Parquet)
}

/// Whether a file in a folder holds documents, judging by its name: it has a known format, or is compressed and has no
/// other ending, such as `RC_2011-01.zst`.
pub fn has_documents(path: &Path) -> bool {
    let is_bare = || inner_name(path).is_some_and(|(name, packed)| packed && !name.contains('.'));
    format_of(path).is_some() || is_bare()
}

/// Whether a path is a pipe that a shell has already opened (`<(zcat …)`). Opening another one may block for ever.
#[cfg(unix)]
pub fn is_open_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let is_pipe = || std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo());
    ["/dev/fd", "/proc"].iter().any(|root| path.starts_with(root)) && is_pipe()
}

/// Whether a path is a pipe that a shell has already opened. Such pipes are only known on Unix.
#[cfg(not(unix))]
pub fn is_open_pipe(_: &Path) -> bool {
    false
}

/// The format: Parquet by its mark, others by name, or else by the first character of the text, since JSON lines begin
/// with a brace.
pub fn format_of_file(path: &Path) -> io::Result<Format> {
    // A pipe can be read only once, so do not read its first character.
    if is_open_pipe(path) {
        return Ok(format_of(path).unwrap_or(Format::Lines));
    }
    if Content::of_file(path)? == Content::Parquet {
        return Ok(Format::Parquet);
    }
    if let Some(format) = format_of(path) {
        return Ok(format);
    }
    let mut start = Vec::new();
    let text = unpacked(BufReader::new(disk::open(path)?));
    match text.and_then(|text| text.take(1 << 12).read_to_end(&mut start)) {
        Err(error) if disk::is_of_machine(&error) => return Err(error),
        // Text that cannot be unpacked is refused when it is opened to be prepared.
        Err(_) if start.is_empty() => return Ok(Format::Text),
        Ok(_) | Err(_) => {}
    }
    let first = without_mark(&start).trim_ascii_start().first();
    Ok(if first.is_none_or(|first| *first == b'{') { Format::Lines } else { Format::Text })
}

/// The text, without the byte order mark that some editors put before it.
pub(super) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// A position between two records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordPosition {
    /// Lines or rows before it.
    pub(super) records: u64,
    /// Uncompressed bytes before it; not used in tables.
    pub(super) offset: u64,
}

/// The content of a piece.
#[derive(Debug)]
pub(super) enum Body {
    /// Whole lines.
    Lines(Vec<u8>),
    /// A record that cannot be read.
    Bad(String),
    /// Values of a column; `None` for a missing value.
    Rows(Vec<Option<Vec<u8>>>),
    /// Whole lines of plain text, each a document.
    PlainLines(Vec<u8>),
    /// A file of plain text.
    PlainFile(Vec<u8>),
    /// Whole paragraphs of plain text, each a document.
    Paragraphs(Vec<u8>),
}

/// Consecutive records.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) body: Body,
    /// Number of records before the first one.
    pub(super) start: u64,
    pub(super) end: RecordPosition,
    /// Its memory use.
    pub(super) weight: usize,
    /// Bytes of the file read up to the end of this piece.
    pub(super) read: u64,
}

/// A file being read.
pub(super) struct Pieces {
    reader: PieceReader,
    position: RecordPosition,
    counted: Arc<AtomicU64>,
}

enum PieceReader {
    Lines {
        lines: Box<dyn BufRead + Send>,
        kept: Option<(String, RecordPosition)>,
        plain: Plain,
        is_text: bool,
    },
    /// The whole file as one record; `None` after it was read.
    File(Option<Box<dyn BufRead + Send>>),
    Table(Box<Table>),
}

/// Why a file cannot be read, and what to do about it.
#[derive(Debug)]
pub(super) struct Unreadable {
    /// Of the system, or of what is in the file.
    error: io::Error,
    help: &'static str,
}

impl Unreadable {
    /// The problem of the file of that name.
    pub(super) fn problem(&self, name: &str) -> Problem {
        let Unreadable { error, help } = self;
        disk::cannot_read(error, format!("cannot read {name}: {error}"), *help)
    }
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Unreadable {
        let help = "check that the file exists, is complete and has the format of its extension";
        Unreadable { error, help }
    }
}

impl From<String> for Unreadable {
    fn from(reason: String) -> Unreadable {
        Unreadable::from(io::Error::other(reason))
    }
}

impl Pieces {
    /// Opens a file at a position.
    pub(super) fn open(
        input: &Input,
        field: &Field,
        plain: Plain,
        position: RecordPosition,
    ) -> Result<Pieces, Unreadable> {
        let counted = Arc::new(AtomicU64::new(0));
        let Some(path) = &input.path else {
            let lines = text_of(BufReader::with_capacity(1 << 17, io::stdin()))?;
            let is_text = plain != Plain::File;
            let reader = PieceReader::Lines { lines, kept: None, plain, is_text };
            return Ok(Pieces { reader, position, counted });
        };
        let format = format_of_file(path)?;
        // A pipe that would block is refused, and a file of holes.
        let is_pipe = is_open_pipe(path) && input.bytes == 0;
        let mut file = if is_pipe { File::open(path)? } else { disk::open_large(path)? };
        if format == Format::Parquet {
            let table = guarded(|| Table::open(file, field, position.records)).flatten()?;
            return Ok(Pieces { reader: PieceReader::Table(Box::new(table)), position, counted });
        }
        let is_plain = !is_pipe && Content::of_file(path)? == Content::Other;
        let mut skipped = position.offset;
        if is_plain && skipped > 0 {
            file.seek(SeekFrom::Start(skipped))?;
            counted.store(skipped, Ordering::Relaxed);
            skipped = 0;
        }
        let file = BufReader::with_capacity(1 << 17, Counting { file, counted: counted.clone() });
        // The middle of a file may begin like another kind.
        let mut lines = if is_plain { Box::new(file) } else { text_of(file)? };
        if io::copy(&mut lines.by_ref().take(skipped), &mut io::sink())? < skipped {
            return Err("it is shorter than before".to_owned().into());
        }
        let is_text = format == Format::Text;
        let reader = match (is_text, plain) {
            (true, Plain::File) => PieceReader::File((position.records == 0).then_some(lines)),
            _ => PieceReader::Lines { lines, kept: None, plain, is_text },
        };
        Ok(Pieces { reader, position, counted })
    }

    /// The next piece, or None at the end.
    pub(super) fn next(&mut self) -> Result<Option<Piece>, Unreadable> {
        let Pieces { reader, position, counted } = self;
        let start = *position;
        let next = match reader {
            PieceReader::File(file) => whole_file(file, position)?,
            PieceReader::Lines { lines, kept, plain, is_text } => {
                let by_paragraph = *is_text && *plain == Plain::Paragraph;
                next_lines(lines, position, kept, by_paragraph)?.map(|body| match body {
                    Body::Lines(bytes) => {
                        let weight = bytes.len();
                        let body = match (*is_text, plain) {
                            (false, _) => Body::Lines(bytes),
                            (true, Plain::Paragraph) => Body::Paragraphs(bytes),
                            (true, Plain::File | Plain::Line) => Body::PlainLines(bytes),
                        };
                        (body, weight)
                    }
                    body @ (Body::Bad(_)
                    | Body::Rows(_)
                    | Body::PlainLines(_)
                    | Body::PlainFile(_)
                    | Body::Paragraphs(_)) => (body, 0),
                })
            }
            PieceReader::Table(table) => {
                let rows = guarded(|| table.next(PIECE)).flatten()?;
                if rows.is_empty() {
                    return Ok(None);
                }
                position.records += rows.len() as u64;
                counted.store(table.read(), Ordering::Relaxed);
                let weight = rows.iter().flatten().map(Vec::len).sum();
                Some((Body::Rows(rows), weight))
            }
        };
        let Some((mut body, weight)) = next else { return Ok(None) };
        if start.records == 0
            && let Body::Lines(bytes)
            | Body::PlainLines(bytes)
            | Body::Paragraphs(bytes)
            | Body::PlainFile(bytes) = &mut body
        {
            let mark = bytes.len() - without_mark(bytes).len();
            bytes.drain(..mark);
        }
        let read = counted.load(Ordering::Relaxed);
        Ok(Some(Piece { body, start: start.records, end: *position, weight, read }))
    }
}

/// The only piece of a file that is one document, with its weight; `None` after it was read.
fn whole_file(
    file: &mut Option<Box<dyn BufRead + Send>>,
    position: &mut RecordPosition,
) -> io::Result<Option<(Body, usize)>> {
    let Some(file) = file.take() else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(LONGEST_LINE + 1).read_to_end(&mut bytes)?;
    position.records += 1;
    position.offset += bytes.len() as u64;
    let weight = bytes.len();
    if bytes.len() as u64 <= LONGEST_LINE {
        return Ok(Some((Body::PlainFile(bytes), weight)));
    }
    let reason = format!(
        "it has more than {}, the limit for a document; with --lines or --paragraphs a part of it is",
        dsl::size(LONGEST_LINE)
    );
    Ok(Some((Body::Bad(reason), 0)))
}

/// The text in a stream, or what it is instead and what to type.
fn text_of<R: BufRead + Send + 'static>(
    mut from: R,
) -> Result<Box<dyn BufRead + Send>, Unreadable> {
    let help = Content::of_start(from.fill_buf()?).help();
    unpacked(from).map_err(|error| {
        let unreadable = Unreadable::from(error);
        Unreadable { help: help.unwrap_or(unreadable.help), ..unreadable }
    })
}

/// Lines up to the size of a piece; with `by_paragraph` up to the first blank line after that. A line or paragraph that
/// is too long becomes a piece of its own, after the lines before it.
fn next_lines(
    lines: &mut dyn BufRead,
    position: &mut RecordPosition,
    kept: &mut Option<(String, RecordPosition)>,
    by_paragraph: bool,
) -> io::Result<Option<Body>> {
    if let Some((reason, after)) = kept.take() {
        *position = after;
        return Ok(Some(Body::Bad(reason)));
    }
    let mut bytes = Vec::new();
    // Where the last paragraph begins.
    let (mut paragraph, mut at_paragraph) = (0, *position);
    let mut is_ended = true;
    while bytes.len() < PIECE || by_paragraph && !is_ended {
        let (before, had) = (*position, bytes.len());
        let read = lines.take(LONGEST_LINE).read_until(b'\n', &mut bytes)? as u64;
        if read == 0 {
            break;
        }
        position.records += 1;
        position.offset += read;
        is_ended = bytes.get(had..).unwrap_or_default().trim_ascii().is_empty();
        if is_ended {
            (paragraph, at_paragraph) = (bytes.len(), *position);
        }
        let unended = read == LONGEST_LINE && bytes.last() != Some(&b'\n');
        let too_long = by_paragraph && (bytes.len() - paragraph) as u64 > LONGEST_LINE;
        if !unended && !too_long {
            continue;
        }
        let (from, at) = if by_paragraph { (paragraph, at_paragraph) } else { (had, before) };
        if unended {
            position.offset += skip_line(lines)?;
        }
        if by_paragraph {
            skip_paragraph(lines, position)?;
        }
        let length = dsl::size(position.offset - at.offset);
        let what = if by_paragraph { "paragraph" } else { "line" };
        let reason = format!("{length}, but a {what} can have at most {}", dsl::size(LONGEST_LINE));
        if from == 0 {
            return Ok(Some(Body::Bad(reason)));
        }
        bytes.truncate(from);
        bytes.shrink_to_fit();
        *kept = Some((reason, *position));
        *position = at;
        break;
    }
    Ok((!bytes.is_empty()).then_some(Body::Lines(bytes)))
}

/// Skips the lines up to the next blank one, a bounded part of a line at a time.
fn skip_paragraph(lines: &mut dyn BufRead, position: &mut RecordPosition) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = lines.take(1 << 16).read_until(b'\n', &mut line)? as u64;
        position.offset += read;
        if read == 0 {
            return Ok(());
        }
        position.records += 1;
        let is_blank = line.trim_ascii().is_empty();
        if line.last() != Some(&b'\n') {
            position.offset += skip_line(lines)?;
        }
        if is_blank {
            return Ok(());
        }
    }
}

fn skip_line(lines: &mut dyn BufRead) -> io::Result<u64> {
    let mut skipped = 0;
    loop {
        let buffer = lines.fill_buf()?;
        if buffer.is_empty() {
            return Ok(skipped);
        }
        let end = buffer.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let count = end.unwrap_or(buffer.len());
        lines.consume(count);
        skipped += count as u64;
        if end.is_some() {
            return Ok(skipped);
        }
    }
}

/// Counts the bytes read from a file.
struct Counting {
    file: File,
    counted: Arc<AtomicU64>,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.counted.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
