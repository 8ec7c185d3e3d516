//! `canonc selftest`: checks this machine. `ext/models/src/selftest.rs` does it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use cli::options::{OnDevice, within};

/// Check this machine: published numbers, every kernel, equal bits, a killed run, memory, speed
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc selftest --out selftest                    on the CPU, about two minutes
  canonc selftest --device cuda --out selftest      on a GPU, under ten minutes
  canonc selftest --device cuda --out selftest --parts kernels,steps --limit 300
  canonc selftest --device cuda --out selftest --python python3 --peer ext/models/src/bench/peers/step.py

Exit codes: 0 everything holds, 1 something does not, 3 the device or a file that it needs is missing.

Each golden, family of kernels, run, step and peer is a process of its own with its own time limit. What fails, or is
ended at its limit, is a line of the results, and the others still run.

On a GPU the steps are those of models with 1.3 B and 100 M parameters in bf16, 4 sequences of 4,096 tokens. MFU is the
model's operations, forward and backward, divided by time and by the device's stated operations per second in bf16, on a
CPU by its measured product: 3 times the forward pass as `canonc show` counts it, attention by the pairs that it sees.

DIR/selftest.jsonl has one line of JSON for each result, written as it comes; each call begins the file anew. `part` says
what the others are:
  machine      schema, \"canonc.selftest.v2\"; device, facts, by name
  golden       name, path, bf16, largest, allowed, holds
  kernel       model, name, path, bf16, steps, largest, allowed, holds
  run          name, holds, what
  memory       model, predicted, measured, in bytes
  step         model, bf16, batch, seq_len, ms, tokens_per_second, mfu
  peer         model, program, ms; or missing, a package
  process      name, seconds, limit, failure: why it has fewer results than it should, or null
  end          holds: whether all of it does")]
pub struct SelftestArgs {
    /// The device
    #[arg(long, value_enum, value_name = "DEVICE", default_value_t)]
    pub device: OnDevice,
    /// The folder for selftest.jsonl; created if missing
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The parts to run, in this order [default: all; peers only with --python]
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',')]
    pub parts: Vec<SelftestPart>,
    /// Seconds for everything. What has not begun by then is not run, and says so
    #[arg(long, value_name = "SECONDS", value_parser = within(1u64, 86_400))]
    pub limit: Option<u64>,
    /// The folder of published numbers [default: `golden` in the program's folder, or tests/golden]
    #[arg(long, value_name = "DIR")]
    pub goldens: Option<PathBuf>,
    /// A Python with PyTorch, which trains the same models for comparison; also with flash-linear-attention's layers if
    /// it has them
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// The script that it runs: ext/models/src/bench/peers/step.py, or one with its options
    #[arg(long, value_name = "FILE", requires = "python")]
    pub peer: Option<PathBuf>,
    /// Seconds for each process, for tools that slow it down; one process at a time
    #[arg(long, hide = true, value_name = "SECONDS", value_parser = within(1u64, 86_400))]
    pub each: Option<u64>,
    /// Run one process of a part, and print its results
    #[arg(long, hide = true, value_name = "PART/NAME")]
    pub only: Option<String>,
}

/// A part of the self-test, those first that are worth most where time is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum SelftestPart {
    /// Each kernel against its reference in f64
    Kernels,
    /// Published numbers
    Goldens,
    /// Equal bits twice, killed and resumed
    Runs,
    /// Time and memory of training steps
    Steps,
    /// The same steps by PyTorch and flash-linear-attention
    Peers,
}

impl SelftestPart {
    pub fn name(self) -> &'static str {
        match self {
            SelftestPart::Kernels => "kernels",
            SelftestPart::Goldens => "goldens",
            SelftestPart::Runs => "runs",
            SelftestPart::Steps => "steps",
            SelftestPart::Peers => "peers",
        }
    }

    /// Seconds after which a process of this part is ended: on a GPU, and on a CPU that may be busy.
    pub fn limit(self, device: OnDevice) -> u64 {
        let (gpu, cpu) = match self {
            SelftestPart::Kernels => (60, 600),
            SelftestPart::Goldens => (40, 300),
            SelftestPart::Runs => (90, 900),
            SelftestPart::Steps => (75, 600),
            SelftestPart::Peers => (150, 600),
        };
        match device {
            OnDevice::Cuda => gpu,
            OnDevice::Cpu => cpu,
        }
    }
}
