//! Arguments of `canonc data`: samples of the synthetic tasks, and prepared documents (`prepare`).
//!
//! In: argv, as clap reads it. Out: plain values. Must stay true: as in `args`; names and values of `--set` are
//! those of the published vectors, and the help of `generate` lists every one of them.

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use data::task::TASKS;

use crate::named;

use super::prepare::{AboutArgs, BenchTextArgs, PrepareArgs};

/// Samples of the synthetic tasks: write, show, count; and documents made ready to train on
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
    Bench(BenchTextArgs),
    Babilong(BabilongArgs),
}

/// Write samples of a task to a file or a pipe
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  canonc data generate mano --set L=10 --count 3
  canonc data generate brevo --set N=110 --count 1000000 --out brevo1.parquet
  canonc data generate lano --set config=cfg3f --seed 7 --count 200 --format bin | sha256sum
  canonc data generate depo --set N=75 --set K=4 --set mini_vocab=3 --set min_tlen=5 --set max_tlen=7 \\
      --order indexed --from 5000 --count 1000 --out shard5.jsonl

`--help` lists every task's parameters and says what the formats hold.",
    after_long_help = "\
Examples:
  canonc data generate mano --set L=10 --count 3
  canonc data generate brevo --set N=110 --count 1000000 --out brevo1.parquet
  canonc data generate lano --set config=cfg3f --seed 7 --count 200 --format bin | sha256sum
  canonc data generate depo --set N=75 --set K=4 --set mini_vocab=3 --set min_tlen=5 --set max_tlen=7 \\
      --order indexed --from 5000 --count 1000 --out shard5.jsonl

Parameters, under their published names; those in brackets have the published value unless set:
  depo      N K mini_vocab min_tlen max_tlen [M QA separator bos eos]
  brevo     N [multi bos query ans eos leaves=floor|ceil ask=last|last_quarter]
  mano      L [ttype value_mod knowledge_augment lens qids bos]
  lano      config or grammar=@FILE.json [root vocab depth]
            config=cfg3b|cfg3e1|cfg3e2|cfg3f|cfg3g|cfg3h|cfg3i|cfg3j|cfg3k
  capo      [N people_seed permute order reverse_md pronoun=parity|drawn]
  multihop  N k [M background=@FILE background_lengths]
A VALUE is JSON if it can be, else text; @FILE stands for a file's JSON or the list of its lines.

Orders: `published` is one stream from one seed, token for token what the published script writes; of
capo, people come one after the other, drawn with the seed, and texts with the seed plus 1000003.
`indexed` makes each sample a function of its number: the first of training window i is number i.

Formats:
  jsonl    an object a line: `tokens`; `labels` where the task has them (1 is a target); of capo and
           multihop `text`, and `answer` where one is asked for, whose bytes are the tokens
  parquet  a row a sample, columns of the same names
  bin      for each sample its length and its tokens, as little-endian u32: the SHA-256 of the file
           is the digest of the published vectors

A file appears when it is whole; an error or Ctrl-C leaves what was there before."
)]
pub struct GenerateDataArgs {
    #[command(flatten)]
    pub samples: SampleArgs,
    /// How many samples
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = at_least_one)]
    pub count: u64,
    /// What is written [default: by the ending of FILE, else jsonl]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<DataFormat>,
    /// Where it goes; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub out: PathBuf,
}

/// Show samples with what they are made of (cycle, graph, expression, parse tree), or a lock's windows
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data inspect mano --set L=4
  canonc data inspect brevo --set N=12 --seed 7 --count 3
  canonc data inspect lano --set config=cfg3b --order indexed --from 1000000
  canonc data inspect lockfiles/c4_llama.lock --from 640 --count 3
  canonc data inspect lockfiles/c4_llama.lock --held-out

Of a task, answers are worked out again from the sample itself: `right` means that both agree. Of a lock, windows are
shown as training reads them: as text where tokens are bytes or --tokenizer-file is given, else as numbers.")]
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
    /// How many samples or windows
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = at_least_one)]
    pub count: u64,
}

/// Which windows of a lock.
#[derive(Args, Debug)]
pub struct WindowArgs {
    /// The prepared documents of a lock on text [default: data/NAME.index]
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Windows of the evaluation, not of training
    #[arg(long)]
    pub held_out: bool,
}

/// Write the windows of a lock, so that another trainer can train on the very same batches
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data export lockfiles/c4_llama.lock --out c4.bin
  canonc data export lockfiles/demo_llama.lock --count 2
  canonc data export lockfiles/c4_llama.lock --from 64000 --count 6400 --out steps_1001_to_1100.bin
  canonc data export lockfiles/c4_llama.lock --held-out --out held_out.jsonl

Step k of a run, from 1, reads windows (k-1)*B to k*B - 1, where B is batch.sequences times batch.micro_batches.
Target i follows token i; it is -100 where the loss does not count it.

Formats:
  jsonl  an object a line: `window`, its number; `tokens` and `targets`, data.seq_len each
  bin    records, little-endian, one after the other: the number as u64, tokens as i32, targets as i32; numpy has
         them as np.fromfile(FILE, [('window', '<u8'), ('tokens', '<i4', S), ('targets', '<i4', S)])

A file appears when it is whole; an error or Ctrl-C leaves what was there before.")]
pub struct ExportWindowsArgs {
    /// The lock of an experiment, bound where it reads text
    #[arg(value_name = "LOCK")]
    pub lock: PathBuf,
    #[command(flatten)]
    pub windows: WindowArgs,
    /// The first window
    #[arg(long, value_name = "W", default_value_t = 0, allow_negative_numbers = true, value_parser = whole)]
    pub from: u64,
    /// How many windows [default: to the last one that the run reads]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = at_least_one)]
    pub count: Option<u64>,
    /// What is written [default: by the ending of FILE, else jsonl]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<WindowFormat>,
    /// Where it goes; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub out: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WindowFormat {
    Jsonl,
    Bin,
}

/// Count what samples of a task have: lengths, targets, answers, tokens used
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data stats brevo --set N=110
  canonc data stats lano --set config=cfg3k --count 100000 --json

Schema of --json, one object on standard output:
  schema    \"canonc.data.stats.v1\"
  task      its name
  samples, tokens
  length    {least, most, mean}, tokens of a sample
  targets   tokens that count when only answers do; null for tasks without labels
  vocabulary       {tokens, used}: tokens that samples can hold, and those that were there
  bits_per_token   the entropy of single tokens
  answers   each {level, count, tokens}; what a level is, the task says (hops, depth, operations)")]
pub struct StatsArgs {
    #[command(flatten)]
    pub samples: SampleArgs,
    /// How many samples are looked at
    #[arg(long, value_name = "N", default_value_t = 1000, allow_negative_numbers = true, value_parser = at_least_one)]
    pub count: u64,
    /// As JSON on standard output (`--help` states the schema)
    #[arg(long)]
    pub json: bool,
}

/// Count the questions of a recipe's evaluation that its own training shows
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data overlap recipes/cpu_mano.toml
  canonc data overlap lockfiles/demo_llama.lock --json

A question is all that stands before an answer in its sample, token by token: Depo's edges and questions so far,
Brevo's graph, Mano's expression. It is shown if a training window holds it with its whole answer. Held out are those
of one evaluation; every training window is made once, so a published recipe takes minutes to hours. Of a sweep, points
with the same windows are looked at once.

Schema of --json, one object on standard output:
  schema       \"canonc.data.overlap.v1\"
  experiments  each:
    name, task
    training   {windows, questions}
    held_out   {questions, shown}; distinct the same, with equal questions once
    levels     each {level, questions, shown}; what a level is, the task says (hops, depth, operations)
    in_windows {questions, shown}: those in the evaluation windows, of losses and token accuracy; the same as
               held_out but for Brevo, where the model writes its answers to other questions")]
pub struct OverlapArgs {
    /// A recipe, or the lock of an experiment
    #[arg(value_name = "RECIPE|LOCK")]
    pub file: PathBuf,
    /// As JSON on standard output (`--help` states the schema)
    #[arg(long)]
    pub json: bool,
}

fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("it is a whole number from 0 to {}", u64::MAX))
}

fn at_least_one(text: &str) -> Result<u64, String> {
    let number = whole(text).ok().filter(|&number| number > 0);
    number.ok_or_else(|| format!("it is a whole number from 1 to {}", u64::MAX))
}

fn task_or_lock(text: &str) -> Result<String, String> {
    match TASKS.contains(&text)
        || !matches!(named::lock(Path::new(text)), Ok(path) if !path.exists())
    {
        true => Ok(text.to_owned()),
        false => Err(format!("it is neither a task ({}) nor a lock nor a run", TASKS.join(", "))),
    }
}

/// Which samples.
#[derive(Args, Debug)]
pub struct SampleArgs {
    /// The task
    #[arg(value_name = "TASK", value_parser = PossibleValuesParser::new(TASKS))]
    pub task: String,
    #[command(flatten)]
    pub options: SampleOptions,
}

/// Which of a task's samples.
#[derive(Args, Debug)]
pub struct SampleOptions {
    /// A parameter of the task, such as N=110; VALUE may be @FILE
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// As the published script goes through its one stream, or each sample by its number
    #[arg(long, value_enum, value_name = "ORDER", default_value_t)]
    pub order: DataOrder,
    /// The seed; 42 is that of the published script
    #[arg(long, value_name = "S", default_value_t = 42, allow_negative_numbers = true, value_parser = whole)]
    pub seed: u64,
    /// Sizes drawn as in training, or all at the largest as in tests [default: train]
    #[arg(long, value_enum, value_name = "MODE")]
    pub mode: Option<DataMode>,
    /// The number of the first sample, which the indexed order can begin with, or of a lock's first window
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

The prompts' words are not canonc's to give: name the Python files of a checkout that assign them. Prompts that are
not the published ones are refused. A question is a line `{\"context\": …, \"question\": …, \"answer\": …}`, or with
Babilong's `input` and `target`; what comes out is for `canonc answer --judge words`.")]
pub struct BabilongArgs {
    /// Python files that assign the prompts, in the order they read each other
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    pub prompts: Vec<PathBuf>,
    /// Whose prompts
    #[arg(long, value_enum, value_name = "SET", default_value_t)]
    pub set: BabilongSet,
    /// Which of qa1 to qa20
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20))]
    pub task: u32,
    /// JSON lines
    #[arg(long, value_name = "FILE")]
    pub questions: PathBuf,
    /// Where prompts go, `-` for standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub out: PathBuf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BabilongSet {
    /// Those of Part 4's experiments, qa1 to qa5
    #[default]
    Part4,
    /// Babilong's own, qa1 to qa20
    Default,
}
