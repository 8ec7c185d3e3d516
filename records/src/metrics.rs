//! The metrics log: one JSON object per line, each with the digest of all lines up to it.
//!
//! A line holds only deterministic facts (no clock, no machine). Logged lines are never rewritten: after a resume, repeated
//! steps must give the same lines. A torn last line is cut, any other damage is reported.

mod external;
mod number;
mod questions;
mod record;
mod score;
mod suites;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use compiler::digest::Digest;
use dsl::Problem;

use crate::fault::{Faults, Point};
use crate::run::{cannot_read, cannot_write, in_place, parent, sync_folder};

pub use external::{
    ExternalLog, ExternalStart, MeasuredWeights, Measurements, Resumed, measurements_text,
    read_external, read_measurements,
};
pub use questions::{Asked, Questions};
pub use record::{Evaluation, Record, Start, Step};
pub use score::Score;
pub use suites::{SuiteScores, mismatch as mismatch_of_suites};

const TAG: &str = "canonc.metrics.v1";
const CHAIN: &str = ",\"chain\":\"";
/// Length of a line's end: the chain's key, its 64 digits, and the closing `"}`.
const SUFFIX: usize = CHAIN.len() + 64 + 2;

/// A log, read whole, that can be appended to.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    /// The chain after each line in the file.
    heads: Vec<Digest>,
    /// Lines in the file that the next records must reproduce, the next one last.
    to_prove: Vec<String>,
    /// The chain after the last record appended or proved; `None` at the beginning.
    head: Option<Digest>,
    proved: u64,
    cut: Option<String>,
    /// The length up to zeros in the file, which [`Log::settle`] judges.
    zeros_at: Option<u64>,
}

/// How a record was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// It was written at the end of the log.
    New,
    /// The log already had it, with the same bytes.
    Proved,
}

/// The contents of a log.
#[derive(Debug, Default)]
struct Read {
    heads: Vec<Digest>,
    lines: Vec<String>,
    /// Bytes of complete lines.
    complete: u64,
    /// The rest: a line cut off when a process ended, or the first with zeros, which a power cut leaves.
    torn: Option<String>,
    /// Whether it has zeros. What follows it was not read.
    has_zeros: bool,
}

/// The records of a log, with its chain checked, and the last chain. A torn last line is skipped.
pub fn read(path: &Path) -> Result<(Vec<Record>, Option<Digest>), Problem> {
    let (records, heads) = read_with_heads(path)?;
    let head = heads.last().copied();
    Ok((records, head))
}

/// An incomplete last line. Only a process that ended while writing leaves one.
pub fn torn(path: &Path) -> Result<Option<String>, Problem> {
    Ok(read_lines(path, TAG)?.torn)
}

/// The records of a log, and the chain after each.
pub fn read_with_heads(path: &Path) -> Result<(Vec<Record>, Vec<Digest>), Problem> {
    let Read { heads, lines, complete: _, torn: _, has_zeros: _ } = read_lines(path, TAG)?;
    let records = lines.iter().enumerate().map(|(at, line)| {
        let position = || format!("line {} of {}", at + 1, path.display());
        let record = Record::parse(line).ok_or_else(|| {
            Problem::finding(
                format!("{} is not a metrics line of this version of canonc", position()),
                "read it with the canonc that wrote it",
            )
        })?;
        // A duplicate or extra member, or a number with other digits, would parse to the same record.
        let body = without_chain(line).map(|(body, _)| body).unwrap_or_default();
        if !record.is_written(&body) {
            return Err(Problem::finding(
                format!(
                    "{} is not as canonc writes it: it has {body}, but canonc writes {}",
                    position(),
                    record.text()
                ),
                "restore the file, or move the run's folder away and run again from the start",
            ));
        }
        Ok(record)
    });
    let records = records.collect::<Result<_, _>>()?;
    Ok((records, heads))
}

impl Log {
    /// Opens the log at `path`, or begins it. Cuts a torn last line, and leaves zeros to [`Log::settle`]; refuses a log that was
    /// changed anywhere else.
    pub fn open(path: &Path) -> Result<Log, Problem> {
        let write = |error: io::Error| cannot_write(path, &error);
        let file = OpenOptions::new().append(true).create(true).open(path).map_err(write)?;
        // A new file's name is part of the folder, so sync the folder.
        sync_folder(parent(path)).map_err(write)?;
        let Read { heads, lines, complete, torn, has_zeros } = read_lines(path, TAG)?;
        if torn.is_some() && !has_zeros {
            file.set_len(complete).and_then(|()| file.sync_all()).map_err(write)?;
        }
        let mut to_prove = lines;
        to_prove.reverse();
        let zeros_at = has_zeros.then_some(complete);
        let path = path.to_owned();
        Ok(Log { path, file, heads, to_prove, head: None, proved: 0, cut: torn, zeros_at })
    }

    /// Cuts the log at zeros, before which it was synced if they come of a power cut: then no checkpoint needs what follows
    /// them. Refuses it if one was `refused`; call this once the checkpoints have been looked through.
    pub fn settle(&mut self, refused: bool) -> Result<(), Problem> {
        let Some(complete) = self.zeros_at.take() else { return Ok(()) };
        if refused {
            let why = "it has zeros, and a checkpoint needs it or a line after it";
            return Err(altered(&self.path, self.heads.len(), why));
        }
        self.file
            .set_len(complete)
            .and_then(|()| self.file.sync_all())
            .map_err(|error| cannot_write(&self.path, &error))
    }

    /// The torn line that was cut on opening.
    pub fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    /// Continues after the line with chain `head`; later lines must be reproduced. If no line has it, returns false and
    /// changes nothing.
    pub fn go_on_after(&mut self, head: Digest) -> bool {
        let Some(at) = self.heads.iter().position(|known| *known == head) else { return false };
        let lines_left = self.heads.len() - at - 1;
        self.to_prove.truncate(lines_left);
        self.head = Some(head);
        true
    }

    /// Whether the log has a line with that chain.
    pub fn holds(&self, head: Digest) -> bool {
        self.heads.contains(&head)
    }

    /// The chain after the last record appended or proved.
    pub fn head(&self) -> Option<Digest> {
        self.head
    }

    /// Number of lines in the file.
    pub fn lines(&self) -> u64 {
        self.heads.len() as u64
    }

    /// Number of records already in the log that were reproduced.
    pub fn proved(&self) -> u64 {
        self.proved
    }

    /// Number of records in the log still to be reproduced.
    pub fn left_to_prove(&self) -> usize {
        self.to_prove.len()
    }

    /// Writes the next record, or finds it in the log with the same bytes.
    pub fn append(&mut self, record: &Record, faults: &Faults) -> Result<Appended, Problem> {
        let text = record.text();
        let head = chain(TAG, self.head, &text);
        let line = with_chain(&text, head);
        if let Some(logged) = self.to_prove.last() {
            // A line from before questions were logged one by one is compared only by the members it has.
            let before = Record::parse(logged);
            let as_logged = before.map_or_else(|| text.clone(), |b| record.as_logged(&b).text());
            let head = chain(TAG, self.head, &as_logged);
            if *logged != with_chain(&as_logged, head) {
                return Err(differs(&self.path, logged, record));
            }
            self.to_prove.pop();
            self.head = Some(head);
            self.proved += 1;
            return Ok(Appended::Proved);
        }
        let bytes = format!("{line}\n").into_bytes();
        let written = (|| {
            faults.pass(Point::MetricsBefore)?;
            if faults.is_due(Point::MetricsTorn) {
                self.file.write_all(bytes.get(..bytes.len() / 2).unwrap_or_default())?;
                faults.now()
            }
            if let Err(full) = faults.pass(Point::MetricsFull) {
                // A full disk still writes the first part of a line.
                self.file.write_all(bytes.get(..bytes.len() / 2).unwrap_or_default())?;
                return Err(full);
            }
            self.file.write_all(&bytes)?;
            faults.pass(Point::MetricsAfter)
        })();
        written.map_err(|error| cannot_write(&self.path, &error))?;
        self.heads.push(head);
        self.head = Some(head);
        Ok(Appended::New)
    }

    /// Makes every line so far durable.
    pub fn sync(&self) -> Result<(), Problem> {
        in_place(&self.file, &self.path)?;
        self.file.sync_all().map_err(|error| cannot_write(&self.path, &error))
    }
}

/// The chain after `text`: the digest of the chain before it and the text.
fn chain(tag: &str, before: Option<Digest>, text: &str) -> Digest {
    let before = before.map_or_else(String::new, |digest| digest.to_string());
    Digest::of(tag, &format!("{before}\n{text}"))
}

/// A record's object with the chain as its last member.
fn with_chain(text: &str, head: Digest) -> String {
    format!("{}{CHAIN}{head}\"}}", text.strip_suffix('}').unwrap_or(text))
}

/// The reverse: the record's text and the chain in the line.
fn without_chain(line: &str) -> Option<(String, Digest)> {
    let at = line.len().checked_sub(SUFFIX)?;
    let (text, suffix) = (line.get(..at)?, line.get(at..)?);
    let digits = suffix.strip_prefix(CHAIN)?.strip_suffix("\"}")?;
    Some((format!("{text}}}"), Digest::parse(digits)?))
}

/// Reads a log whose chain has this tag.
fn read_lines(path: &Path, tag: &str) -> Result<Read, Problem> {
    let mut read = Read::default();
    let mut number = 0;
    let lines_read = disk::each_line(path, |line| {
        if read.has_zeros {
            return Ok(());
        }
        // Only the last line may be incomplete.
        if read.torn.is_some() {
            return Err(altered(path, number - 1, "it is not a metrics line"));
        }
        read.has_zeros = line.contains(&0);
        let text = line.strip_suffix(b"\n").and_then(|text| std::str::from_utf8(text).ok());
        let parts = text.and_then(|text| Some((text, without_chain(text)?)));
        match parts {
            None => read.torn = Some(String::from_utf8_lossy(line).into_owned()),
            Some((text, (body, claimed))) => {
                let head = chain(tag, read.heads.last().copied(), &body);
                if head != claimed {
                    let (head, claimed) = (head.short(), claimed.short());
                    let what = format!("its chain should be {head}, but is {claimed}");
                    return Err(altered(path, number, &what));
                }
                read.heads.push(head);
                read.lines.push(text.to_owned());
                read.complete += line.len() as u64;
            }
        }
        number += 1;
        Ok(())
    });
    match lines_read {
        Ok(done) => done.map(|()| read),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Read::default()),
        Err(error) if is_no_log(&error) => Err(Problem::finding(
            format!("{} is not a metrics log: {error}", path.display()),
            "restore the file, or move the run's folder away and run again from the start",
        )),
        Err(error) => Err(cannot_read(path, &error)),
    }
}

/// Whether it is a pipe, or has a line that no log has.
fn is_no_log(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput && error.raw_os_error().is_none()
}

fn altered(path: &Path, number: usize, what: &str) -> Problem {
    Problem::finding(
        format!(
            "line {} of {} was altered after it was written: {what}",
            number + 1,
            path.display()
        ),
        "restore the file, or move the run's folder away and run again from the start",
    )
}

/// The error when a repeated step gives another result: its name and the fields that differ, with both values.
fn differs(path: &Path, logged: &str, record: &Record) -> Problem {
    let before = Record::parse(logged);
    let mut what = before.map_or_else(Vec::new, |before| before.differences(record));
    if what.is_empty() {
        what.push(format!("logged {logged}, now {}", record.text()));
    }
    let help = "check what changed since: the machine, the build of canonc or libtorch, or failing memory; a new \
     folder (--dir) starts the run again without this claim";
    Problem::finding(
        format!("{} differs from {}: {}", record.title(), path.display(), what.join("; ")),
        help,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step(step: u64, loss: f64) -> Record {
        Record::Step(Step {
            step,
            loss: Some(loss),
            grad_norm: 0.1,
            lr: 1e-3,
            batch: Some(Digest::of("batch", &step.to_string())),
            counted: 40 + step,
            terms: [None; compiler::plan::TERMS.len()],
        })
    }

    fn start() -> Record {
        let digest = Digest::of("test", "lock");
        Record::Start(Start { lock: digest, eval: digest, initial: digest })
    }

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Folder {
            Folder(tempfile::tempdir().unwrap())
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("metrics.jsonl")
        }

        fn log(&self) -> Log {
            Log::open(&self.path()).unwrap()
        }

        fn with(records: &[Record]) -> Folder {
            let folder = Folder::new();
            let mut log = folder.log();
            for record in records {
                assert_eq!(log.append(record, &Faults::none()).unwrap(), Appended::New);
            }
            folder
        }
    }

    #[test]
    fn what_is_appended_is_read_back() {
        let records = [start(), step(1, 2.5), step(2, f64::NAN), step(3, -0.0)];
        let folder = Folder::with(&records);
        let (read, head) = read(&folder.path()).unwrap();
        assert_eq!(read.len(), 4);
        for (read, record) in read.iter().zip(&records) {
            assert_eq!(read.text(), record.text());
        }
        let mut log = folder.log();
        assert!(log.go_on_after(head.unwrap()));
        assert_eq!(log.left_to_prove(), 0);
    }

    #[test]
    fn the_text_and_the_chain_never_change() {
        let folder = Folder::with(&[start(), step(7, 0.1)]);
        let text = std::fs::read_to_string(folder.path()).unwrap();
        let last = text.lines().last().unwrap();
        let batch = Digest::of("batch", "7");
        let body = format!(
            "{{\"kind\":\"step\",\"step\":7,\"loss\":0.1,\"grad_norm\":0.1,\"lr\":0.001,\"batch\":\"{batch}\",\"counted\":47}}"
        );
        // Computed by hand: blake3(tag, newline, chain before, newline, the line without its chain).
        let first = text.lines().next().unwrap();
        let before = &first[first.len() - 66..first.len() - 2];
        let digest =
            blake3::hash(format!("canonc.metrics.v1\n{before}\n{body}").as_bytes()).to_hex();
        let prefix = body.strip_suffix('}').unwrap();
        assert_eq!(last, format!("{prefix},\"chain\":\"{digest}\"}}"));
    }

    #[test]
    fn a_torn_last_line_is_cut_and_any_cut_is_one() {
        let records = [start(), step(1, 2.0), step(2, 1.0)];
        let folder = Folder::with(&records);
        let full = std::fs::read(folder.path()).unwrap();
        let last = full[..full.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
        for end in last + 1..full.len() {
            std::fs::write(folder.path(), &full[..end]).unwrap();
            let mut log = folder.log();
            assert!(log.cut().is_some(), "{end}");
            for record in &records[..2] {
                assert_eq!(log.append(record, &Faults::none()).unwrap(), Appended::Proved);
            }
            assert_eq!(log.append(&records[2], &Faults::none()).unwrap(), Appended::New);
            assert_eq!(std::fs::read(folder.path()).unwrap(), full);
        }
        // After a crash of the machine: allocated space that was never written.
        let mut holes = full[..last].to_vec();
        holes.extend([0; 100]);
        std::fs::write(folder.path(), holes).unwrap();
        let mut log = folder.log();
        assert!(log.cut().is_some());
        // Where a checkpoint needs what they took, they are no power cut, and stay.
        assert!(log.settle(true).unwrap_err().message.contains("it has zeros"));
        let mut log = folder.log();
        log.settle(false).unwrap();
        assert_eq!(std::fs::read(folder.path()).unwrap(), full[..last]);
    }

    #[test]
    fn steps_done_again_have_to_give_the_same_line() {
        let folder = Folder::with(&[start(), step(1, 2.0), step(2, 1.0)]);
        let mut log = folder.log();
        let first = log.heads[0];
        assert!(log.go_on_after(first));
        assert_eq!(log.append(&step(1, 2.0), &Faults::none()).unwrap(), Appended::Proved);
        let error = log.append(&step(2, 1.0 + f64::EPSILON), &Faults::none()).unwrap_err();
        assert!(
            error.message.starts_with("step 2 differs from")
                && error.message.contains("loss was 1.0 and is 1.0000000000000002"),
            "{error}"
        );
        assert_eq!(error.kind, dsl::ProblemKind::Finding);
        assert!(!log.go_on_after(Digest::of("test", "unknown")));
    }

    #[test]
    fn a_full_disk_loses_no_line_that_was_there() {
        let folder = Folder::with(&[start(), step(1, 2.0)]);
        let before = std::fs::read(folder.path()).unwrap();
        let mut log = folder.log();
        assert!(log.go_on_after(*log.heads.last().unwrap()));
        let full = Faults::parse("metrics-full").unwrap();
        let error = log.append(&step(2, 1.0), &full).unwrap_err();
        assert!(error.message.contains("disk is full"), "{error}");
        drop(log);
        assert!(folder.log().cut().is_some());
        assert_eq!(std::fs::read(folder.path()).unwrap(), before);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_changed_byte_of_an_earlier_line_is_refused_by_number(at: prop::sample::Index, to: u8) {
            let folder = Folder::with(&[start(), step(1, 2.0), step(2, 1.0), step(3, 0.5)]);
            let mut bytes = std::fs::read(folder.path()).unwrap();
            let last = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap();
            let at = at.index(last);
            prop_assume!(bytes[at] != to);
            let line = 1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count();
            bytes[at] = to;
            std::fs::write(folder.path(), bytes).unwrap();
            let error = Log::open(&folder.path()).unwrap_err();
            prop_assert!(error.message.contains(&format!("line {line} of")), "{}", error);
        }

        #[test]
        fn floats_come_back_with_their_bits(bits: u64) {
            let value = f64::from_bits(bits);
            let Some(Record::Step(read)) = Record::parse(&with_chain(
                &step(1, value).text(),
                Digest::of("test", ""),
            )) else { panic!("a step") };
            let loss = read.loss.unwrap();
            prop_assert!(loss.to_bits() == bits || loss.is_nan() && value.is_nan());
        }
    }
}
