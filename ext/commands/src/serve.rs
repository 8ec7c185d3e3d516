//! `canonc serve`: a model over HTTP. `ext/models/src/serve.rs` does it.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgMatches, Args};

use cli::command::Program;
use cli::fail::Outcome;
use cli::options::{MachineArgs, PromptArgs, within};
use cli::torch_program;

/// Serve a model over HTTP with OpenAI's API: completions, chat, probabilities, streaming
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc serve runs/text/text-first-seed1            at http://127.0.0.1:8000/v1, with the last checkpoint of a run
  canonc serve text-first-seed1 --port 0             on a free port, which it prints
  canonc serve exported --name mine                  a Hugging Face folder: canonc export --to hf, or one to import
  canonc serve arch/llama_tiny.canon --weights w.safetensors --tokenizer-file tokenizer.json
  CANONC_SERVE_TOKEN=secret canonc serve mine --host 0.0.0.0

  curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' -d '{\"prompt\": \"Once upon\"}'

A request has the same answer, bit for bit, whatever other requests are computed at the same time. docs/serve.md lists
the routes, their fields and the limits. Ctrl-C and SIGTERM finish the running answers and exit with 0; a port in use
exits with 3.")]
pub struct ServeArgs {
    /// A run, a lock, a .canon file, or a folder: of Hugging Face or Lingua, or of `canonc export --to hf` or `import`
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// The architecture, if the file has several
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// The parameters: .safetensors, an index of shards, consolidated.pth, a folder with one, or a run [default for a run:
    /// its last checkpoint; for a folder: its own]
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// The port; 0 takes a free one
    #[arg(long, value_name = "N", default_value_t = 8000, allow_negative_numbers = true, value_parser = within::<u16>(0, u16::MAX))]
    pub port: u16,
    /// The address; 0.0.0.0 lets other machines connect
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = host)]
    pub host: IpAddr,
    /// The model's name in requests [default: that of the run or arch]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// A file with the token that requests must have [default: the variable CANONC_SERVE_TOKEN; none]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// An origin whose web pages may use the server, besides those on this machine; `*` for all
    #[arg(long = "allow-origin", value_name = "ORIGIN")]
    pub allow_origins: Vec<String>,
    /// Most tokens of a prompt with its answer [default: max_position_embeddings of a Hugging Face folder or import,
    /// data.seq_len of a run or lock; 4096 if nothing says it]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<usize>(1, 1 << 24))]
    pub context: Option<usize>,
    /// Most texts computed at the same time
    #[arg(long, value_name = "N", default_value_t = 32, allow_negative_numbers = true, value_parser = within::<usize>(1, 4096))]
    pub rows: usize,
    /// Most texts that wait; further requests get status 429, and a request of more texts 400
    #[arg(long, value_name = "N", default_value_t = 256, allow_negative_numbers = true, value_parser = within::<usize>(1, 1 << 20))]
    pub queue: usize,
    /// Most connections; further ones wait
    #[arg(long, value_name = "N", default_value_t = 1024, allow_negative_numbers = true, value_parser = within::<usize>(1, 1 << 16))]
    pub connections: usize,
    /// Most bytes of a request
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20, allow_negative_numbers = true, value_parser = within::<usize>(1, 1 << 30))]
    pub max_body: usize,
    /// Seconds that a request may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600, allow_negative_numbers = true, value_parser = within::<u64>(1, 1 << 20))]
    pub timeout: u64,
    /// Seconds for running answers after Ctrl-C or SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 30, allow_negative_numbers = true, value_parser = within::<u64>(0, 1 << 20))]
    pub grace: u64,
    /// A chat template in Jinja [default: the folder's, or that of tokenizer_config.json next to --tokenizer-file, or lines
    /// of `ROLE: TEXT`]
    #[arg(long, value_name = "FILE")]
    pub chat_template: Option<PathBuf>,
    #[command(flatten)]
    pub prompts: PromptArgs,
    #[command(flatten)]
    pub machine: MachineArgs,
}

/// Parses an address of this machine.
fn host(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(IpAddr::from([127, 0, 0, 1])),
        _ => {
            text.parse().map_err(|_| "it is not an IP address, such as 127.0.0.1 or ::1".to_owned())
        }
    }
}

/// Settings of jemalloc, which reads them before `main`: a server's pages go back to the system, where a training step's
/// are kept for the next one. Pages of large tensors are kept for a second, too: the next prompt needs as many.
const ALLOCATOR: (&str, &str) =
    ("MALLOC_CONF", "dirty_decay_ms:1000,muzzy_decay_ms:0,oversize_threshold:0,thp:default");

pub(crate) fn run(_: &Program, _: &ArgMatches) -> Outcome {
    Err(torch_program::replace_process(&[ALLOCATOR]))
}
