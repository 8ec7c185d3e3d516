//! `canonc data generate`: writes samples to a file or a pipe.
//!
//! After an error, Ctrl-C or a full disk the earlier file is unchanged.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, ValueEnum};
use data::stream::Stream;
use data::write::{self, Format, Written};
use records::progress::rounded;
use tasks::DEFINITIONS;
use tasks::task::Definition;

use super::screen::Screen;
use super::{SampleArgs, at_least_one, stream};
use crate::fail::{Exit, Failure, Outcome, reason, shown};
use crate::out::{self, OutputKind};
use crate::output;
use crate::signals::stop_on_signals;

/// Write samples of a task to a file or to standard output
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  canonc data generate mano --set L=10 --count 3
  canonc data generate brevo --set N=110 --count 1000000 --out brevo1.parquet
  canonc data generate lano --set config=cfg3f --seed 7 --count 200 --format bin | sha256sum
  canonc data generate depo --set N=75 --set K=4 --set mini_vocab=3 --set min_tlen=5 --set max_tlen=7 \\
      --order indexed --from 5000 --count 1000 --out shard5.jsonl

`--help` lists every task's parameters and describes the formats.",
    after_long_help = generate_help()
)]
pub(super) struct GenerateDataArgs {
    #[command(flatten)]
    pub samples: SampleArgs,
    /// Number of samples
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = at_least_one)]
    pub count: u64,
    /// File format [default: by the extension of FILE, else jsonl]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<DataFormat>,
    /// Output file; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub out: PathBuf,
}

/// Examples, every parameter of every task, and the formats.
fn generate_help() -> String {
    let line = |task: &Definition| format!("  {:<10}{}\n", task.name, task.usage);
    let parameters: String = DEFINITIONS.into_iter().map(line).collect();
    format!(
        "\
Examples:
  canonc data generate mano --set L=10 --count 3
  canonc data generate brevo --set N=110 --count 1000000 --out brevo1.parquet
  canonc data generate lano --set config=cfg3f --seed 7 --count 200 --format bin | sha256sum
  canonc data generate depo --set N=75 --set K=4 --set mini_vocab=3 --set min_tlen=5 --set max_tlen=7 \\
      --order indexed --from 5000 --count 1000 --out shard5.jsonl

Parameters, by their published names; those in brackets default to the published value:
{parameters}\
A VALUE is parsed as JSON, or else taken as text; @FILE means the file's JSON or the list of its lines.

Orders: `published` is one stream from one seed, token for token as the published script writes it; for capo,
people follow one after the other, drawn with the seed, and texts are drawn with the seed plus 1000003.
`indexed` makes each sample a function of its number: sample i is the first one of training window i.

Formats:
  jsonl    one object per line: `tokens`; `labels` if the task has them (1 is a target); for capo and
           multihop `text`, and `answer` if there is a question; their bytes are the tokens
  parquet  one row per sample, with columns of the same names
  bin      for each sample its length and its tokens, as little-endian u32; the SHA-256 of the file
           is the digest of the published vectors

The file is written only when it is complete; on an error or Ctrl-C an older file stays unchanged."
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DataFormat {
    Jsonl,
    Parquet,
    Bin,
}

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
