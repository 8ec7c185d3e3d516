//! `canonc import` and `canonc export`: what can be typed.
//!
//! In: argv, as clap reads it. Out: plain values. Must stay true: the examples work as they stand in this repository,
//! but for the names of folders that a person has.

use std::path::PathBuf;

use clap::Args;

/// Take over a model or recipe of Hugging Face or Lingua: arch, recipe, weights
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  canonc import LlamaCanon-1B/ --out imported        a Hugging Face folder or a Lingua release
  canonc import release/default --out imported       one variant of a release
  canonc import recipe.yaml --devices 128 --out new  a recipe of Lingua's trainer

Exit codes: 0 imported, 2 the source does not hold together or cannot be expressed.",
    after_long_help = "\
Examples:
  canonc import LlamaCanon-1B/ --out imported        a Hugging Face folder or a Lingua release
  canonc import release/default --out imported       one variant of a release
  canonc import recipe.yaml --devices 128 --out new  a recipe of Lingua's trainer
  canonc forward imported/arch/NAME.canon --weights imported/weights.safetensors --tokens t.safetensors --out o.safetensors

Reads  config.json with model.safetensors, one file or shards, of Llama, LlamaCanon, GLA5, GDN2 and Mamba2;
       params.json with consolidated.pth, without running anything that is in it; *.yaml of Lingua's trainer.
Writes OUT/arch/NAME.canon, OUT/recipes/NAME.toml if the source says how it trains, OUT/weights.safetensors
       if it has weights (f32, under the paths that `canonc show` lists), and OUT/import.toml: digests of
       every file that was read, and what was left out and why. OUT is whole, or is not there.

The tokens of a step are devices x grad_acc_steps x batch_size x seq_len. Published recipes say their GPUs
in a comment only (`# Zeyuan note: run with 512 GPUs to replicate our result`), so --devices has to.

Exit codes: 0 imported, 2 the source does not hold together or cannot be expressed.
Schema of --json: {schema: \"canonc.import.v1\", name, arch, recipe, weights (null where there is none),
  graph, manifest, parameters, files: [path], left_out: [{name, why}]}."
)]
pub(crate) struct ImportArgs {
    /// A folder with config.json or params.json, either file, or a .yaml
    #[arg(value_name = "SOURCE")]
    pub(crate) source: PathBuf,
    /// The folder to make; it must be empty or not exist yet
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// The name of the arch [default: the folder's or file's]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Devices that the run had, where its keys do not say
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..=1 << 20))]
    pub(crate) devices: Option<i64>,
    /// What was done as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
}
