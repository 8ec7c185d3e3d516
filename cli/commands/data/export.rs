//! `canonc data export`: writes the windows that a lock's run reads, for another trainer.

use std::ffi::OsStr;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, ValueEnum};
use data::Windows;
use data::batch::Batch;

use super::screen::Screen;
use super::windows::{LockedWindows, WindowArgs};
use super::{at_least_one, whole};
use crate::fail::{Exit, Failure, Outcome, reason, shown};
use crate::signals::stop_on_signals;
use crate::{out, output};

/// Write the windows of a lock, so that another trainer can train on the same batches
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data export lockfiles/c4_llama.lock --out c4.bin
  canonc data export lockfiles/demo_llama.lock --count 2
  canonc data export lockfiles/c4_llama.lock --from 64000 --count 6400 --out steps_1001_to_1100.bin
  canonc data export lockfiles/c4_llama.lock --held-out --out held_out.jsonl

Step k of a run, from 1, reads windows (k-1)*B to k*B - 1, where B is batch.sequences times batch.micro_batches.
Target i follows token i; it is -100 if the loss does not count it.

Formats:
  jsonl  one object per line: `window`, its number; `tokens` and `targets`, data.seq_len each
  bin    little-endian records: the number as u64, tokens as i32, targets as i32; numpy reads them with
         np.fromfile(FILE, [('window', '<u8'), ('tokens', '<i4', S), ('targets', '<i4', S)])

The file is written only when it is complete; on an error or Ctrl-C an older file stays unchanged.")]
pub(super) struct ExportWindowsArgs {
    /// The lock of an experiment; on text it must be bound
    #[arg(value_name = "LOCK")]
    pub lock: PathBuf,
    #[command(flatten)]
    pub windows: WindowArgs,
    /// The first window
    #[arg(long, value_name = "W", default_value_t = 0, allow_negative_numbers = true, value_parser = whole)]
    pub from: u64,
    /// Number of windows [default: up to the last one that the run reads]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = at_least_one)]
    pub count: Option<u64>,
    /// File format [default: by the extension of FILE, else jsonl]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<WindowFormat>,
    /// Output file; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub out: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WindowFormat {
    Jsonl,
    Bin,
}

/// Windows per batch.
const BATCH: u64 = 64;

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
    let mut locked = LockedWindows::read(lock, which)?;
    let asked = count.unwrap_or(locked.count.saturating_sub(*from));
    locked.go_to(*from, asked)?;
    let LockedWindows { experiment, mut windows, .. } = locked;
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
        let next = numbers.end.min(first + BATCH);
        windows.fill(first..next, &mut batch)?;
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
