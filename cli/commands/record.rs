//! `canonc record`: a run that another engine trained, checked, evaluated and attested. `cli/tensors/record.rs` does it.

use std::path::PathBuf;

use clap::Args;

use crate::options::OnDevice;

/// Check, evaluate and attest a run that another engine trained
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc record runs/depo_llama                       a folder that `canonc.torch` wrote on a cluster
  canonc record runs/depo_llama --data data/c4.index  a run on text
  canonc verify --replay runs/depo_llama              afterwards: continue its checkpoints with canonc's kernels

The folder has the lock, the engine's log, its trainer record and checkpoints (docs/files.md, format canonc.external.v1).
Recomputed are the lock, the learning rates, the counted targets and the batches of the last step and of 64
others, the initial weights and the digest of every tensor. What does not hold is a finding, and then nothing is
written. So is a trainer record that is not of this lock: its loss lacks a term, its dropout masks are others, its
Muon is another, or its precision is not the lock's.

Then canonc evaluates the kept weights with its own kernels where the lock has an evaluation, always those of
the last step, and writes evaluations.jsonl and attestation.toml. A run that is attested and holds is left alone.
`compare`, `report`, `diff` and `sign` read it from then on, marked by its engine. Losses and norms stay the engine's
word.

Exit codes: 0 recorded, now or before, 1 a finding, 2 not such a run, 3 this machine cannot evaluate it.
Schema of --json: {schema: \"canonc.record.v1\", run, trainer, steps, diverged: step or null, weights, evaluations: [step],
recorded: whether it was done now}.")]
pub struct RecordArgs {
    /// The run's folder, or its name under runs/
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Prepared documents, if the run trains on text [default: data/SOURCE.index]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// The weights that the run began from, if its lock names some [default: as named]
    #[arg(long, value_name = "PATH")]
    pub weights: Option<PathBuf>,
    /// Recompute the data of every step, instead of the last one and 64 spread over the run
    #[arg(long)]
    pub all: bool,
    /// Evaluate here, instead of on the lock's device
    #[arg(long, value_enum, value_name = "WHERE")]
    pub device: Option<OnDevice>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
