//! `canonc generate`: text from a model. `ext/models/src/generate.rs` does it.

use std::path::PathBuf;

use clap::Args;

use cli::options::{MachineArgs, PromptArgs, tokens, within};

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
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = within::<usize>(0, usize::MAX))]
    pub top_k: Option<usize>,
    /// Sample only from the most likely tokens that have this probability together [default: all]
    #[arg(long, value_name = "P", value_parser = probability)]
    pub top_p: Option<f64>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = within::<u64>(0, u64::MAX))]
    pub seed: u64,
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Print tokens, text and the kernels' paths as JSON at the end
    #[arg(long)]
    pub json: bool,
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
