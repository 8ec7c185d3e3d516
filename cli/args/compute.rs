//! Arguments of the commands that compute: demo, forward, generate, bench.
//!
//! In: argv, as clap reads it. Out: plain values. Must stay true: as in `args`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Prove a Llama and a LlamaCanon differ in nothing else, train both, draw the curves
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc demo              in a clone of the repository, as `make demo` does
  canonc demo --families   and then attention beside the linear mixers, another ten to twenty minutes")]
pub struct DemoArgs {
    /// Then compare Llama with gated linear attention, Gated DeltaNet and Mamba2
    #[arg(long)]
    pub families: bool,
}

/// Train small archs of every family, with and without Canon layers, on the synthetic tasks, and draw who gains what
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc playground --jobs 2                        every task and family there is
  canonc playground --tasks depo,mano --families llama,gla

It is `canonc build` and `canonc compare` on recipes/cpu_TASK_FAMILY.toml; interrupting and repeating goes on where it
stopped. The picture is playground/playground.svg.")]
pub struct PlaygroundArgs {
    /// Only these, separated by commas
    #[arg(long, value_name = "TASK", value_delimiter = ',')]
    pub tasks: Vec<String>,
    /// Only these, separated by commas
    #[arg(long, value_name = "FAMILY", value_delimiter = ',')]
    pub families: Vec<String>,
    /// Runs at a time, one core each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = super::jobs)]
    pub jobs: usize,
}

/// Time our kernels beside libtorch's, and whole training steps
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc bench canon               the Canon layer at the two shapes the README quotes
  canonc bench canon --rounds 50
  canonc bench scan --rounds 3     gated linear attention, the delta rule and Mamba2's scan
  canonc bench step arch/llamacanon_tiny.canon --batch 8 --seq-len 512
  canonc bench step arch/llama_small.canon arch/gla_small.canon --batch 1 --seq-len 512,2048,8192")]
pub struct BenchArgs {
    /// What to time
    #[arg(value_enum)]
    pub what: BenchWhat,
    /// Whose step: .canon files or locks; of several, a table
    #[arg(value_name = "FILE", required_if_eq("what", "step"))]
    pub files: Vec<PathBuf>,
    /// The architecture that is meant, if a file holds several
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// Sequences of a step
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(i64).range(1..=1 << 20))]
    pub batch: i64,
    /// Tokens of a sequence; of several lengths, a table
    #[arg(long, value_name = "N,…", default_value = "512", value_delimiter = ',', value_parser = clap::value_parser!(i64).range(1..=1 << 24))]
    pub seq_len: Vec<i64>,
    /// Rounds; each times every contender once
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    #[command(flatten)]
    pub machine: MachineArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchWhat {
    /// Forward and backward of one Canon layer
    Canon,
    /// Forward and backward of the scans of GLA, Gated DeltaNet and Mamba2, and how they grow with time
    Scan,
    /// A training step of an architecture, and where its time goes
    Step,
    /// The playground's generators beside the published Python ones
    Data,
}

/// Logits, losses and gradients of given weights on given tokens
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc forward arch/llama_tiny.canon --weights w.safetensors --tokens t.safetensors --out o.safetensors
  canonc forward lockfiles/depo_llama.lock --weights w.safetensors --tokens t.safetensors \\
      --targets targets --grad --dtype f64 --out o.safetensors

Weights may have our paths, Hugging Face's names or Lingua's, as `canonc import` takes them. Tokens are
the tensor `tokens`, i64 [batch, time]; targets a tensor of the same file by its name, or `targets` of another file, -100
being ignored. The output has `logits`; with targets `nll` and `loss` [1] f64 (a mean; a lock's own
loss, cross-entropy for a .canon file); with --grad `grad.PATH`, the gradient of that mean.

Schema of --json: {schema: \"canonc.forward.v1\", out, loss, counted, tensors: [{name, shape}],
kernels: [{kernel, path, times}]}; loss and counted are null without targets.")]
pub struct ForwardArgs {
    /// A .canon file, a lock, or a run's folder
    #[arg(value_name = "FILE|RUN")]
    pub file: PathBuf,
    /// The architecture that is meant, if the file holds several
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// The parameters: .safetensors, an index of shards, consolidated.pth, or a folder with one [default: of a run, its
    /// last checkpoint]
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// A safetensors file with `tokens`
    #[arg(long, value_name = "FILE")]
    pub tokens: PathBuf,
    /// Targets: a tensor of the tokens' file, or another file
    #[arg(long, value_name = "NAME|FILE")]
    pub targets: Option<PathBuf>,
    /// Every parameter's gradient as well
    #[arg(long, requires = "targets")]
    pub grad: bool,
    /// Where the tensors go
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    #[command(flatten)]
    pub machine: MachineArgs,
    /// What was done, as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// Sample text or tokens from an architecture with given weights
#[derive(Args, Debug)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  canonc generate arch/llama_tiny.canon --weights w.safetensors --prompt 'Once upon'
  canonc generate runs/text/text-first-seed1 --prompt 'Once upon'     a run's folder brings its weights
  canonc generate depo.lock --weights w.safetensors --prompt-tokens 1,2,3 --temperature 0
  canonc generate arch/llama_tiny.canon --weights w.safetensors --prompt A --top-k 40 --seed 7

The draw of each token is a function of the seed and its place. A text prompt becomes tokens as in the lock's
data: by its tokenizer, after its bos where it has add_bos, up to its eos where it has add_eos; of the tasks capo and
multihop between two ends of a text (257), as their windows have it. A .canon file says nothing of that: its prompts
are bytes, between 256 and 257 (vocabulary 258).

Schema of --json: {schema: \"canonc.generate.v1\", tokens, text, state_bytes, kernels: [{kernel, path,
times}]}; text is null for a prompt of tokens, state_bytes what is carried from token to token."
)]
pub struct GenerateArgs {
    /// A .canon file, a lock, or a run's folder
    #[arg(value_name = "FILE|RUN")]
    pub file: PathBuf,
    /// The architecture that is meant, if the file holds several
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// The parameters: .safetensors, an index of shards, consolidated.pth, or a folder with one [default: of a run, its
    /// last checkpoint]
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// A text to go on from
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_tokens")]
    pub prompt: Option<String>,
    /// Tokens to go on from
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub prompt_tokens: Option<Vec<i64>>,
    #[command(flatten)]
    pub prompts: PromptArgs,
    /// Stop after this many
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = tokens)]
    pub max_tokens: usize,
    /// 0 takes the likeliest token each time
    #[arg(long, value_name = "T", default_value_t = 1.0, value_parser = temperature)]
    pub temperature: f64,
    /// Only among this many of the likeliest [default: all]
    #[arg(long, value_name = "K")]
    pub top_k: Option<usize>,
    /// Which draws are made
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Tokens, text and the kernels' paths as JSON on standard output, at the end
    #[arg(long)]
    pub json: bool,
}

/// The tokenizer of prompts.
#[derive(Args, Debug)]
pub struct PromptArgs {
    /// The file of the lock's tokenizer, where it is not bytes
    #[arg(long, value_name = "FILE")]
    pub tokenizer_file: Option<PathBuf>,
    /// The token before a document, where `canonc data prepare` was given one
    #[arg(long, value_name = "TOKEN")]
    pub bos: Option<String>,
    /// The token after a document, where `canonc data prepare` was given one
    #[arg(long, value_name = "TOKEN")]
    pub eos: Option<String>,
}

/// A number from 0 on.
fn temperature(text: &str) -> Result<f64, String> {
    let range = "it is a number from 0 (the likeliest token each time) on";
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        Ok(value) => Err(format!("the temperature is {value}; {range}")),
        Err(_) => Err(format!("the temperature is no number; {range}")),
    }
}

/// Answer the questions of a file, each by itself, and say how many answers are right
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data generate multihop --set N=5 --set k=1 --count 200 --out years.jsonl
  canonc answer lockfiles/c4_llama.lock --weights w.safetensors --questions years.jsonl
  canonc data babilong --prompts babilong/prompts.py --task 1 --questions qa1.jsonl --out prompted.jsonl
  canonc answer lockfiles/c4_llama.lock --weights w.safetensors --questions prompted.jsonl --judge words

A question is a line `{\"text\": …, \"answer\": …}`; its answer on standard output is a line with what was said and
whether that is right. An answer that is empty, or that has more tokens than --max-tokens, cannot be judged: `right`
is null, `flag` says why, and it is not counted.")]
pub struct AnswerArgs {
    /// A .canon file, a lock, or a run's folder
    #[arg(value_name = "FILE|RUN")]
    pub file: PathBuf,
    /// The architecture that is meant, if the file holds several
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// The parameters: .safetensors, an index of shards, consolidated.pth, or a folder with one [default: of a run, its
    /// last checkpoint]
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// JSON lines
    #[arg(long, value_name = "FILE")]
    pub questions: PathBuf,
    #[command(flatten)]
    pub prompts: PromptArgs,
    /// When an answer is right
    #[arg(long, value_enum, value_name = "RULE", default_value_t)]
    pub judge: Judge,
    /// Tokens of the longest answer
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = tokens)]
    pub max_tokens: usize,
    /// Questions answered at a time
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub rows: usize,
    /// Where answers go, `-` for standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub out: PathBuf,
    #[command(flatten)]
    pub machine: MachineArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Judge {
    /// It begins with the answer, as multi-hop years are judged
    #[default]
    Begins,
    /// Its first sentence has every word of the answer, as Babilong is judged
    Words,
}

impl Judge {
    pub fn rule(self) -> &'static str {
        match self {
            Judge::Begins => "beginning with the answer",
            Judge::Words => "with the answer's words in the first sentence",
        }
    }
}

/// What computes.
#[derive(Args, Clone, Copy, Debug)]
pub struct MachineArgs {
    /// f64 is for checking results
    #[arg(long, value_enum, value_name = "TYPE", default_value_t)]
    pub dtype: WithType,
    /// Where it runs
    #[arg(long, value_enum, value_name = "DEVICE", default_value_t)]
    pub device: OnDevice,
    /// The fastest kernels there are, or libtorch's plain operations throughout
    #[arg(long, value_enum, value_name = "WHICH", default_value_t)]
    pub kernels: WithKernels,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WithType {
    #[default]
    F32,
    F64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnDevice {
    #[default]
    Cpu,
    Cuda,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WithKernels {
    #[default]
    Fastest,
    Reference,
}

/// As many as anyone waits for.
fn tokens(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 0..=10_000_000) => Ok(count),
        Ok(_) | Err(_) => Err("give a whole number up to 10000000".to_owned()),
    }
}
