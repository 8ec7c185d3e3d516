//! `canonc data`: writes, shows or counts samples of the synthetic tasks, and prepares documents.
//!
//! In: a task with its parameters, an order and a seed; or files of documents. Out: samples on standard output or in a
//! file, their structure, their statistics; documents tokenized once into a file. Must stay true: `data` alone defines
//! a sample; memory does not grow with the number of samples; parameters that no data can satisfy
//! are refused before anything is written.

mod about;
mod babilong;
mod generate;
mod inputs;
mod overlap;
mod prepare;
mod screen;
mod stats;
mod windows;

pub use prepare::{tokenizer, tokenizer_file};

use std::io::Read;
use std::path::Path;

use data::DataError;
use data::inspect::inspect;
use data::settings;
use data::stream::Stream;
use data::window::Order;
use tasks::sample::Mode;
use tasks::task::Definition;

use crate::args::{
    DataArgs, DataCommand, DataMode, DataOrder, InspectArgs, SampleArgs, SampleOptions, WindowArgs,
};
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::{files, output};

/// Size limit of a parameter's file: a grammar is kilobytes, a book of background sentences a megabyte.
const MOST_BYTES: u64 = 64 << 20;

pub fn data(args: &DataArgs) -> Outcome {
    match &args.command {
        DataCommand::Generate(args) => generate::generate(args),
        DataCommand::Inspect(args) if Definition::find(&args.of).is_some() => inspect_samples(args),
        DataCommand::Inspect(args) => windows::inspect(args),
        DataCommand::Export(args) => windows::export(args),
        DataCommand::Stats(args) => stats::stats(args),
        DataCommand::Overlap(args) => overlap::overlap(args),
        DataCommand::Prepare(args) => prepare::prepare(args),
        DataCommand::About(args) => about::about(args),
        DataCommand::Babilong(args) => babilong::babilong(args),
    }
}

fn inspect_samples(args: &InspectArgs) -> Outcome {
    let WindowArgs { data, held_out } = &args.windows;
    if data.is_some() || *held_out || args.tokenizer_file.is_some() {
        return Err(Failure::bad_input(format!(
            "--data, --held-out and --tokenizer-file need a lock, but `{}` is a task",
            args.of
        ))
        .help("name the lock of an experiment: lockfiles/NAME.lock"));
    }
    let mut stream = stream_of(&args.of, &args.options, args.count)?;
    for number in 0..args.count {
        let gap = if number > 0 { "\n" } else { "" };
        output::data(&format!("{gap}{}", inspect(&mut stream)))?;
    }
    Ok(Exit::Fine)
}

/// The stream of the requested samples; `count` of them will be drawn.
fn stream(args: &SampleArgs, count: u64) -> Result<Stream, Failure> {
    stream_of(&args.task, &args.options, count)
}

fn stream_of(task: &str, options: &SampleOptions, count: u64) -> Result<Stream, Failure> {
    let SampleOptions { set, order, seed, mode, from } = options;
    let parameters = settings::parameters(set, parameter_file).map_err(failure)?;
    let mode = mode.map(|mode| match mode {
        DataMode::Train => Mode::Train,
        DataMode::Test => Mode::Test,
    });
    let order = match order {
        DataOrder::Published => Order::Published,
        DataOrder::Indexed => Order::Indexed,
    };
    let (task, mode) = settings::task(task, parameters, mode).map_err(failure)?;
    let mut stream = Stream::new(task, order, mode, *seed);
    stream.skip_to(*from, count).map_err(failure)?;
    Ok(stream)
}

/// The text of a file that `--set NAME=@FILE` names.
fn parameter_file(path: &str) -> Result<String, DataError> {
    let wrong = |message: String, help: String| DataError::new(message, help);
    let path = Path::new(path);
    let mut bytes = Vec::new();
    disk::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes)).map_err(
        |error| {
            let failure = files::missing(path, &error);
            wrong(failure.message.unwrap_or_default(), failure.help.join("; "))
        },
    )?;
    if bytes.len() as u64 > MOST_BYTES {
        let message = format!("`{}` has more than {}", shown(path), dsl::size(MOST_BYTES));
        return Err(wrong(message, "name a file of parameters".to_owned()));
    }
    String::from_utf8(bytes).map_err(|_| {
        let message = format!("`{}` is not text", shown(path));
        wrong(message, "parameters must be JSON or lines of text, in UTF-8".to_owned())
    })
}

fn failure(error: DataError) -> Failure {
    let DataError { message, help, machine: _ } = error;
    let failure = Failure::bad_input(message);
    if help.is_empty() { failure } else { failure.help(help) }
}
