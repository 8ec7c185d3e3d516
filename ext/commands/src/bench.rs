//! `canonc bench`: times of training steps, by kernel and beside PyTorch. `ext/models/src/bench.rs` does it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use cli::options::{MachineArgs, within};

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
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<i64>(1, 1 << 20))]
    pub batch: Option<i64>,
    /// Tokens per sequence; for `step`, several lengths give a table [default: 512]
    #[arg(long, value_name = "N,…", value_delimiter = ',', allow_negative_numbers = true, value_parser = within::<i64>(1, 1 << 24))]
    pub seq_len: Vec<i64>,
    /// Number of rounds; each round times every implementation once [default: 20; 5 for `peers`]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<u16>(1, u16::MAX))]
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
