//! Arguments of `canonc selftest`.
//!
//! In: argv, as clap reads it. Out: plain values. Must stay true: as in `args`.

use std::path::PathBuf;

use clap::Args;

use super::OnDevice;

/// Check this machine: published numbers, every kernel, equal bits, a killed run, memory, speed
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc selftest --out selftest                    on the CPU, about two minutes
  canonc selftest --device cuda --out selftest      on a GPU, under ten minutes
  canonc selftest --device cuda --out selftest --python python3 --peer bench_torch.py

Exit codes: 0 everything holds, 1 something does not, 3 the device or a file that it needs is missing.

On a GPU the steps are those of models with 100 M and 1.3 B parameters in bf16, 8 sequences of 4,096 tokens. MFU is the
model's operations, forward and backward, divided by time and by the device's stated operations per second in bf16, on a
CPU by its measured product: 3 times the forward pass as `canonc show` counts it, attention by the pairs that it sees,
recomputation not counted.

DIR/selftest.json has everything that the tables have, and the facts about the machine:
  schema       \"canonc.selftest.v1\"
  device       \"cpu\" or \"cuda\"
  machine      facts by name
  goldens      name, path, largest, allowed, holds
  kernels      model, kernel, path, bf16, steps, largest, allowed, holds
  runs         name, holds, what
  memory       model, predicted, measured, in bytes
  steps        model, bf16, batch, seq_len, ms, tokens_per_second, mfu, peer_ms, fla_ms; or why it has none:
               why, peer_why, fla_why
  holds        whether all of it does")]
pub struct SelftestArgs {
    /// The device
    #[arg(long, value_enum, value_name = "DEVICE", default_value_t)]
    pub device: OnDevice,
    /// The folder for selftest.json; created if missing
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The folder of published numbers [default: `golden` in the program's folder, or tests/golden]
    #[arg(long, value_name = "DIR")]
    pub goldens: Option<PathBuf>,
    /// A Python with PyTorch, which trains the same models for comparison; also with flash-linear-attention's layers if
    /// it has them
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// The script that it runs, with the options of bench_torch.py
    #[arg(long, value_name = "FILE", requires = "python")]
    pub peer: Option<PathBuf>,
}
