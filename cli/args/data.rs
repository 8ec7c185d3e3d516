//! Arguments of `canonc data`: samples of the synthetic tasks, and prepared documents (`prepare`). Names and values of
//! `--set` are those of the published vectors.

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use tasks::DEFINITIONS;
use tasks::task::{self, Definition};

use crate::named;

use super::prepare::{AboutArgs, PrepareArgs};

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
pub struct DataArgs {
    #[command(subcommand)]
    pub command: DataCommand,
}

#[derive(Debug, Subcommand)]
pub enum DataCommand {
    Generate(GenerateDataArgs),
    Inspect(InspectArgs),
    Export(ExportWindowsArgs),
    Stats(StatsArgs),
    Overlap(OverlapArgs),
    Prepare(PrepareArgs),
    About(AboutArgs),
    Babilong(BabilongArgs),
}

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
pub struct GenerateDataArgs {
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

/// Show samples with their structure (cycle, graph, expression, parse tree), or a lock's windows
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data inspect mano --set L=4
  canonc data inspect brevo --set N=12 --seed 7 --count 3
  canonc data inspect lano --set config=cfg3b --order indexed --from 1000000
  canonc data inspect lockfiles/c4_llama.lock --from 640 --count 3
  canonc data inspect lockfiles/c4_llama.lock --held-out

For a task, answers are computed again from the sample itself: `right` means that both agree. For a lock, windows are
shown as training reads them: as text if tokens are bytes or --tokenizer-file is given, else as numbers.")]
pub struct InspectArgs {
    /// A task, or the lock of an experiment
    #[arg(value_name = "TASK|LOCK", value_parser = task_or_lock)]
    pub of: String,
    #[command(flatten)]
    pub options: SampleOptions,
    #[command(flatten)]
    pub windows: WindowArgs,
    /// The file of the lock's tokenizer, to show text
    #[arg(long, value_name = "FILE")]
    pub tokenizer_file: Option<PathBuf>,
    /// Number of samples or windows
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = at_least_one)]
    pub count: u64,
}

/// Selects windows of a lock.
#[derive(Args, Debug)]
pub struct WindowArgs {
    /// Prepared documents, if the lock trains on text [default: data/NAME.index]
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Use windows of the evaluation instead of training windows
    #[arg(long)]
    pub held_out: bool,
}

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
pub struct ExportWindowsArgs {
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
pub enum WindowFormat {
    Jsonl,
    Bin,
}

/// Show statistics of a task's samples: lengths, targets, answers, tokens used
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data stats brevo --set N=110
  canonc data stats lano --set config=cfg3k --count 100000 --json

Schema of --json, one object on standard output:
  schema    \"canonc.data.stats.v1\"
  task      its name
  samples, tokens
  length    {least, most, mean}, tokens per sample
  targets   number of targets if only answers count; null for tasks without labels
  vocabulary       {tokens, used}: tokens that samples can have, and those that occurred
  bits_per_token   the entropy of single tokens
  answers   each {level, count, tokens}; the meaning of a level depends on the task (hops, depth, operations)")]
pub struct StatsArgs {
    #[command(flatten)]
    pub samples: SampleArgs,
    /// Number of samples to inspect
    #[arg(long, value_name = "N", default_value_t = 1000, allow_negative_numbers = true, value_parser = at_least_one)]
    pub count: u64,
    /// Print JSON (`--help` shows the schema)
    #[arg(long)]
    pub json: bool,
}

/// Count the evaluation questions of a recipe that also occur in its training data
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data overlap recipes/cpu_mano.toml
  canonc data overlap lockfiles/demo_llama.lock --json

A question is the whole text before an answer in its sample, token by token: Depo's edges and questions so far,
Brevo's graph, Mano's expression. It counts as shown if a training window contains it with its whole answer. The
held-out questions are those of one evaluation. Every training window is generated once, so a published recipe takes
minutes to hours. For a sweep, points with the same windows are inspected once.

Schema of --json, one object on standard output:
  schema       \"canonc.data.overlap.v1\"
  experiments  each:
    name, task
    training   {windows, questions}
    held_out   {questions, shown}; `distinct` is the same with equal questions counted once
    levels     each {level, questions, shown}; the meaning of a level depends on the task (hops, depth, operations)
    in_windows {questions, shown} in the evaluation windows, used for eval_loss and token_accuracy; the same as
               held_out except for Brevo, where the model writes answers to other questions")]
pub struct OverlapArgs {
    /// A recipe, or the lock of an experiment
    #[arg(value_name = "RECIPE|LOCK")]
    pub file: PathBuf,
    /// Print JSON (`--help` shows the schema)
    #[arg(long)]
    pub json: bool,
}

fn whole(text: &str) -> Result<u64, String> {
    super::within(0, u64::MAX)(text)
}

fn at_least_one(text: &str) -> Result<u64, String> {
    super::within(1, u64::MAX)(text)
}

fn task_or_lock(text: &str) -> Result<String, String> {
    match Definition::find(text).is_some()
        || !matches!(named::lock(Path::new(text)), Ok(path) if !path.exists())
    {
        true => Ok(text.to_owned()),
        false => {
            Err(format!("it is neither a task ({}) nor a lock nor a run", task::names().join(", ")))
        }
    }
}

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DataFormat {
    Jsonl,
    Parquet,
    Bin,
}

/// Put questions of a Babilong task into the prompts of your own checkout
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data babilong --prompts babilong/prompts.py --task 1 --questions qa1.jsonl --out prompted.jsonl

canonc may not distribute the prompts: name the Python files of a Babilong checkout that define them. Prompts other
than the published ones are refused. A question is a line `{\"context\": …, \"question\": …, \"answer\": …}`, or with
Babilong's `input` and `target`; the output is for `canonc answer --judge words`.")]
pub struct BabilongArgs {
    /// Python files that define the prompts, in the order in which they import each other
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    pub prompts: Vec<PathBuf>,
    /// The set of prompts
    #[arg(long, value_enum, value_name = "SET", default_value_t)]
    pub set: BabilongSet,
    /// Task number, for qa1 to qa20
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::within::<u32>(1, 20))]
    pub task: u32,
    /// A JSON lines file
    #[arg(long, value_name = "FILE")]
    pub questions: PathBuf,
    /// Output file for prompts; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub out: PathBuf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BabilongSet {
    /// Prompts of Part 4's experiments, qa1 to qa5
    #[default]
    Part4,
    /// Babilong's own prompts, qa1 to qa20
    Default,
}
