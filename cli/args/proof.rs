//! Arguments of the commands that check, sign and repeat a run.

use std::path::PathBuf;

use clap::Args;

/// Recompute the claims of a run or a lock, offline, and list those taken on trust
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc verify runs/depo_llama            lock, log, initial weights, checkpoints, attestation
  canonc verify depo_llama                 the same: a name under runs/
  canonc verify runs/depo                  every run of a comparison
  canonc verify text/text-first-seed1      a run of a comparison, wherever it was trained
  canonc verify 3fdec0937b53               the run of the lock with this id
  canonc verify runs/* lockfiles/*.lock    several; all are checked, whatever is found
  canonc verify --all runs/depo_llama      also the data of every step
  canonc verify --replay runs/depo_llama   also train 32 steps again, bit for bit
  canonc verify --replay 8 runs/depo_llama     8 steps, or as many as lead to the last weights
  canonc verify --replay all runs/depo_llama   every step and every evaluation
  canonc verify runs/depo_llama --signers allowed_signers --identity ada@lab.org
  canonc verify lockfiles/depo_llama.lock  derives every line of the lock; reports open inputs

Recomputed from the lock: every line of it, the plan, the initial weights, all learning rates, the targets and
answers of evaluations, and the batches of the last step and of 64 steps spread evenly over the run (of all
steps if there are at most 64, or with --all). Recomputed from the bytes on disk: the digest of every tensor of
every checkpoint. A missing or extra file, line or tensor is a finding, also in timings.jsonl (each logged step and
evaluation has one plausible time; each process that continued the run explains one gap), events.jsonl and writer. Not
found are what a kill explains, such as an event of an interruption that is not there, and other plausible times, dates,
machines and peaks of memory: nothing leads to them again.

Of a comparison's folder, each run is checked, and also that NAME/lock, NAME.lock and the folder NAME are the same run,
that no run is a copy of another, and that none is missing that has a lock there or whose results were shown. A single
run in such a folder is compared with its name and its lock, too; export, generate, eval, forward, serve, report,
sign and reproduce refuse a run in another's place.

Several runs and locks end with a line that counts those without a fault and names the others. Of each, the line before
the last lists claims that were recomputed, claims that were only checked against digests, and claims taken
on trust because no file of a run can prove them. Only training again finds a loss that was edited together with
every digest above it. --replay trains all steps between the last two kept checkpoints, since only they lead to the
last weights, and two from the initial weights, even if that is more than N; the rest of N in turn from the initial
weights and each kept checkpoint. It compares losses, gradient norms, evaluations, the tensors of the next checkpoint
and the recorded path of each kernel, bit for bit. On a machine
other than the attested one (CPU, threads, libtorch) bits can differ: a difference that rounding may explain is
undecided there.

--signers reads the file that `ssh-keygen -Y verify -f` reads; `canonc sign --help` says how to sign.

Exit codes: 0 no faults, 1 faults found, 3 something cannot be decided on this machine.
Schema of --json: {schema: \"canonc.verify.v2\", recomputed: [claim], checked: [claim], trusted: [claim],
broken: [text], undecided: [text], closing: text}, where claim = {subject, part: text or null, text}; for
several, {schema: \"canonc.verify_all.v1\", reports: [the same, each with `what`, its name as given]}.")]
pub struct VerifyArgs {
    /// Folders of runs, their names under runs/, or locks
    #[arg(value_name = "RUN|LOCK", required_unless_present = "replay")]
    pub what: Vec<PathBuf>,
    /// Recompute the data of every step, instead of the last one and 64 spread over the run
    #[arg(long)]
    pub all: bool,
    /// Train N steps again [default: 32] or those to the last weights, if they are more, or all; compare their bits
    #[arg(long, value_name = "N|all", num_args = 0..=1)]
    pub replay: Option<Option<String>>,
    /// Prepared documents, if the run trains on text [default: data/SOURCE.index]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// An allowed_signers file of ssh-keygen: the keys whose signatures are accepted
    #[arg(long, value_name = "FILE")]
    pub signers: Option<PathBuf>,
    /// The name in FILE of the required signer [default: anyone in FILE]
    #[arg(long, value_name = "NAME", requires = "signers")]
    pub identity: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Sign a finished run's attestation with an SSH key
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc sign runs/depo_llama --key ~/.ssh/id_ed25519
  canonc verify runs/depo_llama                       shows which key signed it
  canonc verify runs/depo_llama --signers allowed_signers --identity ada@lab.org

Writes attestation.toml.sig into the run's folder: an SSH signature over every byte of attestation.toml,
for the purpose `canonc-attestation`. It shows who vouches for the attestation, not that the attestation is
true: see `canonc verify --replay`. OpenSSH makes and checks the same file, also with keys that are protected
by a passphrase, in an agent or on hardware:

  ssh-keygen -Y sign -n canonc-attestation -f KEY runs/depo_llama/attestation.toml
  ssh-keygen -Y verify -n canonc-attestation -f allowed_signers -I ada@lab.org \\
      -s runs/depo_llama/attestation.toml.sig < runs/depo_llama/attestation.toml

canonc itself supports keys of type ed25519 and ecdsa without a passphrase. A line of allowed_signers is a name
and a public key: ada@lab.org ssh-ed25519 AAAA...")]
pub struct SignArgs {
    /// A finished run's folder, or its name under runs/
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// A private key in OpenSSH's format
    #[arg(long, value_name = "KEY")]
    pub key: PathBuf,
    /// Replace an existing signature
    #[arg(long)]
    pub replace: bool,
}

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
