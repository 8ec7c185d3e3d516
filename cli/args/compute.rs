//! Arguments of the commands that compute: demo, forward, generate, bench.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Prove that a Llama and a LlamaCanon differ only in Canon layers, train both, draw the curves
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc demo              in a clone of the repository, as `make demo` does
  canonc demo --families   then compare attention with the linear mixers, another ten to twenty minutes")]
pub struct DemoArgs {
    /// Then also compare Llama with gated linear attention, Gated DeltaNet and Mamba2
    #[arg(long)]
    pub families: bool,
}

/// Train small archs of every family with and without Canon layers on the synthetic tasks, and plot the differences
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc playground --jobs 2                        every task and family
  canonc playground --tasks depo,mano --families llama,gla
  canonc playground --wide --jobs 2                 eight architectures beyond the release, on depo and mano

Runs `canonc build` and `canonc compare` on recipes/cpu_TASK_FAMILY.toml; an interrupted command continues when
repeated. The picture is playground/playground.svg, with --wide playground/wide.svg.")]
pub struct PlaygroundArgs {
    /// Only these, separated by commas
    #[arg(long, value_name = "TASK", value_delimiter = ',')]
    pub tasks: Vec<String>,
    /// Only these, separated by commas
    #[arg(long, value_name = "FAMILY", value_delimiter = ',')]
    pub families: Vec<String>,
    /// Architectures beyond the release: recipes/wide_TASK_FAMILY.toml
    #[arg(long)]
    pub wide: bool,
    /// Runs at a time, one core each
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = super::jobs)]
    pub jobs: usize,
}

/// Time training steps, by kernel and against PyTorch's
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc bench step arch/llamacanon_tiny.canon --batch 8 --seq-len 512
  canonc bench step arch/llama_small.canon arch/gla_small.canon --batch 1 --seq-len 512,2048,8192
  canonc bench peers               a training step next to PyTorch's, with the python3 on PATH
  canonc bench peers --python env/bin/python --rounds 9 --dtype bf16
  canonc bench peers arch/gla_demo.canon --batch 8 --seq-len 256

`peers` trains a Llama and a LlamaCanon (arch/peer.canon) in canonc and in PyTorch, eager and compiled, on the CPU. Each
is a process of its own; they take turns, five steps at a time. PyTorch runs as installed, and again with an allocator
that keeps its pages (glibc's own, by its environment variable). `step` and `peers` count operations and bytes of each
kernel from the plan and compare them with a matrix product and a copy on this machine.

With a file, `peers` races its architecture against the module that `canonc export --to torch` writes for it: PyTorch's
operations, one for each node of the graph, and scans by chunks of 16 tokens. That is not what an expert would write for
one architecture, but what PyTorch does with the text that the architecture is.")]
pub struct BenchArgs {
    /// The benchmark
    #[arg(value_enum)]
    pub what: BenchWhat,
    /// For `step`: .canon files or locks; several give a table. For `peers`: one of them
    #[arg(value_name = "FILE", required_if_eq("what", "step"))]
    pub files: Vec<PathBuf>,
    /// The architecture, if a file has several
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// Sequences per step [default: 8]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::within::<i64>(1, 1 << 20))]
    pub batch: Option<i64>,
    /// Tokens per sequence; for `step`, several lengths give a table [default: 512]
    #[arg(long, value_name = "N,…", value_delimiter = ',', allow_negative_numbers = true, value_parser = super::within::<i64>(1, 1 << 24))]
    pub seq_len: Vec<i64>,
    /// Number of rounds; each round times every implementation once [default: 20; 5 for `peers`]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::within::<u16>(1, u16::MAX))]
    pub rounds: Option<u16>,
    /// For `peers`: a Python with PyTorch [default: the first with libtorch's version: python3, or the environment that
    /// --make-environment made]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// For `peers`: if no Python has PyTorch of libtorch's version, download it (about 5 GB) into an environment in the
    /// user's cache folder
    #[arg(long, conflicts_with = "python")]
    pub make_environment: bool,
    /// For `step`: train as many steps as each line of standard input says, and answer with their times
    #[arg(long, hide = true)]
    pub serve: bool,
    #[command(flatten)]
    pub machine: MachineArgs,
}

impl BenchArgs {
    /// Sequences per step.
    pub fn sequences(&self) -> i64 {
        self.batch.unwrap_or(8)
    }

    /// Tokens per sequence, at least one length.
    pub fn lengths(&self) -> &[i64] {
        if self.seq_len.is_empty() { &[512] } else { &self.seq_len }
    }

    /// The number of rounds, if the command line does not give it.
    pub fn rounds_or(&self, default: u16) -> usize {
        usize::from(self.rounds.unwrap_or(default))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchWhat {
    /// A training step of an architecture, with the time of each operation
    Step,
    /// A training step of a Llama and a LlamaCanon, compared with PyTorch's
    Peers,
}

/// Compute logits, losses and gradients for given weights and tokens
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc forward arch/llama_tiny.canon --weights w.safetensors --tokens t.safetensors --out o.safetensors
  canonc forward lockfiles/depo_llama.lock --weights w.safetensors --tokens t.safetensors \\
      --targets targets --grad --dtype f64 --out o.safetensors

Weights can have our paths, Hugging Face's names or Lingua's, as for `canonc import`. Tokens are the tensor
`tokens`, i64 [batch, time]; targets are a named tensor of the same file, or `targets` of another file, where -100
is ignored. The output has `logits`; with targets also `nll` and `loss` [1] f64 (a mean of the lock's own loss,
or of cross-entropy for a .canon file); with --grad also `grad.PATH`, the gradient of that mean.

Schema of --json: {schema: \"canonc.forward.v1\", out, loss, counted, tensors: [{name, shape}],
kernels: [{kernel, path, times}]}; loss and counted are null without targets.")]
pub struct ForwardArgs {
    /// A run, a lock, a .canon file, or a folder: of Hugging Face or Lingua, or of `canonc export --to hf` or `import`
    #[arg(value_name = "FILE|RUN")]
    pub file: PathBuf,
    /// The architecture, if the file has several
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// The parameters: .safetensors, an index of shards, consolidated.pth, a folder with one, or a run [default for a run:
    /// its last checkpoint]
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// A safetensors file with `tokens`
    #[arg(long, value_name = "FILE")]
    pub tokens: PathBuf,
    /// Targets: a tensor of the tokens' file, or another file
    #[arg(long, value_name = "NAME|FILE")]
    pub targets: Option<PathBuf>,
    /// Also compute every parameter's gradient
    #[arg(long, requires = "targets")]
    pub grad: bool,
    /// Output file for the tensors
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Print a summary as JSON
    #[arg(long)]
    pub json: bool,
}

/// Sample text or tokens from a model
#[derive(Args, Debug)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  canonc generate arch/llama_tiny.canon --weights w.safetensors --prompt 'Once upon'
  canonc generate runs/text/text-first-seed1 --prompt 'Once upon'     with the weights of a run
  canonc generate depo.lock --weights w.safetensors --prompt-tokens 1,2,3 --temperature 0
  canonc generate arch/llama_tiny.canon --weights w.safetensors --prompt A --top-k 40 --seed 7
  canonc generate runs/text/text-first-seed1 --interactive            a prompt a line; Ctrl-D ends
  canonc generate exported --interactive --chat --max-tokens 500      a conversation, by the model's chat template
  canonc generate exported --prompt A                                 a Hugging Face folder, with its tokenizer

The random draw for a token is a function of the seed and the token's position. A text prompt becomes tokens as the
lock's data does: with its tokenizer, starting with bos under add_bos, and ending at eos under add_eos; for the tasks
capo and multihop, between two ends of text (257), as in their windows. A .canon file has no data settings: its
prompts are bytes, between 256 and 257 (vocabulary 258), or tokens of the tokenizer.json that was imported with its
weights or is --tokenizer-file; tokenizer_config.json beside that names its bos and eos. The spelling of a special token
in a prompt, such as <|im_start|>, is plain text; give special tokens as --prompt-tokens.

Schema of --json: {schema: \"canonc.generate.v1\", model, prompt, temperature, seed, tokens, text, state_bytes,
kernels: [{kernel, path, times}]}; prompt and text are null for a prompt of tokens, state_bytes is the size of the
state carried between tokens. `canonc report --samples` shows such documents."
)]
pub struct GenerateArgs {
    /// A run, a lock, a .canon file, or a folder: of Hugging Face or Lingua, or of `canonc export --to hf` or `import`
    #[arg(value_name = "FILE|RUN")]
    pub file: PathBuf,
    /// The architecture, if the file has several
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// The parameters: .safetensors, an index of shards, consolidated.pth, a folder with one, or a run [default for a run:
    /// its last checkpoint]
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// A text to continue
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_tokens")]
    pub prompt: Option<String>,
    /// Tokens to continue
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub prompt_tokens: Option<Vec<i64>>,
    /// Read prompts from the terminal, a line each, and continue each of them
    #[arg(short, long, conflicts_with_all = ["prompt", "prompt_tokens", "json"])]
    pub interactive: bool,
    /// With --interactive: lines are messages of a conversation, which the model's chat template makes a prompt of; an
    /// empty line begins a new one
    #[arg(long, requires = "interactive")]
    pub chat: bool,
    /// A chat template in Jinja [default: as in `canonc serve`]
    #[arg(long, value_name = "FILE", requires = "chat")]
    pub chat_template: Option<PathBuf>,
    #[command(flatten)]
    pub prompts: PromptArgs,
    /// Maximum number of tokens to generate
    #[arg(long, value_name = "N", default_value_t = 64, allow_negative_numbers = true, value_parser = tokens)]
    pub max_tokens: usize,
    /// Sampling temperature; 0 always takes the most likely token
    #[arg(long, value_name = "T", default_value_t = 1.0, value_parser = temperature)]
    pub temperature: f64,
    /// Sample only from this many most likely tokens [default: all]
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = super::within::<usize>(0, usize::MAX))]
    pub top_k: Option<usize>,
    /// Sample only from the most likely tokens that have this probability together [default: all]
    #[arg(long, value_name = "P", value_parser = probability)]
    pub top_p: Option<f64>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = super::within::<u64>(0, u64::MAX))]
    pub seed: u64,
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Print tokens, text and the kernels' paths as JSON at the end
    #[arg(long)]
    pub json: bool,
}

/// The tokenizer of a lock or of an imported model.
#[derive(Args, Debug)]
pub struct PromptArgs {
    /// The file of the lock's tokenizer, unless it is bytes; the tokenizer.json of an imported model [default: the one in
    /// its folder or beside its weights]
    #[arg(long, value_name = "FILE")]
    pub tokenizer_file: Option<PathBuf>,
    /// The token before a text, such as `<s>`: for a lock if it was given to `canonc data prepare`, for an imported model
    /// if it should not be the one that its tokenizer.json adds
    #[arg(long, value_name = "TOKEN")]
    pub bos: Option<String>,
    /// The token that ends a text, such as `</s>`: for a lock if it was given to `canonc data prepare`, for an imported
    /// model if it should not be those of its generation_config.json, config.json and tokenizer_config.json
    #[arg(long, value_name = "TOKEN")]
    pub eos: Option<String>,
}

/// Parses a probability above 0.
fn probability(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 1.0 => Ok(value),
        Ok(_) | Err(_) => Err("give a number above 0 and at most 1".to_owned()),
    }
}

/// Parses a number that is at least 0.
fn temperature(text: &str) -> Result<f64, String> {
    let range = "give a number that is at least 0; 0 always takes the most likely token";
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        Ok(value) => Err(format!("the temperature is {value}; {range}")),
        Err(_) => Err(format!("the temperature is not a number; {range}")),
    }
}

/// Let a model answer the questions of a file, each alone, and count the right answers
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data generate multihop --set N=5 --set hops=1 --count 200 --out years.jsonl
  canonc answer lockfiles/c4_llama.lock --weights w.safetensors --questions years.jsonl
  canonc data babilong --prompts babilong/prompts.py --task 1 --questions qa1.jsonl --out prompted.jsonl
  canonc answer lockfiles/c4_llama.lock --weights w.safetensors --questions prompted.jsonl --judge words

A question is a line `{\"text\": …, \"answer\": …}`. For each one, a line on standard output has the model's text and
whether it is right. If the expected answer is empty or has more tokens than --max-tokens, it cannot be judged:
`right` is null, `flag` says why, and the question is not counted.")]
pub struct AnswerArgs {
    /// A run, a lock, a .canon file, or a folder: of Hugging Face or Lingua, or of `canonc export --to hf` or `import`
    #[arg(value_name = "FILE|RUN")]
    pub file: PathBuf,
    /// The architecture, if the file has several
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// The parameters: .safetensors, an index of shards, consolidated.pth, a folder with one, or a run [default for a run:
    /// its last checkpoint]
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// A JSON lines file
    #[arg(long, value_name = "FILE")]
    pub questions: PathBuf,
    #[command(flatten)]
    pub prompts: PromptArgs,
    /// When an answer counts as right
    #[arg(long, value_enum, value_name = "RULE", default_value_t)]
    pub judge: Judge,
    /// Maximum tokens of an answer
    #[arg(long, value_name = "N", default_value_t = 16, allow_negative_numbers = true, value_parser = tokens)]
    pub max_tokens: usize,
    /// Questions answered at a time
    #[arg(long, value_name = "N", default_value_t = 32, allow_negative_numbers = true, value_parser = super::within::<usize>(0, usize::MAX))]
    pub rows: usize,
    /// Output file for answers; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub out: PathBuf,
    #[command(flatten)]
    pub machine: MachineArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Judge {
    /// The text begins with the answer, as for multi-hop years
    #[default]
    Begins,
    /// The first sentence has every word of the answer, as for Babilong
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

/// How to compute.
#[derive(Args, Clone, Copy, Debug)]
pub struct MachineArgs {
    /// Compute dtype: bf16 rounds activations and parameters, f64 is for checking results [default: f32; of `eval`, that
    /// of the lock if there is one]
    #[arg(long, value_enum, value_name = "TYPE")]
    pub dtype: Option<WithType>,
    /// The device
    #[arg(long, value_enum, value_name = "DEVICE", default_value_t)]
    pub device: OnDevice,
    /// The fastest kernels available, or only libtorch's plain operations
    #[arg(long, value_enum, value_name = "WHICH", default_value_t)]
    pub kernels: WithKernels,
}

impl MachineArgs {
    /// The dtype that is given, or the default.
    pub fn dtype(&self) -> WithType {
        self.dtype.unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WithType {
    #[default]
    F32,
    F64,
    Bf16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnDevice {
    #[default]
    Cpu,
    Cuda,
}

impl OnDevice {
    /// Its word in locks and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            OnDevice::Cpu => "cpu",
            OnDevice::Cuda => "cuda",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WithKernels {
    #[default]
    Fastest,
    Reference,
}

/// A generous limit.
fn tokens(text: &str) -> Result<usize, String> {
    super::within(0, 10_000_000)(text)
}
