//! Arguments of `canonc import` and `canonc export`.
//!
//! In: argv, as clap reads it. Out: plain values. Must stay true: the examples run unchanged in this repository,
//! except for the names of the user's own folders.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::PromptArgs;

/// Import a model or recipe from Hugging Face or Lingua: arch, recipe, weights
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  canonc import LlamaCanon-1B/ --out imported        a Hugging Face folder or a Lingua release
  canonc import release/default --out imported       one variant of a release
  canonc import recipe.yaml --devices 128 --out new  a recipe of Lingua's trainer
  canonc import config.json --no-weights --out new   the arch alone

Exit codes: 0 imported, 2 the source is inconsistent, has no weights or cannot be expressed.",
    after_long_help = "\
Examples:
  canonc import LlamaCanon-1B/ --out imported        a Hugging Face folder or a Lingua release
  canonc import release/default --out imported       one variant of a release
  canonc import recipe.yaml --devices 128 --out new  a recipe of Lingua's trainer
  canonc import config.json --no-weights --out new   the arch alone
  canonc serve imported                              any command takes the folder as a model

Reads   config.json with model.safetensors or pytorch_model.bin, one file or shards, of Llama (also 3.1), Mistral,
        Qwen3, Gemma 2, OLMo 2, LlamaCanon, GLA5, GDN2 and Mamba2; params.json with consolidated.pth; a release: a
        folder with config.json, and with those two in default/; *.yaml of Lingua's trainer. Files of torch.save are
        read without running any code in them.
Writes  OUT/arch/NAME.canon, OUT/recipes/NAME.toml if the source says how it trains, OUT/weights.safetensors
        if it has weights (f32, under the paths that `canonc show` lists), copies of tokenizer.json,
        tokenizer_config.json, chat_template.jinja and generation_config.json, and OUT/import.toml: digests of every
        file that was read, the context (max_position_embeddings), ids of bos and eos, what was left out and why, and
        tensors with other values (the norms of Gemma 2 multiply by 1 + weight, so 1 is added). OUT is a model
        for `eval`, `serve`, `generate`, `forward` and `export`, as the folder was; so is an arch with --weights OUT.
        OUT is written completely or not at all. To import a model without weights, add --no-weights.

A step has devices x grad_acc_steps x batch_size x seq_len tokens. Published recipes give the number of GPUs only
in a comment (`# Zeyuan note: run with 512 GPUs to replicate our result`), so --devices is required.

Exit codes: 0 imported, 2 the source is inconsistent, has no weights or cannot be expressed.
Schema of --json: {schema: \"canonc.import.v1\", name, arch, recipe, weights (null if there are none),
  graph, manifest, parameters, files: [path], copied: [path], context (tokens; null if unknown),
  left_out: [{name, why}]}."
)]
pub struct ImportArgs {
    /// A folder with config.json or params.json, either file, or a .yaml
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    /// The folder to create; it must be empty or missing
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Name for the arch [default: from the folder or file]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Number of devices of the run, if the recipe does not give it
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::within::<i64>(1, 1 << 20))]
    pub devices: Option<i64>,
    /// Import only the arch and recipe
    #[arg(long)]
    pub no_weights: bool,
    /// Print a summary as JSON
    #[arg(long)]
    pub json: bool,
}

/// Export a lock, a finished run or an arch for PyTorch, Hugging Face, Lingua or Slurm
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  canonc export runs/demo/demo-llama-seed1 --to hf --out llama     a folder that `transformers` loads
  canonc export arch/gla_demo.canon --to torch --out gla           model.py: the arch in plain PyTorch
  canonc export a.lock --weights w.safetensors --to lingua --out b
  canonc export lockfiles/llama_1B.lock --to card --out card

Exit codes: 0 written, 1 the run is damaged or not finished, 2 the target format cannot express it, 3 this machine
cannot write it.",
    after_long_help = "\
Examples:
  canonc export runs/demo/demo-llama-seed1 --to hf --out llama     a folder that `transformers` loads
  canonc export arch/gla_demo.canon --to torch --out gla           model.py: the arch in plain PyTorch
  canonc export a.lock --weights w.safetensors --to lingua --out b
  canonc export lockfiles/llama_1B.lock --to card --out card
  canonc export lockfiles/depo_llama.lock --to slurm --ranks 16 --out job && sbatch job/launch.sh

hf      config.json, model.safetensors, generation_config.json, README.md. An arch that is a Llama (also with scaled
        RoPE), Mistral, Qwen3, Gemma 2 or OLMo 2 loads in the class of `transformers`, whatever its text calls its
        definitions. Any other arch brings its code, modeling_canonc.py: AutoModelForCausalLM loads it with
        trust_remote_code=True, and `generate` and lm-evaluation-harness use it. tokenizer.json and
        tokenizer_config.json if the lock's tokens are bytes, or its tokenizer is a tokenizer.json and
        --tokenizer-file names it; an imported arch has the imported one, or that of --tokenizer-file. Else README.md
        says why there is none.
torch   model.py: the arch in plain PyTorch, without canonc, with cached decoding and initial values; with
        weights, model.safetensors under the names of its modules.
release the files of hf, without tokenizer, for the classes published with the release; README.md says where
        to find their code. Only equal layers of Llama, GLA5, GDN2 or Mamba2.
lingua  recipe.yaml, default/params.json, and with weights default/consolidated.pth, as the published
        `from_pretrained` loads them. Settings that this loader ignores (a Llama kernel other than 4, a head_dim
        other than dim / heads, a tied head) are refused. The archs of release.
slurm   launch.sh and the lock: canonc trains the lock, or continues the run, with platform.devices ranks (or --ranks),
        any arch and task. Before its time is over the job stops with a checkpoint and queues itself again.
lingua-slurm
        recipe.yaml and launch.sh, which launches Lingua's trainer on platform.devices GPUs. The archs of release.
card    README.md: a model card with numbers from the lock.

hf, torch, slurm and card take any arch. Every --weights reads the files of hf, torch, release and lingua: the same bits
(rounded with --dtype bf16; norms of Gemma 2 are stored less 1, so those below 1/2 may be off by one place of f32 at 1).
`canonc import` gives back the graph, manifest and recipe from the classes of `transformers`, release and lingua; for
other folders of hf, arch.canon beside the weights is the arch.

Exit codes: 0 written, 1 the run is damaged or not finished, 2 the target format cannot express it, 3 this machine
cannot write it.
Schema of --json: {schema: \"canonc.export.v1\", arch, files: [path], weights (their origin, as far as
  known; null without weights)}."
)]
pub struct ExportArgs {
    /// A finished run, a lock, a .canon file, or a folder: of Hugging Face or Lingua, or that canonc imported
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    /// The target format
    #[arg(long, value_enum, value_name = "TO")]
    pub to: ExportTo,
    /// The folder to create; it must be empty or missing
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The parameters, under our names, Hugging Face's or Lingua's: a file, a folder with one, or a run [default for a
    /// run: its last checkpoint; for a folder: its own]
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// Dtype of the written weights [default: f32]
    #[arg(long, value_enum, value_name = "DTYPE")]
    pub dtype: Option<ExportDtype>,
    /// The arch, if the file or comparison has several
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    #[command(flatten)]
    pub prompt: PromptArgs,
    /// GPUs, or ranks, per machine, for slurm and lingua-slurm
    #[arg(long, value_name = "N", default_value_t = 8, allow_negative_numbers = true, value_parser = super::within::<i64>(1, 1024))]
    pub gpus_per_node: i64,
    /// Ranks, for slurm [default: the lock's platform.devices, or 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::within::<u32>(1, 1 << 20))]
    pub ranks: Option<u32>,
    /// Prepared documents on the cluster, for slurm, if the lock trains on text [default: data/SOURCE.index]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Print a summary as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportTo {
    /// Hugging Face's transformers
    Hf,
    /// A PyTorch module
    Torch,
    /// The classes published with the release
    Release,
    /// Lingua's trainer and loader
    Lingua,
    /// A Slurm script that launches canonc
    Slurm,
    /// A Slurm script that launches Lingua's trainer
    LinguaSlurm,
    /// A model card
    Card,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportDtype {
    #[default]
    F32,
    Bf16,
}
