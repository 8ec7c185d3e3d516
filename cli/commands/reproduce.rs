//! `canonc reproduce`: a run trained again, and the first difference. `cli/tensors/reproduce.rs` does it.

use std::path::PathBuf;

use clap::Args;

/// Train a run again, and name the first step, tensor and operation that differ
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc reproduce runs/depo_llama                       train again; write nothing
  canonc reproduce depo_llama --out /scratch/again       keep the second run
  canonc reproduce runs/depo_llama --against runs/theirs compare two runs of one lock; train nothing

Trains from the initial weights and compares each step, evaluation and kept checkpoint with the run's own, bit
for bit. The run's folder is only read. At the first log line that differs, it continues to the next kept
checkpoint and names the first tensor that differs there, in parameter order. Then, if the last common state is
at most 16 steps earlier, it computes the step from there with other settings of this machine (unchanged, other
numbers of threads, the plain kernels), names the first operation of the plan that each setting changes, and
says which setting gives the logged numbers. The log has no numbers for single operations: if no setting gives
the logged numbers, the operation is narrowed down only as far as the logged numbers and kept tensors allow.

With --out the run is trained in a new folder like with `canonc run` (if interrupted, it exits 75 and the same
command continues), and then both folders are compared as with --against. If the run in that folder is already
finished, it is only compared, and the output says that nothing was computed.

Exit codes: 0 the same bits throughout, 1 a difference, 3 a difference that rounding may explain, because this
machine is not the attested one or the two runs were trained on different machines.
Schema of --json: {schema: \"canonc.reproduce.v1\", computed, same, steps, of_steps, evaluations, checkpoints: [step],
first: {place, text, tensor: {checkpoint, same, text}, reasons: [text], variants: [{name, gives_the_log,
step, operation}], maybe_rounding}, platform: [text]}; first, tensor, step and operation may be null.")]
pub struct ReproduceArgs {
    /// A run's folder, or its name under runs/
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Prepared documents, if the run trains on text [default: data/SOURCE.index]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// The weights that the run began from, if its lock names some [default: as named]
    #[arg(long, value_name = "PATH")]
    pub weights: Option<PathBuf>,
    /// Train into this folder and keep the result
    #[arg(long, value_name = "DIR", conflicts_with = "against")]
    pub out: Option<PathBuf>,
    /// Train nothing; compare with this run of the same lock
    #[arg(long, value_name = "RUN")]
    pub against: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
