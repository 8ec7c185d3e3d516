//! `canonc answer`: a model that answers questions. `ext/models/src/answer.rs` does it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use cli::options::{MachineArgs, PromptArgs, tokens, within};

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
    #[arg(long, value_name = "N", default_value_t = 32, allow_negative_numbers = true, value_parser = within::<usize>(0, usize::MAX))]
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
