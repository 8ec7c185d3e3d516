//! `canonc data export` and `canonc data inspect LOCK`: the windows that a lock's run reads.
//!
//! In: an experiment's lock, documents if it reads text, numbers of windows. Out: tokens and targets, in a file
//! or a pipe; or text on standard output. Must stay true: windows are those of training, made by the same code; a file
//! is written completely or left unchanged; text from the data never controls a terminal.

use std::ffi::OsStr;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use data::Windows;
use data::batch::Batch;
use data::text::tokenizer::{Info, Kind, MarkNames, Tokenizer};
use data::text::{BOS, EOS};
use lab::experiment::{DataSource, Experiment, Tokenizer as Locked};
use lab::lock::Lock;
use records::job;

use super::{failure, prepare::tokenizer, screen::Screen};
use crate::args::{ExportWindowsArgs, InspectArgs, WindowArgs, WindowFormat};
use crate::fail::{Exit, Failure, Outcome, reason, shown};
use crate::signals::stop_on_signals;
use crate::{locks, out, output, runs};

/// Windows per batch.
const TOGETHER: u64 = 64;

/// The chosen windows, and how many the run reads.
struct Chosen {
    experiment: Experiment,
    windows: Windows,
    count: u64,
    /// The tokenizer of the documents, if the windows come from documents.
    info: Option<Info>,
}

fn chosen(path: &Path, args: &WindowArgs) -> Result<Chosen, Failure> {
    let (lock, _) = locks::read(path)?;
    let kind = lock.kind();
    let Lock::Experiment(experiment) = lock else {
        return Err(Failure::bad_input(format!(
            "`{}` is a lock of kind {kind}, but an experiment is needed",
            shown(path)
        ))
        .help("name the lock of one experiment: lockfiles/NAME.lock, or a run's folder"));
    };
    let WindowArgs { data, held_out } = args;
    let documents = runs::documents(&experiment, data.as_deref())?;
    let info = documents.as_ref().map(|documents| *documents.tokenizer());
    let (train, evaluation) = job::windows(&experiment, documents).map_err(runs::failure)?;
    let (windows, count) = match held_out {
        false => {
            let batch = &experiment.batch;
            let step = batch.sequences.saturating_mul(batch.micro_batches);
            (train, experiment.budget.steps.saturating_mul(step))
        }
        true if experiment.evaluation.metrics.is_empty() => {
            return Err(Failure::bad_input(format!(
                "`{}` has no evaluation, so no window is held out",
                experiment.name
            ))
            .help("remove --held-out"));
        }
        true => (evaluation, experiment.evaluation.windows),
    };
    Ok(Chosen { experiment, windows, count, info })
}

pub(super) fn export(args: &ExportWindowsArgs) -> Outcome {
    let ExportWindowsArgs { lock, windows: which, from, count, format, out: path } = args;
    let to_pipe = path.as_os_str() == "-";
    let format = match (format, path.extension().and_then(OsStr::to_str)) {
        (Some(format), _) => *format,
        (None, Some("bin")) => WindowFormat::Bin,
        (None, Some("jsonl") | None) => WindowFormat::Jsonl,
        (None, Some(other)) => {
            return Err(Failure::bad_input(format!(
                "windows are written as jsonl or bin, but `{}` ends in .{other}",
                shown(path)
            ))
            .help("name a file that ends in .jsonl or .bin, or give --format"));
        }
    };
    if to_pipe && format == WindowFormat::Bin && io::stdout().is_terminal() {
        return Err(Failure::bad_input("this format cannot be shown on a terminal")
            .help("name a file with --out FILE, or pipe the output"));
    }
    if !to_pipe {
        out::check(path, out::OutputKind::Windows)?;
    }
    let Chosen { experiment, mut windows, count: all, info: _ } = chosen(lock, which)?;
    let left = all.saturating_sub(*from);
    let asked = count.unwrap_or(left);
    if asked == 0 || asked > left {
        return Err(Failure::bad_input(format!(
            "`{}` reads windows 0 to {}, but {} from {from} on were requested",
            experiment.name,
            all.saturating_sub(1),
            output::counted(asked, "window")
        ))
        .help("use a smaller --count or --from"));
    }
    if let Windows::Task(tasks) = &mut windows {
        tasks.replay_to(*from);
    }
    let stop = stop_on_signals()?;
    let name = if to_pipe { "standard output".to_owned() } else { format!("`{}`", shown(path)) };
    let numbers = *from..*from + asked;
    let mut write = |to: &mut dyn Write| -> Result<u64, Failure> {
        let mut to = BufWriter::with_capacity(1 << 18, to);
        write_windows(&mut windows, numbers.clone(), format, &mut to, &stop, &name)
    };
    let bytes = match to_pipe {
        true => write(&mut io::stdout())?,
        false => out::put_with(path, out::OutputKind::Windows, |file| write(file))?,
    };
    output::note(&format!(
        "{name}: windows {from} to {} of `{}`, {} each, {}, lock {}",
        numbers.end - 1,
        experiment.name,
        output::counted(experiment.data.seq_len, "token"),
        output::counted(bytes, "byte"),
        experiment.id().short()
    ));
    Ok(Exit::Fine)
}

fn write_windows(
    windows: &mut Windows,
    numbers: std::ops::Range<u64>,
    format: WindowFormat,
    to: &mut dyn Write,
    stop: &AtomicBool,
    name: &str,
) -> Result<u64, Failure> {
    let count = numbers.end - numbers.start;
    let mut screen = Screen::new(count);
    let failed = |error: io::Error| match error.kind() == io::ErrorKind::BrokenPipe {
        // The reader closed the pipe because it has read enough.
        true => Failure::shown(Exit::Fine),
        false => Failure::machine(format!("{name} cannot be written: {}", reason(&error))),
    };
    let (mut batch, mut record, mut bytes) = (Batch::default(), Vec::new(), 0);
    let mut first = numbers.start;
    while first < numbers.end {
        let next = numbers.end.min(first + TOGETHER);
        windows.fill(first..next, &mut batch).map_err(failure)?;
        let width = batch.seq_len().max(1);
        let rows = batch.inputs().chunks_exact(width).zip(batch.targets().chunks_exact(width));
        for (number, (tokens, targets)) in (first..next).zip(rows) {
            record.clear();
            match format {
                WindowFormat::Bin => as_record(number, tokens, targets, &mut record),
                WindowFormat::Jsonl => {
                    let line = serde_json::json!({
                        "window": number, "tokens": tokens, "targets": targets,
                    });
                    record.extend(line.to_string().into_bytes());
                    record.push(b'\n');
                }
            }
            bytes += record.len() as u64;
            to.write_all(&record).map_err(failed)?;
        }
        first = next;
        if stop.load(Ordering::Relaxed) && first < numbers.end {
            screen.clear();
            let done = output::counted(first - numbers.start, "window");
            let message = format!("interrupted after {done}; {name} is incomplete");
            return Err(Failure { exit: Exit::Stopped, ..Failure::bad_input(message) });
        }
        screen.show(first - numbers.start, |_| {
            let (done, count) = (output::grouped(first - numbers.start), output::grouped(count));
            format!("window {done} of {count}")
        });
    }
    screen.clear();
    to.flush().map_err(failed)?;
    Ok(bytes)
}

fn as_record(number: u64, tokens: &[i64], targets: &[i64], to: &mut Vec<u8>) {
    to.extend(number.to_le_bytes());
    for id in tokens.iter().chain(targets) {
        // A vocabulary has at most 2^24 ids, so this cannot overflow.
        to.extend((*id as i32).to_le_bytes());
    }
}

pub(super) fn inspect(args: &InspectArgs) -> Outcome {
    let options = &args.options;
    if !options.set.is_empty() || options.mode.is_some() {
        return Err(Failure::bad_input("--set and --mode are for tasks; a lock fixes both")
            .help("remove them, or name a task"));
    }
    let lock = PathBuf::from(&args.of);
    let Chosen { experiment, mut windows, count: all, info } = chosen(&lock, &args.windows)?;
    let from = options.from;
    if from >= all || args.count > all - from {
        return Err(Failure::bad_input(format!(
            "`{}` reads windows 0 to {}, but {} from {from} on were requested",
            experiment.name,
            all.saturating_sub(1),
            output::counted(args.count, "window")
        ))
        .help("use a smaller --count or --from"));
    }
    let shows = shows(&experiment, info, args.tokenizer_file.as_deref())?;
    if let Windows::Task(tasks) = &mut windows {
        tasks.replay_to(from);
    }
    let mut batch = Batch::default();
    for number in from..from + args.count {
        windows.fill(number..number + 1, &mut batch).map_err(failure)?;
        let tokens = batch.inputs();
        let counted = batch.counted_targets();
        let text = shows.text(tokens)?;
        let gap = if number > from { "\n" } else { "" };
        output::data(&format!(
            "{gap}window {number}: {}, {} counted\n{text}\n",
            output::counted(tokens.len() as u64, "token"),
            output::counted(counted, "target")
        ))?;
    }
    Ok(Exit::Fine)
}

/// How to show tokens.
struct Shows {
    /// `None` if they are shown as numbers.
    tokenizer: Option<Tokenizer>,
    marks: [Option<u32>; 2],
}

fn shows(
    experiment: &Experiment,
    info: Option<Info>,
    path: Option<&Path>,
) -> Result<Shows, Failure> {
    let numbers = Shows { tokenizer: None, marks: [None, None] };
    let bytes = || Shows { tokenizer: Some(Tokenizer::bytes()), marks: [Some(BOS), Some(EOS)] };
    let needless = || {
        Failure::bad_input(
            "--tokenizer-file is given, but these tokens were made without a tokenizer file",
        )
        .help("remove it")
    };
    match (&experiment.data.source, path) {
        (DataSource::Text { tokenizer: Locked::File { kind, .. }, .. }, Some(path)) => {
            let tokenizer = tokenizer(Kind::File(*kind), Some(path), MarkNames::default())?;
            let marks = info.map_or([None, None], |info| [info.bos, info.eos]);
            // The marks around documents do not affect how the other tokens are shown.
            let Info { vocab, .. } = *tokenizer.info();
            match info.filter(|info| info.vocab != vocab || info.kind != tokenizer.info().kind) {
                None => Ok(Shows { tokenizer: Some(tokenizer), marks }),
                Some(info) => Err(Failure::bad_input(format!(
                    "the documents were prepared with a tokenizer of {} ids, but `{}` has {vocab}",
                    info.vocab,
                    shown(path)
                ))
                .help("name the tokenizer file that they were prepared with")),
            }
        }
        (DataSource::Text { tokenizer: Locked::File { .. }, .. }, None) => Ok(numbers),
        (DataSource::Text { .. } | DataSource::Task { .. }, Some(_)) => Err(needless()),
        (DataSource::Text { tokenizer: Locked::Bytes, .. }, None) => Ok(bytes()),
        (DataSource::Task { task, ids, .. }, None) => {
            let published = *ids == lab::experiment::Ids::Published;
            Ok(if task.is_text() && published { bytes() } else { numbers })
        }
    }
}

impl Shows {
    fn text(&self, tokens: &[i64]) -> Result<String, Failure> {
        let Some(tokenizer) = &self.tokenizer else {
            let ids: Vec<String> = tokens.iter().map(i64::to_string).collect();
            return Ok(ids.join(" "));
        };
        let ids: Vec<u32> = tokens.iter().filter_map(|id| u32::try_from(*id).ok()).collect();
        let mut text = String::new();
        // A mark is shown by name, between the texts around it.
        let is_mark = |id: &u32| self.marks.contains(&Some(*id));
        for piece in ids.chunk_by(|one, two| !is_mark(one) && !is_mark(two)) {
            match piece {
                [id] if self.marks.first() == Some(&Some(*id)) => text.push_str("<bos>"),
                [id] if is_mark(id) => text.push_str("<eos>"),
                piece => {
                    let bytes = tokenizer.decode(piece).map_err(|why| {
                        Failure::bad_input(format!("these tokens are not text: {why}"))
                    })?;
                    text.extend(String::from_utf8_lossy(&bytes).chars().map(visible));
                }
            }
        }
        Ok(text)
    }
}

/// Replaces a control character by its picture: text must not control a terminal.
fn visible(c: char) -> char {
    match c {
        '\n' | '\t' => c,
        '\u{7f}' => '\u{2421}',
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
        c if c.is_control() => '\u{fffd}',
        // Characters that change the direction of the following text.
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c => c,
    }
}
