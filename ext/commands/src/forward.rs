//! `canonc forward`: logits, losses and gradients for given weights and tokens. `ext/models/src/forward.rs` does it.

use std::path::PathBuf;

use clap::Args;

use cli::options::MachineArgs;

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
