//! `canonc data bench`: times preparing and streaming a corpus, and compares with a plain Python reader.
//!
//! In: the corpus size. Out: megabytes of text per second of core time, peak memory, and whether a preparation that was
//! killed half way ended with the same bytes, on standard output. Must stay true: the corpus is a function of its size;
//! both sides read the same file; the plain reader is our own stand-in and is labelled so.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use data::batch::Batch;
use data::text::index::OnBadLine;
use data::text::lines::Field;
use data::text::prepare::{Done, Input, News, Plain, Request, SourceInput, prepare};
use data::text::tokenizer::{Kind, MarkNames, Tokenizer};
use data::text::{HeldOut, Marks, Options, Shuffle, TextWindows, file};
use data::{DataError, Split};
use records::progress::bytes;

use super::prepare::{resumed, tokenizer, workers};
use super::{failure, screen::Screen};
use crate::args::BenchTextArgs;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::output;

/// Inputs of one streamed window.
const SEQ_LEN: usize = 2048;
/// Windows per batch.
const ROWS: u64 = 16;

/// The plain Python reader: each document as bytes between two marks, 16 bits each.
const PLAIN: &str = "
import array, json, sys, time
tokens = 0
with open(sys.argv[1], encoding='utf8') as lines, open(sys.argv[2], 'wb') as out:
    for line in lines:
        ids = [256] + list(json.loads(line)['text'].encode()) + [257]
        array.array('H', ids).tofile(out)
        tokens += len(ids)
print(tokens, time.process_time())
";

pub(super) fn bench(args: &BenchTextArgs) -> Outcome {
    let BenchTextArgs { bytes: size, dir, tokenizer: kind, tokenizer_file, workers: asked } = args;
    let made = match dir {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    };
    let folder =
        made.map_err(|error| Failure::machine(format!("no working folder can be made: {error}")))?;
    let path = |name: &str| folder.path().join(name);
    let marks = MarkNames::default();
    let tokenizer = tokenizer((*kind).into(), tokenizer_file.as_deref(), marks)?;
    let corpus_path = path("corpus.jsonl");
    let documents =
        corpus(&corpus_path, *size).map_err(|error| Failure::cannot_write(&corpus_path, &error))?;
    output::note(&format!(
        "{} of JSON lines, {}",
        bytes(*size),
        output::counted(documents, "document")
    ));

    let mut rows = Vec::new();
    let megabytes = *size as f64 / 1e6;
    let mut row = |what: &str, time: Time, memory: String| {
        let Time { cpu, wall } = time;
        rows.push(vec![
            what.to_owned(),
            format!("{:.0} MB/s", megabytes / cpu.max(1e-9)),
            format!("{:.0} MB/s", megabytes / wall.max(1e-9)),
            memory,
        ]);
    };
    let straight = path("straight.index");
    let mut counts = vec![1, workers(*asked)];
    counts.dedup();
    for count in counts {
        let time = timed(|| run(&corpus_path, &tokenizer, count, &straight).map(|_| ()))?;
        let plural = if count == 1 { "" } else { "s" };
        row(&format!("prepare, {count} worker{plural}"), time, peak());
    }
    let mut windows = 0;
    let time = timed(|| {
        windows = stream(&straight)?;
        Ok(())
    })?;
    row("stream windows in training order", time, peak());
    if let Some(time) = plain(&corpus_path, &path("plain"))? {
        row("plain Python reader (stand-in)", time, "–".to_owned());
    }
    let same = killed(args, &tokenizer, &corpus_path, &straight, &path("killed.index"))?;

    let head = ["", "a core's second", "a second", "peak memory so far"];
    rows.insert(0, head.map(str::to_owned).to_vec());
    output::data(&output::table(&rows, &[false, true, true, true], 0))?;
    output::data(&format!("\n{same}\n"))?;
    output::note(&format!(
        "MB of JSON lines; {windows} windows of {SEQ_LEN}, each document once; the plain reader parses, tokenizes to \
         bytes and writes, measured on this machine just now"
    ));
    Ok(Exit::Fine)
}

/// CPU seconds of all threads, and wall-clock seconds.
#[derive(Clone, Copy)]
struct Time {
    cpu: f64,
    wall: f64,
}

fn timed(call: impl FnOnce() -> Result<(), Failure>) -> Result<Time, Failure> {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let (cpu, wall) = (now(), Instant::now());
    call()?;
    Ok(Time { cpu: now() - cpu, wall: wall.elapsed().as_secs_f64() })
}

/// The peak memory of this process, if the system reports it.
fn peak() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.map_or("–".to_owned(), |kilobytes| bytes(kilobytes << 10))
}

/// Prepares the corpus; returns where it went on, if earlier work was interrupted.
fn run(
    corpus: &Path,
    tokenizer: &Tokenizer,
    workers: usize,
    out: &Path,
) -> Result<Option<Done>, Failure> {
    let sources = [SourceInput { name: "corpus".to_owned(), files: vec![input(corpus)?] }];
    let request = Request {
        sources: &sources,
        field: Field::Usual,
        plain: Plain::File,
        on_bad_line: OnBadLine::Refuse,
        tokenizer,
        workers,
        checkpoint: 64 << 20,
        fault: None,
    };
    let mut screen = Screen::new(sources.iter().flat_map(|s| &s.files).map(|f| f.bytes).sum());
    let mut from = None;
    let ended = prepare(&request, out, &AtomicBool::new(false), &mut |news| match news {
        News::Resumed(done) => from = Some(*done),
        News::Progress(done) => {
            screen.show(done.read, |_| format!("{} prepared", bytes(done.read)));
        }
        News::Anew(_) => {}
    });
    screen.clear();
    ended.map_err(failure)?;
    Ok(from)
}

fn input(path: &Path) -> Result<Input, Failure> {
    let metadata = fs::metadata(path).map_err(|error| Failure::cannot_read(path, &error))?;
    Ok(Input { path: Some(path.to_owned()), name: shown(path), bytes: metadata.len() })
}

/// Reads all windows of one pass, in training order.
fn stream(index: &Path) -> Result<u64, Failure> {
    let all = || -> Result<u64, DataError> {
        let index = file::load(index)?;
        let info = *index.tokenizer();
        let options = Options {
            seq_len: SEQ_LEN,
            seed: 1,
            split: Split::Train,
            held_out: HeldOut { seed: 0, per_million: 0 },
            marks: Marks { bos: info.bos.is_some(), eos: info.eos.is_some() },
            weights: Vec::new(),
            shuffle: Shuffle::Windows,
        };
        let mut windows = TextWindows::new(Arc::new(index), options)?;
        let count = windows.tokens() / SEQ_LEN as u64;
        let mut batch = Batch::default();
        let mut sum = 0;
        for first in (0..count).step_by(ROWS as usize) {
            windows.fill(first..count.min(first + ROWS), &mut batch)?;
            sum += batch.inputs().first().copied().unwrap_or(0);
        }
        std::hint::black_box(sum);
        Ok(count)
    };
    all().map_err(failure)
}

/// Times the plain reader; `None` without python3.
fn plain(corpus: &Path, out: &Path) -> Result<Option<Time>, Failure> {
    let wall = Instant::now();
    let run = Command::new("python3").args(["-c", PLAIN]).arg(corpus).arg(out).output();
    let Ok(run) = run else { return Ok(None) };
    let wall = wall.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    let cpu = said.split_whitespace().last().and_then(|seconds| seconds.parse().ok());
    let _ = fs::remove_file(out);
    match cpu {
        Some(cpu) if run.status.success() => Ok(Some(Time { cpu, wall })),
        Some(_) | None => {
            output::note("the plain reader failed in python3");
            Ok(None)
        }
    }
}

/// Kills a preparation half way, resumes it, and returns whether the result equals the uninterrupted one.
fn killed(
    args: &BenchTextArgs,
    tokenizer: &Tokenizer,
    corpus: &Path,
    straight: &Path,
    out: &Path,
) -> Result<String, Failure> {
    let BenchTextArgs { bytes: size, tokenizer: kind, tokenizer_file, workers: asked, .. } = args;
    let program = std::env::current_exe().map_err(|error| {
        Failure::machine(format!("canonc cannot find its own program: {error}"))
    })?;
    let mut named = OsString::from("corpus=");
    named.push(corpus);
    let mut command = Command::new(&program);
    command.args(["data", "prepare"]).arg(&named).arg("--out").arg(out);
    let kind = Kind::from(*kind).name();
    command.args(["--tokenizer", kind, "--checkpoint", &(size / 8).to_string()]);
    if let Some(file) = tokenizer_file {
        command.arg("--tokenizer-file").arg(file);
    }
    // A piece has about one megabyte.
    command.args(["--fault", &format!("piece:{}", (size >> 21).max(2))]);
    let first = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| Failure::machine(format!("canonc cannot start itself: {error}")))?;
    if first.status.success() {
        let said = String::from_utf8_lossy(&first.stderr).into_owned();
        return Err(Failure::machine(format!("the preparation was not killed: {said}")));
    }
    let went_on = run(corpus, tokenizer, workers(*asked), out)?;
    match same_bytes(straight, out).map_err(|error| Failure::cannot_read(out, &error))? {
        true => Ok(format!(
            "killed halfway and repeated ({}): the same file, byte for byte",
            went_on.map_or("from the start".to_owned(), |done| resumed(&done))
        )),
        false => Err(Failure::machine("a killed and repeated preparation wrote other bytes")),
    }
}

fn same_bytes(one: &Path, other: &Path) -> io::Result<bool> {
    let open =
        |path: &Path| Ok::<_, io::Error>(BufReader::with_capacity(1 << 20, File::open(path)?));
    let (mut one, mut other) = (open(one)?, open(other)?);
    loop {
        let (a, b) = (one.fill_buf()?, other.fill_buf()?);
        let count = a.len().min(b.len());
        if a.get(..count) != b.get(..count) {
            return Ok(false);
        }
        if count == 0 {
            return Ok(a.is_empty() && b.is_empty());
        }
        one.consume(count);
        other.consume(count);
    }
}

/// Writes documents of made-up words until the file has `size` bytes; returns their number.
fn corpus(path: &Path, size: u64) -> io::Result<u64> {
    let mut state = 0;
    let mut draw = |below: u64| {
        // SplitMix64 (Steele, Lea and Flood 2014).
        state = u64::wrapping_add(state, 0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ z >> 31) * u128::from(below)) >> 64) as u64
    };
    let syllables =
        ["ka", "ren", "to", "mi", "sol", "ve", "an", "the", "ing", "ü", "é", "st", "日", "ра"];
    let words: Vec<String> = (0..4096)
        .map(|_| {
            let count = 1 + draw(4);
            (0..count).map(|_| syllables[draw(syllables.len() as u64) as usize]).collect()
        })
        .collect();
    let ends = [" ", " ", " ", " ", " ", " ", ", ", ". ", ".\\n", " \\\"", "\\\" "];
    let mut to = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let (mut written, mut documents) = (0, 0);
    let mut line = String::new();
    while written < size {
        line.clear();
        line += "{\"id\": ";
        line += &documents.to_string();
        line += ", \"text\": \"";
        let most = 1 << (8 + draw(6));
        let length = 200 + draw(most) as usize;
        while line.len() < length {
            // Common words are more common.
            let bits = draw(13);
            let word = draw(1 << bits) as usize;
            line += words.get(word).map_or("", String::as_str);
            line += ends[draw(ends.len() as u64) as usize];
        }
        line += "\"}\n";
        to.write_all(line.as_bytes())?;
        written += line.len() as u64;
        documents += 1;
    }
    to.flush()?;
    Ok(documents)
}
