//! Arguments of `canonc eval`.
//!
//! In: argv, as clap reads it. Out: plain values. Must stay true: as in `args`.

use std::path::PathBuf;

use clap::Args;

use super::{MachineArgs, PromptArgs};

/// Evaluate a model on the tasks of a suite: multiple choice, continuations, perplexity, generated answers
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc eval runs/text/text-first-seed1 --suite mine.toml        a run's last checkpoint
  canonc eval meta/Llama-3.2-1B --suite release --data copies     a Hugging Face folder, your copies of 14 tasks
  canonc eval my.lock --weights w.safetensors --suite release --data copies --task piqa,wikitext --limit 100
  canonc eval runs/b --suite mine.toml --against a.json           then paired differences from the result a.json
  canonc eval --suite release --list                              the tasks of a suite and the files that they read
  canonc eval runs/text --suite mine.toml --lengths 512,1024      the same questions in inputs of each length
  canonc eval runs/text --suite needle --lengths 512,1024         find a number in a generated text, by length and depth
  canonc eval runs/depo --suite task --set data.depo.K=8          what the run's own evaluations measure, on other data

A suite is a TOML file; `release` is built in. Its tasks say how a question, one JSON object a line, becomes text:

  [[task]]
  name = \"piqa\"
  kind = \"choice\"                    # or continuation, document, generate
  file = \"piqa.jsonl\"                # next to the suite, or in --data
  prompt = \"Question: {{ goal }}\\nAnswer:\"
  choices = \"[sol1, sol2]\"
  answer = \"label\"

docs/evaluation.md describes every key. Prompts, token boundaries, ties and normalisations are those of EleutherAI's
lm-evaluation-harness 0.4.7.

Schema of --json and --out: {schema: \"canonc.eval.v1\", model: {name, graph, weights, lock}, suite, settings:
{max_length (the longest of --lengths), bos, dtype, limit}, tasks: [{name, kind, task, questions, examples, shots, count, metrics: [{metric,
value, stderr, each}]}], kernels: [{kernel, path, times}]}; task, questions and examples are digests (BLAKE3), each has
every question's part.")]
pub struct EvalArgs {
    /// A run, a lock, a .canon file, or a folder: of Hugging Face or Lingua, or of `canonc export --to hf` or `import`
    #[arg(value_name = "MODEL", required_unless_present = "list")]
    pub file: Option<PathBuf>,
    /// The suite: a TOML file, or `release`, `needle` or `task`
    #[arg(long, value_name = "FILE|NAME")]
    pub suite: PathBuf,
    /// Measure with inputs of each of these lengths, in tokens, also beyond those of training
    #[arg(long, value_name = "N,N", value_delimiter = ',', conflicts_with = "max_length", allow_negative_numbers = true, value_parser = super::within::<usize>(1, 1 << 24))]
    pub lengths: Vec<usize>,
    /// For `needle`: where the number stands, in percent of the text [default: 0,25,50,75,100]
    #[arg(long, value_name = "P,P", value_delimiter = ',', allow_negative_numbers = true, value_parser = super::within::<u8>(0, 100))]
    pub depths: Vec<u8>,
    /// For `needle`: questions for each length and depth [default: 10]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::within::<usize>(1, 100_000))]
    pub count: Option<usize>,
    /// For `needle`: the seed of its questions [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::within::<u64>(0, u64::MAX))]
    pub seed: Option<u64>,
    /// For `task`: another value of a field under data or evaluation, such as data.depo.K=8
    #[arg(long, value_name = "FIELD=VALUE")]
    pub set: Vec<String>,
    /// Only these tasks, separated by commas
    #[arg(long, value_name = "TASK", value_delimiter = ',')]
    pub task: Vec<String>,
    /// List the tasks of the suite and their files instead
    #[arg(long, conflicts_with_all = ["file", "out", "weights", "against"])]
    pub list: bool,
    /// The folder with the files of questions [default: the suite's folder]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Examples in front of each question [default: each task's own number]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::within::<usize>(0, 1000))]
    pub shots: Option<usize>,
    /// Only the first questions of each task
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::within::<usize>(1, usize::MAX))]
    pub limit: Option<usize>,
    /// Most tokens of an input; longer ones are cut from the left [default: the lock's data.seq_len, or what the
    /// configuration of the folder or of the import says, or 2048]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::within::<usize>(1, 1 << 24))]
    pub max_length: Option<usize>,
    /// Leave out the token before a context that training had there
    #[arg(long)]
    pub no_bos: bool,
    /// The architecture, if the file has several
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// The parameters: .safetensors, an index of shards, consolidated.pth, a folder with one, or a run [default for a run:
    /// its last checkpoint]
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    #[command(flatten)]
    pub prompts: PromptArgs,
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Write results with every question's part into a JSON file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Then compare with an earlier result of the same questions, question by question
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// Print results as JSON
    #[arg(long, conflicts_with = "against")]
    pub json: bool,
}
