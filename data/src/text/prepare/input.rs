//! In: an input file and a position in it. Out: its records from there on, in pieces of about a megabyte, each with the
//! position after it. Must stay true: pieces depend only on the file; memory use exceeds a piece's size by at most one
//! line or one batch of rows; a compressed file may have any number of frames, and a truncated one is an error, never a
//! shorter file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::super::guard::guarded;
use super::super::index::BYTE_ORDER_MARK;
use super::super::lines::{Field, LONGEST_LINE};
use super::Input;
use super::parquet::Table;

/// Bytes of records that are tokenized together.
const PIECE: usize = 1 << 20;

/// The format of an input file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON lines.
    Lines,
    /// JSON lines, in Zstandard frames.
    Zstandard,
    /// JSON lines, in gzip members.
    Gzip,
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
}

/// The format by file name. A folder's files with other names are skipped.
pub fn format_of(path: &Path) -> Option<Format> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let ends = |end: &str| name.ends_with(end);
    if [".txt", ".text"].into_iter().any(ends) {
        return Some(Format::Text);
    }
    if ends(".jsonl") || ends(".json") || ends(".ndjson") {
        Some(Format::Lines)
    } else if ends(".jsonl.zst") || ends(".json.zst") || ends(".jsonl.zstd") {
        Some(Format::Zstandard)
    } else if ends(".jsonl.gz") || ends(".json.gz") {
        Some(Format::Gzip)
    } else {
        ends(".parquet").then_some(Format::Parquet)
    }
}

/// Whether a path is a pipe that a shell has already opened (`<(zcat …)`). Opening another one may block for ever.
#[cfg(unix)]
pub fn is_open_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let is_pipe = || std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
    ["/dev/fd", "/proc"].iter().any(|root| path.starts_with(root)) && is_pipe()
}

/// Whether a path is a pipe that a shell has already opened. Such pipes are only known on Unix.
#[cfg(not(unix))]
pub fn is_open_pipe(_: &Path) -> bool {
    false
}

/// The format by name, or else by the first character: JSON lines begin with a brace.
pub fn format_of_file(path: &Path) -> io::Result<Format> {
    if let Some(format) = format_of(path) {
        return Ok(format);
    }
    // A pipe can be read only once, so do not read its first character.
    if is_open_pipe(path) {
        return Ok(Format::Lines);
    }
    let mut start = Vec::new();
    disk::open(path)?.take(1 << 12).read_to_end(&mut start)?;
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
pub(super) struct Place {
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
}

/// Consecutive records.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) body: Body,
    /// Number of records before the first one.
    pub(super) start: u64,
    pub(super) end: Place,
    /// Its memory use.
    pub(super) weight: usize,
    /// Bytes of the file read up to the end of this piece.
    pub(super) read: u64,
}

/// A file being read.
pub(super) struct Pieces {
    reader: Reader,
    place: Place,
    counted: Arc<AtomicU64>,
}

enum Reader {
    Lines {
        lines: Box<dyn BufRead + Send>,
        kept: Option<(String, Place)>,
        plain: bool,
    },
    /// The whole file as one record; `None` after it was read.
    File(Option<Box<dyn BufRead + Send>>),
    Table(Box<Table>),
}

impl Pieces {
    /// Opens a file at a position. An error names the file and the cause.
    pub(super) fn open(
        input: &Input,
        field: &Field,
        plain: Plain,
        place: Place,
    ) -> Result<Pieces, String> {
        let counted = Arc::new(AtomicU64::new(0));
        let text = |error: io::Error| error.to_string();
        let Some(path) = &input.path else {
            let lines = Box::new(BufReader::new(io::stdin()));
            let plain = plain == Plain::Line;
            return Ok(Pieces {
                reader: Reader::Lines { lines, kept: None, plain },
                place,
                counted,
            });
        };
        let format = format_of_file(path).map_err(text)?;
        // A pipe that would block is refused, and a file of holes.
        let mut file = match is_open_pipe(path) && input.bytes == 0 {
            true => File::open(path).map_err(text)?,
            false => disk::open_large(path).map_err(text)?,
        };
        if format == Format::Parquet {
            let table = guarded(|| Table::open(file, field, place.records)).flatten()?;
            return Ok(Pieces { reader: Reader::Table(Box::new(table)), place, counted });
        }
        let mut skipped = place.offset;
        if matches!(format, Format::Lines | Format::Text) && skipped > 0 {
            file.seek(SeekFrom::Start(skipped)).map_err(text)?;
            counted.store(skipped, Ordering::Relaxed);
            skipped = 0;
        }
        let file = BufReader::with_capacity(1 << 17, Counting { file, counted: counted.clone() });
        let mut lines: Box<dyn BufRead + Send> = match format {
            Format::Lines | Format::Parquet | Format::Text => Box::new(file),
            Format::Zstandard => Box::new(BufReader::with_capacity(
                1 << 17,
                zstd::Decoder::with_buffer(file).map_err(text)?,
            )),
            Format::Gzip => Box::new(BufReader::with_capacity(
                1 << 17,
                flate2::bufread::MultiGzDecoder::new(file),
            )),
        };
        if io::copy(&mut lines.by_ref().take(skipped), &mut io::sink()).map_err(text)? < skipped {
            return Err("it is shorter than before".to_owned());
        }
        let reader = match (format, plain) {
            (Format::Text, Plain::File) => Reader::File((place.records == 0).then_some(lines)),
            (_, _) => Reader::Lines { lines, kept: None, plain: format == Format::Text },
        };
        Ok(Pieces { reader, place, counted })
    }

    /// The next piece, or None at the end.
    pub(super) fn next(&mut self) -> Result<Option<Piece>, String> {
        let Pieces { reader, place, counted } = self;
        let start = *place;
        let (mut body, weight) = match reader {
            Reader::File(file) => {
                let Some(file) = file.take() else { return Ok(None) };
                let mut bytes = Vec::new();
                let read = file.take(LONGEST_LINE + 1).read_to_end(&mut bytes);
                read.map_err(|error| error.to_string())?;
                place.records += 1;
                place.offset += bytes.len() as u64;
                let weight = bytes.len();
                match bytes.len() as u64 > LONGEST_LINE {
                    false => (Body::PlainFile(bytes), weight),
                    true => {
                        let why = format!(
                            "it has more than {}, the limit for a document; with --lines each line is a document",
                            dsl::size(LONGEST_LINE)
                        );
                        (Body::Bad(why), 0)
                    }
                }
            }
            Reader::Lines { lines, kept, plain } => {
                match next_lines(lines, place, kept).map_err(|error| error.to_string())? {
                    Some(Body::Lines(bytes)) => {
                        let weight = bytes.len();
                        match plain {
                            true => (Body::PlainLines(bytes), weight),
                            false => (Body::Lines(bytes), weight),
                        }
                    }
                    Some(body) => (body, 0),
                    None => return Ok(None),
                }
            }
            Reader::Table(table) => {
                let rows = guarded(|| table.next(PIECE)).flatten()?;
                if rows.is_empty() {
                    return Ok(None);
                }
                place.records += rows.len() as u64;
                counted.store(table.read(), Ordering::Relaxed);
                let weight = rows.iter().flatten().map(Vec::len).sum();
                (Body::Rows(rows), weight)
            }
        };
        if start.records == 0
            && let Body::Lines(bytes) | Body::PlainLines(bytes) | Body::PlainFile(bytes) = &mut body
        {
            let mark = bytes.len() - without_mark(bytes).len();
            bytes.drain(..mark);
        }
        let read = counted.load(Ordering::Relaxed);
        Ok(Some(Piece { body, start: start.records, end: *place, weight, read }))
    }
}

/// Lines up to the size of a piece. A line that is too long becomes a piece of its own, after the lines before it.
fn next_lines(
    lines: &mut dyn BufRead,
    place: &mut Place,
    kept: &mut Option<(String, Place)>,
) -> io::Result<Option<Body>> {
    if let Some((why, after)) = kept.take() {
        *place = after;
        return Ok(Some(Body::Bad(why)));
    }
    let mut bytes = Vec::new();
    while bytes.len() < PIECE {
        let (before, had) = (*place, bytes.len());
        let read = lines.take(LONGEST_LINE).read_until(b'\n', &mut bytes)? as u64;
        if read == 0 {
            break;
        }
        place.records += 1;
        place.offset += read;
        if read == LONGEST_LINE && bytes.last() != Some(&b'\n') {
            place.offset += skip_line(lines)?;
            let length = place.offset - before.offset;
            let why = format!(
                "{}, but a line can have at most {}",
                dsl::size(length),
                dsl::size(LONGEST_LINE)
            );
            if had == 0 {
                return Ok(Some(Body::Bad(why)));
            }
            bytes.truncate(had);
            bytes.shrink_to_fit();
            *kept = Some((why, *place));
            *place = before;
            break;
        }
    }
    Ok((!bytes.is_empty()).then_some(Body::Lines(bytes)))
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
