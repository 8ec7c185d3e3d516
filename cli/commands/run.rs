//! `canonc run`: trains a lock, or continues its run. `cli/tensors/run.rs` does it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::options::{OnDevice, within};

/// Train the experiment of a lock, or continue an interrupted run
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc run                                          the only experiment lock under lockfiles/
  canonc run --lock lockfiles/depo_llama.lock         in runs/depo_llama
  canonc run lockfiles/depo_llama.lock                the same
  canonc run depo_llama                               continues the run of that name
  canonc run lockfiles/depo_*.lock                    several locks, one after another
  canonc run --lock depo.lock --dir /scratch/depo     in another folder
  canonc run --lock depo.lock --dry-run               memory, disk and time, without training
  canonc run --lock depo.lock --stop-after-step 100   saves a checkpoint and exits 75
  canonc run --lock depo.lock --tensorboard tb        also for `tensorboard --logdir tb`, step by step
  canonc run --lock depo.lock --stop-after 3h50m      the same, by time; a Slurm job does it before its end

On Ctrl-C, SIGTERM, SIGHUP or SIGUSR2 the run finishes the step, saves a checkpoint and exits 75; the same command
continues from there. An evaluation ends at the next question or batch, and is done again then. A second Ctrl-C,
a kill or a crash loses the steps after the last checkpoint; they are trained again, and those that were logged must
come out the same.

A finished run of the same lock under another name, such as a run of a comparison, is not trained again: the
output names its folder. `--dir DIR` trains it anyway.

Schema of --json, one object for each lock: {schema: \"canonc.run.v1\", name, lock, folder, state: \"finished\" (now or
before), \"diverged\" or \"interrupted\", steps: those done}. An error leaves it out.
Schema of --dry-run --json: {schema: \"canonc.run.estimate.v1\", name, lock, folder, state: \"new\", \"begun\" or \"finished\", device, ranks (null for one
process), parameters, steps, tokens, memory_bytes, memory_from: \"measured\" or \"plan\", state_bytes, disk_bytes,
step_seconds, training_seconds, evaluation_seconds, written_answers: whether evaluations also write answers, which
the seconds do not cover, seconds, timed: \"micro_batches\" or \"flops\"}.")]
pub struct RunArgs {
    /// Experiment locks, run one after another [default: the only one under lockfiles/]
    #[arg(value_name = "LOCK", conflicts_with = "lock")]
    pub named: Vec<PathBuf>,
    /// An experiment lock, like LOCK
    #[arg(long, value_name = "LOCK", num_args = 0..=1)]
    pub lock: Option<Option<PathBuf>>,
    /// The run's folder [default: runs/NAME, where NAME is the lock's name]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Prepared documents, if the lock trains on text [default: data/SOURCE.index]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// The weights to begin from, if the lock names some: a run, an export, an import or a file [default: as named]
    #[arg(long, value_name = "PATH")]
    pub weights: Option<PathBuf>,
    /// Write a TensorBoard event file in DIR/NAME while the run trains; a resumed run goes on in the same file
    #[arg(long, value_name = "DIR")]
    pub tensorboard: Option<PathBuf>,
    /// Estimate memory (of each rank, with `--ranks`), disk and time, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON: where the run is and how it ended, or the estimate of a dry run
    #[arg(long)]
    pub json: bool,
    /// Use another device than the lock's; the id stays the same, the platform section changes
    #[arg(long, value_enum, value_name = "DEVICE")]
    pub device: Option<OnDevice>,
    /// Train with this many processes on this machine; the result is the same to the bit
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<u32>(1, 1024))]
    pub ranks: Option<u32>,
    /// Add gradients on each machine before they leave it, which sends less between machines; same bits
    #[arg(long)]
    pub by_node: bool,
    /// How long a rank waits for another one, in seconds, before all end
    #[arg(long, value_name = "SECONDS", default_value_t = 600, allow_negative_numbers = true, value_parser = within::<u64>(1, 86_400))]
    pub rank_timeout: u64,
    /// Save a checkpoint after this long and exit 75, such as 90s, 30m or 3h50m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = span)]
    pub stop_after: Option<Duration>,
    /// Save a checkpoint after this step and exit 75
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<u64>(0, u64::MAX))]
    pub stop_after_step: Option<u64>,
    /// Fail at a named point, `NAME` or `NAME:COUNT`: for tests of recovery
    #[arg(long, value_name = "POINT", hide = true)]
    pub fault: Option<String>,
}

/// A length of time: hours, minutes and seconds, such as 3h50m; a bare number is seconds.
fn span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no length of time: give 90s, 30m or 3h50m");
    let (mut seconds, mut digits, mut units) = (0u64, String::new(), "hms".chars());
    let bare = text.bytes().all(|byte| byte.is_ascii_digit());
    for c in text.chars().chain(bare.then_some('s')) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        // Each unit once, from the largest.
        units.find(|unit| *unit == c).ok_or_else(wrong)?;
        let unit = match c {
            'h' => 3600,
            'm' => 60,
            _ => 1,
        };
        let count: u64 = std::mem::take(&mut digits).parse().map_err(|_| wrong())?;
        seconds = count.checked_mul(unit).and_then(|n| n.checked_add(seconds)).ok_or_else(wrong)?;
    }
    if seconds == 0 || !digits.is_empty() { Err(wrong()) } else { Ok(Duration::from_secs(seconds)) }
}
