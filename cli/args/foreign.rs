//! Arguments of `canonc import` and `canonc export`.
//!
//! In: argv, as clap reads it. Out: plain values. Must stay true: the examples run unchanged in this repository,
//! except for the names of the user's own folders.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Take over a model or recipe of Hugging Face or Lingua: arch, recipe, weights
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  canonc import LlamaCanon-1B/ --out imported        a Hugging Face folder or a Lingua release
  canonc import release/default --out imported       one variant of a release
  canonc import recipe.yaml --devices 128 --out new  a recipe of Lingua's trainer
  canonc import config.json --no-weights --out new   the arch alone

Exit codes: 0 imported, 1 no weights were found, 2 the source does not hold together or cannot be expressed.",
    after_long_help = "\
Examples:
  canonc import LlamaCanon-1B/ --out imported        a Hugging Face folder or a Lingua release
  canonc import release/default --out imported       one variant of a release
  canonc import recipe.yaml --devices 128 --out new  a recipe of Lingua's trainer
  canonc import config.json --no-weights --out new   the arch alone
  canonc forward imported/arch/NAME.canon --weights imported/weights.safetensors --tokens t.safetensors --out o.safetensors

Reads   config.json with model.safetensors, one file or shards, of Llama, LlamaCanon, GLA5, GDN2 and Mamba2;
        params.json with consolidated.pth, without running anything that is in it; a release, whose folder has
        config.json and default/ with those two; *.yaml of Lingua's trainer.
Writes  OUT/arch/NAME.canon, OUT/recipes/NAME.toml if the source says how it trains, OUT/weights.safetensors
        if it has weights (f32, under the paths that `canonc show` lists), and OUT/import.toml: digests of
        every file that was read, and what was left out and why. OUT is whole, or is not there. A model without
        weights is imported with --no-weights only.

The tokens of a step are devices x grad_acc_steps x batch_size x seq_len. Published recipes say their GPUs
in a comment only (`# Zeyuan note: run with 512 GPUs to replicate our result`), so --devices has to.

Exit codes: 0 imported, 1 no weights were found, 2 the source does not hold together or cannot be expressed.
Schema of --json: {schema: \"canonc.import.v1\", name, arch, recipe, weights (null where there is none),
  graph, manifest, parameters, files: [path], left_out: [{name, why}]}."
)]
pub struct ImportArgs {
    /// A folder with config.json or params.json, either file, or a .yaml
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    /// The folder to make; it must be empty or not exist yet
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The name of the arch [default: the folder's or file's]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Devices that the run had, where its keys do not say
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..=1 << 20))]
    pub devices: Option<i64>,
    /// Take over the arch and recipe alone
    #[arg(long)]
    pub no_weights: bool,
    /// What was done as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// Give a lock, a finished run or an arch to Hugging Face, Lingua or a cluster
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  canonc export runs/demo/demo-llama-seed1 --to hf --out llama     a folder that `transformers` loads
  canonc export a.lock --weights w.safetensors --to lingua --out b
  canonc export lockfiles/llama_1B.lock --to card --out card

Exit codes: 0 written, 2 the other side cannot express it, 3 this machine cannot write it.",
    after_long_help = "\
Examples:
  canonc export runs/demo/demo-llama-seed1 --to hf --out llama     a folder that `transformers` loads
  canonc export a.lock --weights w.safetensors --to lingua --out b
  canonc export lockfiles/llama_1B.lock --to card --out card

hf      config.json, model.safetensors, generation_config.json, README.md. A plain Llama loads in stock
        `transformers`; the rest name the published classes, whose code README.md says where to find.
lingua  recipe.yaml, default/params.json, and with weights default/consolidated.pth: what the published
        `from_pretrained` loads. What that loader passes over (a Llama's kernel other than 4, head_dim other
        than dim / heads, a tied head) is refused.
slurm   recipe.yaml and launch.sh, which launches Lingua's trainer on platform.devices GPUs.
card    README.md: what the model is, in numbers from the lock.

Only archs whose layers are all one layer of Llama, GLA5, GDN2 or Mamba2 can be exported. `canonc import`
gives back the same graph, manifest, recipe and bits; under --dtype bf16 the weights rounded.

Exit codes: 0 written, 2 the other side cannot express it, 3 this machine cannot write it.
Schema of --json: {schema: \"canonc.export.v1\", arch, files: [path], weights (what is known
  of their training; null without weights)}."
)]
pub struct ExportArgs {
    /// A lock, the folder of a finished run, or a .canon file
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    /// Who is to read it
    #[arg(long, value_enum, value_name = "TO")]
    pub to: ExportTo,
    /// The folder to make; it must be empty or not exist yet
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Weights of ours, Hugging Face's or Lingua's, where the source is not a run
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// How wide numbers are written
    #[arg(long, value_enum, value_name = "DTYPE", default_value_t)]
    pub dtype: ExportDtype,
    /// Which arch of a file or comparison that holds several
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// GPUs of one machine, for slurm
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(i64).range(1..=1024))]
    pub gpus_per_node: i64,
    /// What was written as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportTo {
    /// Hugging Face
    Hf,
    /// Lingua's trainer and loader
    Lingua,
    /// A launch of Lingua's trainer
    Slurm,
    /// A model card
    Card,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportDtype {
    #[default]
    F32,
    Bf16,
}
