//! `canonc data`: writes, shows or counts samples of the synthetic tasks, and prepares documents.

mod about;
mod babilong;
mod export;
mod generate;
mod inputs;
mod inspect;
mod overlap;
mod prepare;
pub mod screen;
mod stats;
mod stream;
mod windows;

use std::io::Read;
use std::path::Path;

use clap::builder::PossibleValuesParser;
use clap::{ArgMatches, Args, ValueEnum};
use data::settings;
use data::stream::Stream;
use data::window::Order;
use dsl::Problem;
use tasks::sample::Mode;
use tasks::task;

use crate::command::{Program, Row, Run, with, with_commands};
use crate::fail::{Failure, Outcome, shown};
use crate::files;
use crate::options::within;

/// Write, show and count samples of the synthetic tasks; prepare documents for training
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data generate mano --set L=10 --count 3
  canonc data inspect brevo --set N=12
  canonc data stats lano --set config=cfg3f
  canonc data prepare shards/*.jsonl --out data/c4.index
  canonc data about --lock lockfiles/c4_llama.lock
  canonc data inspect lockfiles/c4_llama.lock --count 3
  canonc data export lockfiles/c4_llama.lock --out c4.bin")]
pub struct DataArgs {}

/// Selects a task and its samples.
#[derive(Args, Debug)]
pub struct SampleArgs {
    /// The task
    #[arg(value_name = "TASK", value_parser = PossibleValuesParser::new(task::names()))]
    pub task: String,
    #[command(flatten)]
    pub options: SampleOptions,
}

/// Selects samples of a task.
#[derive(Args, Debug)]
pub struct SampleOptions {
    /// A parameter of the task, such as N=110; VALUE may be @FILE
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// `published`: the one stream of the published script; `indexed`: each sample by its number
    #[arg(long, value_enum, value_name = "ORDER", default_value_t)]
    pub order: DataOrder,
    /// Random seed; the published script uses 42
    #[arg(long, value_name = "S", default_value_t = 42, allow_negative_numbers = true, value_parser = whole)]
    pub seed: u64,
    /// Draw sizes as in training, or use the largest size as in tests [default: train]
    #[arg(long, value_enum, value_name = "MODE")]
    pub mode: Option<DataMode>,
    /// Number of the first sample (in the indexed order), or of a lock's first window
    #[arg(long, value_name = "I", default_value_t = 0, allow_negative_numbers = true, value_parser = whole)]
    pub from: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DataOrder {
    #[default]
    Published,
    Indexed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DataMode {
    Train,
    Test,
}

fn whole(text: &str) -> Result<u64, String> {
    within(0, u64::MAX)(text)
}

fn at_least_one(text: &str) -> Result<u64, String> {
    within(1, u64::MAX)(text)
}

/// Size limit of a parameter's file: a grammar is kilobytes, a book of background sentences a megabyte.
const MOST_BYTES: u64 = 64 << 20;

/// The commands of `canonc data`, in the order of its help.
const COMMANDS: &[Row] = &[
    row::<generate::GenerateDataArgs>("generate", |_, args| with(args, generate::generate)),
    row::<inspect::InspectArgs>("inspect", |_, args| with(args, inspect::inspect)),
    row::<export::ExportWindowsArgs>("export", |_, args| with(args, export::export)),
    row::<stream::StreamArgs>("stream", |_, args| with(args, stream::stream)),
    row::<stats::StatsArgs>("stats", |_, args| with(args, stats::stats)),
    row::<overlap::OverlapArgs>("overlap", |_, args| with(args, overlap::overlap)),
    row::<prepare::PrepareArgs>("prepare", |_, args| with(args, prepare::prepare)),
    row::<about::AboutArgs>("about", |_, args| with(args, about::about)),
    row::<babilong::BabilongArgs>("babilong", |_, args| with(args, babilong::babilong)),
];

const fn row<A: Args>(name: &'static str, run: Run) -> Row {
    Row { name, listed: None, arguments: A::augment_args, run }
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    let command = DataArgs::augment_args(command);
    with_commands(command.subcommand_required(true).arg_required_else_help(true), COMMANDS.iter())
}

pub(crate) fn run(program: &Program, matches: &ArgMatches) -> Outcome {
    let inner = matches.subcommand();
    let row =
        inner.and_then(|(name, args)| Some((COMMANDS.iter().find(|row| row.name == name)?, args)));
    match row {
        Some((row, args)) => (row.run)(program, args),
        None => Err(Failure::bad_input("no command of `canonc data` is named")),
    }
}

/// The stream of the requested samples; `count` of them will be drawn.
fn stream(args: &SampleArgs, count: u64) -> Result<Stream, Failure> {
    stream_of(&args.task, &args.options, count)
}

fn stream_of(task: &str, options: &SampleOptions, count: u64) -> Result<Stream, Failure> {
    let SampleOptions { set, order, seed, mode, from } = options;
    let parameters = settings::parameters(set, parameter_file)?;
    let mode = mode.map(|mode| match mode {
        DataMode::Train => Mode::Train,
        DataMode::Test => Mode::Test,
    });
    let order = match order {
        DataOrder::Published => Order::Published,
        DataOrder::Indexed => Order::Indexed,
    };
    let (task, mode) = settings::task(task, parameters, mode)?;
    let mut stream = Stream::new(task, order, mode, *seed);
    stream.skip_to(*from, count)?;
    Ok(stream)
}

/// The text of a file that `--set NAME=@FILE` names.
fn parameter_file(path: &str) -> Result<String, Problem> {
    let wrong = |message: String, help: String| Problem::input(message, help);
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
