//! Prepares and streams a generated corpus, beside a plain Python reader that produces the same bytes.
//!
//! The reader is a few lines of our own: json, each document as bytes between two marks, one process.

#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use data::Split;
use data::batch::Batch;
use data::text::index::OnBadLine;
use data::text::lines::Field;
use data::text::prepare::{Input, Plain, Request, SourceInput, prepare};
use data::text::tokenizer::Tokenizer;
use data::text::{HeldOut, Marks, Options, Shuffle, TextWindows, file};
use dsl::Problem;
use records::platform::peak_memory;

/// Bytes of JSON lines.
const BYTES: u64 = 1_000_000_000;
/// Inputs of one streamed window.
const SEQ_LEN: usize = 2048;
/// Windows per batch.
const ROWS: u64 = 16;

/// Prints its processor time.
const PLAIN: &str = "
import array, json, sys, time
with open(sys.argv[1], encoding='utf8') as lines, open(sys.argv[2], 'wb') as out:
    for line in lines:
        ids = [256] + list(json.loads(line)['text'].encode()) + [257]
        array.array('H', ids).tofile(out)
print(time.process_time())
";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let (corpus, index) = (path("corpus.jsonl"), path("corpus.index"));
    let documents = write_corpus(&corpus, BYTES)?;
    println!("{BYTES} bytes of JSON lines, {documents} documents; megabytes of them a second");
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    for workers in if cores == 1 { vec![1] } else { vec![1, cores] } {
        let time = Time::measure(|| run(&corpus, workers, &index))?;
        time.print(&format!("prepare, workers: {workers}"));
    }
    let time = Time::measure(|| stream(&index))?;
    time.print("stream windows in training order");
    let start = Instant::now();
    let output =
        Command::new("python3").args(["-c", PLAIN]).args([&corpus, &path("plain")]).output();
    if let Ok(output) = output {
        let cpu = String::from_utf8(output.stdout)?.trim().parse()?;
        Time { cpu, wall: start.elapsed().as_secs_f64() }.print("plain Python reader (stand-in)");
    }
    Ok(())
}

/// CPU seconds of all threads, and wall-clock seconds.
struct Time {
    cpu: f64,
    wall: f64,
}

impl Time {
    fn measure(work: impl FnOnce() -> Result<(), Problem>) -> Result<Time, String> {
        let cpu_now = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
            time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
        };
        let (cpu, wall) = (cpu_now(), Instant::now());
        work().map_err(|error| error.message)?;
        Ok(Time { cpu: cpu_now() - cpu, wall: wall.elapsed().as_secs_f64() })
    }

    fn print(&self, name: &str) {
        let megabytes = BYTES as f64 / 1e6;
        println!(
            "  {name:<33} {:>5.0} of a core, {:>5.0} in all, peak memory so far {}",
            megabytes / self.cpu,
            megabytes / self.wall,
            peak_memory().map_or("unknown".to_owned(), dsl::size)
        );
    }
}

fn run(corpus: &Path, workers: usize, out: &Path) -> Result<(), Problem> {
    let bytes = fs::metadata(corpus).map_or(BYTES, |metadata| metadata.len());
    let input = Input { path: Some(corpus.to_owned()), name: "corpus".to_owned(), bytes };
    let sources = [SourceInput { name: "corpus".to_owned(), files: vec![input] }];
    let request = Request {
        sources: &sources,
        field: Field::Usual,
        plain: Plain::File,
        on_bad_line: OnBadLine::Refuse,
        tokenizer: &Tokenizer::bytes(),
        workers,
        checkpoint: 64 << 20,
        fault: None,
    };
    prepare(&request, out, &AtomicBool::new(false), &mut |_| {}).map(|_| ())
}

/// Reads all windows of one pass, in training order.
fn stream(index: &Path) -> Result<(), Problem> {
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
    for first in (0..count).step_by(ROWS as usize) {
        windows.fill(first..count.min(first + ROWS), &mut batch)?;
        std::hint::black_box(batch.inputs());
    }
    Ok(())
}

/// Writes documents of made-up words until the file has `size` bytes; returns their number.
fn write_corpus(path: &Path, size: u64) -> io::Result<u64> {
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
