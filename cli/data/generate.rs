//! `canonc data generate`: writes samples to a file or a pipe.
//!
//! In: the task, the number of samples, their format. Out: the file, completely or not at all; a summary on
//! standard error. Must stay true: after an error, Ctrl-C or a full disk the earlier file is unchanged; a closed
//! pipe ends the command quietly.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use data::stream::Stream;
use data::write::{self, Format, Written};
use records::progress::rounded;

use super::screen::Screen;
use super::stream;
use crate::args::{DataFormat, GenerateDataArgs};
use crate::fail::{Exit, Failure, Outcome, reason, shown};
use crate::out::{self, OutputKind};
use crate::output;
use crate::signals::stop_on_signals;

pub(super) fn generate(args: &GenerateDataArgs) -> Outcome {
    let GenerateDataArgs { samples, count, format, out } = args;
    let to_pipe = out.as_os_str() == "-";
    let format = format_of(*format, out);
    if to_pipe && format != Format::Jsonl && io::stdout().is_terminal() {
        return Err(Failure::bad_input("this format cannot be shown on a terminal")
            .help("name a file with --out FILE, or pipe the output"));
    }
    if !to_pipe {
        out::check(out, OutputKind::Samples)?;
    }
    let mut stream = stream(samples, *count)?;
    let stop = stop_on_signals()?;
    let name = if to_pipe { "standard output".to_owned() } else { format!("`{}`", shown(out)) };
    let whole = |written: Written, left: &str| match written.samples < *count {
        false => Ok(written),
        true => {
            let samples = output::counted(written.samples, "sample");
            let message = format!("interrupted after {samples}; {left}");
            Err(Failure { exit: Exit::Stopped, ..Failure::bad_input(message) })
        }
    };
    let written = if to_pipe {
        let to = &mut io::stdout();
        let written = write_samples(&mut stream, *count, format, to, &stop, &name)?;
        whole(written, "the rest was not written")
    } else {
        out::put_with(out, OutputKind::Samples, |file| {
            let written = write_samples(&mut stream, *count, format, file, &stop, &name)?;
            whole(written, &format!("{name} is unchanged"))
        })
    }?;
    let Written { samples, tokens, bytes } = written;
    output::note(&format!(
        "{name}: {}, {}, {}",
        output::counted(samples, "sample"),
        output::counted(tokens, "token"),
        output::counted(bytes, "byte")
    ));
    Ok(Exit::Fine)
}

/// The requested format, otherwise the one that the file's name implies.
fn format_of(asked: Option<DataFormat>, out: &Path) -> Format {
    match asked {
        Some(DataFormat::Jsonl) => Format::Jsonl,
        Some(DataFormat::Parquet) => Format::Parquet,
        Some(DataFormat::Bin) => Format::Bin,
        None => match out.extension().and_then(OsStr::to_str) {
            Some("parquet") => Format::Parquet,
            Some("bin") => Format::Bin,
            Some(_) | None => Format::Jsonl,
        },
    }
}

fn write_samples(
    stream: &mut Stream,
    count: u64,
    format: Format,
    to: &mut (dyn Write + Send),
    stop: &AtomicBool,
    name: &str,
) -> Result<Written, Failure> {
    let mut screen = Screen::new(count);
    let written = write::write(stream, count, format, to, |written| {
        screen.show(written.samples, |seconds| line(written, count, seconds));
        !stop.load(Ordering::Relaxed)
    });
    screen.clear();
    written.map_err(|error| match error.kind() == io::ErrorKind::BrokenPipe {
        // The reader closed the pipe because it has read enough.
        true => Failure::shown(Exit::Fine),
        false => Failure::machine(format!("{name} cannot be written: {}", reason(&error))),
    })
}

fn line(written: &Written, count: u64, seconds: f64) -> String {
    let Written { samples, tokens, bytes: _ } = *written;
    let rate = |n: u64| rounded(n as f64 / seconds.max(1e-9));
    format!(
        "{} of {} samples  {} samples/s  {} tok/s",
        output::grouped(samples),
        output::grouped(count),
        rate(samples),
        rate(tokens)
    )
}
