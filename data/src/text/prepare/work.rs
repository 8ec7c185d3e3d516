//! Makes the tokens of a request's documents, in the order of the input: one thread reads, the requested number make
//! tokens, the caller's puts them in order. The bytes between reading and writing are bounded, whichever part is slow.
//! An error is the first one in input order, but for a document that takes too long.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use dsl::Problem;

use super::super::layout::width;
use super::super::lines::{BadLine, Field, LineCounts, NAMED_LINES, OnBadLine, document_of};
use super::super::losses::Losses;
use super::super::tokenizer::{Kind, Tokenizer};
use super::input::{Body, Piece, Pieces, RecordPosition, Unreadable};
use super::partial::Partial;
use super::piece::{InputPosition, TokenizedPiece, inputs};
use super::{News, Request};

/// Maximum bytes of pieces between reading and writing.
const IN_FLIGHT: usize = 64 << 20;

/// Processor time that a document may take, besides [`SECONDS_PER_MIB`]. A pattern that looks ahead can take a time that grows with
/// the square of a document's length.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Tokenizers make more than a MiB in this time, even without optimisation.
const SECONDS_PER_MIB: f64 = 10.0;

/// Shorter documents are not watched: they end soon with any pattern.
const WATCHED: usize = 16 << 10;

/// How often a stop is noticed while a document is tokenized.
const TICK: Duration = Duration::from_millis(100);

/// Why the work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// All input is processed.
    Done,
    Asked,
}

/// A piece of work. Its number gives the order.
struct Job {
    number: u64,
    file: usize,
    piece: Piece,
}

/// The number of a job, and its result.
type NumberedPiece = (u64, Result<TokenizedPiece, Problem>);

pub(super) fn run(
    request: &Request<'_>,
    partial: &mut Partial<'_>,
    stop: &AtomicBool,
    patience: Duration,
    on_news: &mut dyn FnMut(&News),
) -> Result<Stop, Problem> {
    let gate = Gate::default();
    let start = partial.at();
    let (jobs, waiting) = channel::<Job>();
    let (output, results) = channel::<NumberedPiece>();
    let names = inputs(request.sources).into_iter().map(|input| input.name.clone()).collect();
    let shared = Arc::new(Shared {
        tokenizer: request.tokenizer.clone(),
        field: request.field.clone(),
        names,
        waiting: Mutex::new(waiting),
        counting: AtomicBool::new(partial.refused()),
        halt: AtomicBool::new(false),
        workers: u32::try_from(request.workers.max(1)).unwrap_or(u32::MAX),
        watched: Mutex::default(),
    });
    // They end with the process, not with this call: nothing can stop the library inside a document.
    for worker in 0..request.workers.max(1) {
        let (shared, output) = (Arc::clone(&shared), output.clone());
        std::thread::spawn(move || work(&shared, worker, &output));
    }
    std::thread::scope(|scope| {
        let (gate, halt) = (&gate, &shared.halt);
        scope.spawn(move || read(request, start, gate, halt, &jobs, &output));
        let writer = Writer { request, shared: &shared, gate, patience };
        let ended = writer.write(partial, &results, stop, on_news);
        halt.store(true, Ordering::Relaxed);
        gate.open();
        ended
    })
}

/// What the workers share.
struct Shared {
    tokenizer: Tokenizer,
    field: Field,
    names: Vec<String>,
    waiting: Mutex<Receiver<Job>>,
    /// Once a line is refused, nothing will be written, and the rest is only counted.
    counting: AtomicBool,
    halt: AtomicBool,
    workers: u32,
    /// The long document that each worker is at.
    watched: Mutex<BTreeMap<usize, Watched>>,
}

/// A long document that is being tokenized.
struct Watched {
    name: String,
    line: u64,
    bytes: usize,
    /// The processor time of the process at its begin: a busy machine gives it less.
    since: Duration,
}

/// Processor time that this process has used.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanoseconds)
}

impl Shared {
    fn watched(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `encode` for a document; the caller's thread sees how long it takes.
    fn watch<T>(
        &self,
        worker: usize,
        name: &str,
        line: u64,
        bytes: usize,
        encode: impl FnOnce() -> T,
    ) -> T {
        if bytes < WATCHED {
            return encode();
        }
        let document = Watched { name: name.to_owned(), line, bytes, since: processor_time() };
        self.watched().insert(worker, document);
        let result = encode();
        self.watched().remove(&worker);
        result
    }

    /// A document that takes longer than it may.
    fn overdue(&self, patience: Duration) -> Option<Problem> {
        let watched = self.watched();
        let (document, seconds) = watched.values().find_map(|document| {
            let mib = document.bytes as f64 / f64::from(1 << 20);
            let may = patience + Duration::from_secs_f64(SECONDS_PER_MIB * mib);
            // Each worker may have used as much.
            let used = processor_time().saturating_sub(document.since) / self.workers;
            (used > may).then_some((document, may.as_secs()))
        })?;
        Some(Problem::input(
            format!(
                "{}:{}: this document of {} bytes is not tokenized after {seconds} s of computing",
                document.name, document.line, document.bytes
            ),
            "split or remove it: a tokenizer whose pattern looks ahead needs the square of a long run of digits or blanks",
        ))
    }
}

/// Puts results in order.
struct Writer<'a> {
    request: &'a Request<'a>,
    shared: &'a Shared,
    gate: &'a Gate,
    patience: Duration,
}

impl Writer<'_> {
    fn write(
        &self,
        partial: &mut Partial<'_>,
        results: &Receiver<NumberedPiece>,
        stop: &AtomicBool,
        on_news: &mut dyn FnMut(&News),
    ) -> Result<Stop, Problem> {
        let mut early: BTreeMap<u64, Result<TokenizedPiece, Problem>> = BTreeMap::new();
        let mut next = 0;
        loop {
            match results.recv_timeout(TICK) {
                Ok((number, result)) => {
                    early.insert(number, result);
                }
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                    return Ok(Stop::Asked);
                }
                Err(RecvTimeoutError::Timeout) => {}
                // Before the end only if the reader panicked, which the caller passes on.
                Err(RecvTimeoutError::Disconnected) => return Ok(Stop::Done),
            }
            if let Some(error) = self.shared.overdue(self.patience) {
                return Err(error);
            }
            while let Some(result) = early.remove(&next) {
                let piece = result?;
                next += 1;
                self.gate.leave(piece.weight);
                partial.add(piece)?;
                if self.request.on_bad_line == OnBadLine::Refuse && partial.refused() {
                    self.shared.counting.store(true, Ordering::Relaxed);
                }
                on_news(&News::Progress(partial.done()));
                if stop.load(Ordering::Relaxed) {
                    return Ok(Stop::Asked);
                }
            }
        }
    }
}

/// Reads all files from `start` on.
fn read(
    request: &Request<'_>,
    start: InputPosition,
    gate: &Gate,
    halt: &AtomicBool,
    jobs: &Sender<Job>,
    output: &Sender<NumberedPiece>,
) {
    let mut number = 0;
    for (file, input) in inputs(request.sources).into_iter().enumerate().skip(start.file) {
        let position = if file == start.file { start.place } else { RecordPosition::default() };
        let failed = |unreadable: Unreadable| unreadable.problem(&input.name);
        let mut pieces = match Pieces::open(input, &request.field, request.plain, position) {
            Ok(pieces) => pieces,
            Err(reason) => {
                let _ = output.send((number, Err(failed(reason))));
                return;
            }
        };
        loop {
            match pieces.next() {
                Ok(None) => break,
                Ok(Some(piece)) => {
                    gate.enter(piece.weight, halt);
                    // A send fails when no worker is left; then no one waits for more.
                    if halt.load(Ordering::Relaxed)
                        || jobs.send(Job { number, file, piece }).is_err()
                    {
                        return;
                    }
                    number += 1;
                }
                Err(reason) => {
                    let _ = output.send((number, Err(failed(reason))));
                    return;
                }
            }
        }
    }
}

fn work(shared: &Shared, worker: usize, output: &Sender<NumberedPiece>) {
    let mut ids = Vec::new();
    loop {
        let job = shared.waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { number, file, piece }) = job else { return };
        if shared.halt.load(Ordering::Relaxed) {
            return;
        }
        let after = InputPosition { file, place: piece.end };
        let result = without_panic(|| tokenize_piece(shared, worker, after, piece, &mut ids));
        if output.send((number, result)).is_err() {
            return;
        }
    }
}

/// A panic as an error, after its own message: the writer waits for the result of every piece.
fn without_panic<T>(call: impl FnOnce() -> Result<T, Problem>) -> Result<T, Problem> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        let help = "this is a bug in canonc; please report it";
        Err(Problem::machine("a thread that makes tokens failed", help))
    })
}

/// Makes tokens of a piece, or only counts its documents.
fn tokenize_piece(
    shared: &Shared,
    worker: usize,
    after: InputPosition,
    piece: Piece,
    ids: &mut Vec<u32>,
) -> Result<TokenizedPiece, Problem> {
    let field = &shared.field;
    let Piece { body, start, end: _, weight, read } = piece;
    let mut work = PieceWork {
        shared,
        worker,
        name: shared.names.get(after.file).map_or("", String::as_str),
        counting: shared.counting.load(Ordering::Relaxed),
        ids,
        piece: TokenizedPiece {
            after,
            tokens: Vec::new(),
            documents: Vec::new(),
            report: LineCounts::default(),
            losses: Losses::default(),
            weight,
            read,
        },
    };
    let first = start + 1;
    match body {
        Body::Bad(reason) => work.take(first, Err(reason))?,
        Body::Rows(rows) => {
            for (line, row) in (first..).zip(rows) {
                let text = row.ok_or_else(|| format!("{field} has no value"));
                let text = text.and_then(|bytes| {
                    String::from_utf8(bytes).map_err(|_| format!("{field} is not UTF-8"))
                });
                work.take(line, text)?;
            }
        }
        Body::PlainFile(bytes) => {
            let text = String::from_utf8(bytes).map_err(|_| "the file is not UTF-8".to_owned());
            work.take(first, text)?;
        }
        Body::Paragraphs(bytes) => work.paragraphs(&bytes, first)?,
        Body::PlainLines(bytes) => work.plain_lines(&bytes, first)?,
        Body::Lines(bytes) => work.json_lines(&bytes, first)?,
    }
    Ok(work.piece)
}

/// A piece whose documents are being tokenized.
struct PieceWork<'a> {
    shared: &'a Shared,
    worker: usize,
    /// The file's name in messages.
    name: &'a str,
    /// Whether documents are only counted.
    counting: bool,
    /// A buffer for the ids of one document.
    ids: &'a mut Vec<u32>,
    piece: TokenizedPiece,
}

impl PieceWork<'_> {
    /// Adds the document of a line, or the reason why it has none.
    fn take(&mut self, line: u64, document: Result<String, String>) -> Result<(), Problem> {
        let PieceWork { shared, worker, name, counting, ids, piece } = self;
        let tokenizer = &shared.tokenizer;
        let TokenizedPiece { tokens, documents, report, losses, .. } = piece;
        report.lines += 1;
        match document {
            Ok(text) if text.is_empty() => report.empty += 1,
            Ok(text) => {
                report.documents += 1;
                report.bytes += text.len() as u64;
                if !*counting {
                    let before = tokens.len();
                    let encode = || encode(tokenizer, &text, ids, tokens, losses);
                    shared.watch(*worker, name, line, text.len(), encode).map_err(|reason| {
                        Problem::input(
                            format!("{name}:{line}: this document cannot be tokenized: {reason}"),
                            "remove it, or use another tokenizer",
                        )
                    })?;
                    let count = (tokens.len() - before) as u64 / width(tokenizer.info());
                    documents.push((count, blake3::hash(text.as_bytes())));
                }
            }
            Err(reason) => {
                report.malformed += 1;
                if report.first_bad.len() < NAMED_LINES {
                    report.first_bad.push(BadLine { file: (*name).to_owned(), line, reason });
                }
            }
        }
        Ok(())
    }

    fn count_blank(&mut self) {
        self.piece.report.lines += 1;
        self.piece.report.blank += 1;
    }

    fn paragraphs(&mut self, bytes: &[u8], first: u64) -> Result<(), Problem> {
        // The lines of the paragraph, and the number of its first one.
        let (mut paragraph, mut paragraph_start): (Vec<&[u8]>, u64) = (Vec::new(), 0);
        for (number, line) in lines_of(bytes, first) {
            if line.trim_ascii().is_empty() {
                self.end_paragraph(&mut paragraph, paragraph_start)?;
                self.count_blank();
                continue;
            }
            if paragraph.is_empty() {
                paragraph_start = number;
            }
            paragraph.push(line);
        }
        self.end_paragraph(&mut paragraph, paragraph_start)
    }

    fn end_paragraph(&mut self, lines: &mut Vec<&[u8]>, first: u64) -> Result<(), Problem> {
        if lines.is_empty() {
            return Ok(());
        }
        let text = String::from_utf8(std::mem::take(lines).join(&b'\n'));
        self.take(first, text.map_err(|_| "the paragraph is not UTF-8".to_owned()))
    }

    fn plain_lines(&mut self, bytes: &[u8], first: u64) -> Result<(), Problem> {
        for (number, line) in lines_of(bytes, first) {
            if line.trim_ascii().is_empty() {
                self.count_blank();
            } else {
                let text = std::str::from_utf8(line).map(str::to_owned);
                self.take(number, text.map_err(|_| "the line is not UTF-8".to_owned()))?;
            }
        }
        Ok(())
    }

    fn json_lines(&mut self, bytes: &[u8], first: u64) -> Result<(), Problem> {
        let lines = bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n');
        for (number, line) in (first..).zip(lines) {
            if line.trim_ascii().is_empty() {
                self.count_blank();
            } else {
                self.take(number, document_of(line, &self.shared.field))?;
            }
        }
        Ok(())
    }
}

/// Lines of plain text with their numbers. A carriage return ends a line too, but is not counted.
fn lines_of(bytes: &[u8], first: u64) -> impl Iterator<Item = (u64, &[u8])> {
    let lines = bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n');
    (first..).zip(lines).flat_map(|(number, line)| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        line.split(|byte| *byte == b'\r').map(move |line| (number, line))
    })
}

fn encode(
    tokenizer: &Tokenizer,
    text: &str,
    ids: &mut Vec<u32>,
    out: &mut Vec<u8>,
    losses: &mut Losses,
) -> Result<(), String> {
    if tokenizer.info().kind == Kind::Bytes {
        out.extend_from_slice(text.as_bytes());
        return Ok(());
    }
    ids.clear();
    tokenizer.encode(text, ids)?;
    losses.add(tokenizer.losses(text, ids)?);
    match width(tokenizer.info()) {
        2 => out.extend(ids.iter().flat_map(|id| (*id as u16).to_le_bytes())),
        _ => out.extend(ids.iter().flat_map(|id| id.to_le_bytes())),
    }
    Ok(())
}

/// Limits the bytes of pieces in flight.
#[derive(Default)]
struct Gate {
    inside: Mutex<usize>,
    left: Condvar,
}

impl Gate {
    /// Waits until there is room. An empty gate admits one piece of any size.
    fn enter(&self, weight: usize, halt: &AtomicBool) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        while *inside > 0 && *inside + weight > IN_FLIGHT && !halt.load(Ordering::Relaxed) {
            inside = self.left.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
        *inside += weight;
    }

    fn leave(&self, weight: usize) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        *inside = inside.saturating_sub(weight);
        self.left.notify_all();
    }

    /// Wakes all waiting threads.
    fn open(&self) {
        // Under the lock, so that no thread is between checking the flag and waiting.
        let _inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        self.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use dsl::{Problem, ProblemKind};

    use super::without_panic;

    #[test]
    fn a_panic_is_an_error_of_this_machine() {
        let wrong = Problem::input("a", "b");
        assert_eq!(without_panic(|| Ok(3)), Ok(3));
        assert_eq!(without_panic::<u8>(|| Err(wrong.clone())), Err(wrong));
        let error = without_panic(|| Ok([1, 2][std::hint::black_box(7)])).unwrap_err();
        assert!(
            error.kind == ProblemKind::Machine
                && error.message == "a thread that makes tokens failed",
            "{error}"
        );
    }
}
