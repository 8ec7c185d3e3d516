//! Arguments of the commands that check, sign and repeat a run.

use std::path::PathBuf;

use clap::Args;

/// Recompute what a run or a lock claims, offline, and say what is taken on trust
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc verify runs/depo_llama            lock, log, initial weights, checkpoints, attestation
  canonc verify depo_llama                 the same: a name under runs/
  canonc verify text/text-first-seed1      a run of a comparison, wherever it was trained
  canonc verify 3fdec0937b53               the run of the lock with this id
  canonc verify runs/* lockfiles/*.lock    several; all of them are checked, whatever is found
  canonc verify --all runs/depo_llama      the data of every step as well
  canonc verify --replay runs/depo_llama   and 32 steps trained again, bit for bit
  canonc verify --replay 8 runs/depo_llama     8 steps
  canonc verify --replay all runs/depo_llama   every step and every evaluation
  canonc verify runs/depo_llama --signers allowed_signers --identity ada@lab.org
  canonc verify lockfiles/depo_llama.lock  every line of the lock, derived again; whether it is open

Computed again from the lock: every line of it, the plan, the initial weights, all learning rates, the
targets and answers of evaluations, and the batches of 64 steps spread evenly over the run and of its last
(of all steps where there are no more than 64, or with --all). Computed from the bytes on disk: the digest
of every tensor of every checkpoint. A missing or extra file, line or tensor is a finding.

The last line says what was recomputed, what was only checked against digests, and what was taken on
trust: no file of a run can prove it. Only training again finds a loss that was edited together with every
digest above it. --replay trains steps from the initial weights and from each kept checkpoint, in turn until
N is used up, and compares losses, gradient norms, evaluations and the tensors of the next checkpoint, bit
for bit. On another machine than the attested one (CPU, threads, libtorch) bits need not agree: there a
difference that rounding may explain is undecided.

--signers reads the file that `ssh-keygen -Y verify -f` reads; `canonc sign --help` says how to sign.

Exit codes: 0 nothing is broken, 1 something is, 3 something cannot be decided on this machine.
Schema of --json: {schema: \"canonc.verify.v2\", recomputed: [claim], checked: [claim], trusted: [claim],
broken: [text], undecided: [text], closing: text}, where claim = {subject, part: text or null, text}; of
several, {schema: \"canonc.verify_all.v1\", reports: [the same, each with `what`, as it was named]}.")]
pub struct VerifyArgs {
    /// Runs' folders, their names under runs/, or locks
    #[arg(value_name = "RUN|LOCK", required_unless_present = "replay")]
    pub what: Vec<PathBuf>,
    /// Make the data of every step again, not of 64 spread over the run and the last
    #[arg(long)]
    pub all: bool,
    /// Train N steps again [default: 32], or all, and compare their bits with the log and the checkpoints
    #[arg(long, value_name = "N|all", num_args = 0..=1)]
    pub replay: Option<Option<String>>,
    /// The prepared documents of a run on text [default: data/SOURCE.index]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Whose signatures of an attestation count: an allowed_signers file of ssh-keygen
    #[arg(long, value_name = "FILE")]
    pub signers: Option<PathBuf>,
    /// Whose signature it has to be, as FILE names them [default: anybody FILE lists]
    #[arg(long, value_name = "NAME", requires = "signers")]
    pub identity: Option<String>,
    /// As JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// Sign a finished run's attestation with an SSH key
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc sign runs/depo_llama --key ~/.ssh/id_ed25519
  canonc verify runs/depo_llama                       says which key signed it
  canonc verify runs/depo_llama --signers allowed_signers --identity ada@lab.org

Writes attestation.toml.sig into the run's folder: an SSH signature over every byte of attestation.toml,
for the purpose `canonc-attestation`. It says who vouches for the attestation, not that the attestation is
true: see `canonc verify --replay`. OpenSSH makes and checks the same file, with keys that are protected by
a passphrase, in an agent or on hardware too:

  ssh-keygen -Y sign -n canonc-attestation -f KEY runs/depo_llama/attestation.toml
  ssh-keygen -Y verify -n canonc-attestation -f allowed_signers -I ada@lab.org \\
      -s runs/depo_llama/attestation.toml.sig < runs/depo_llama/attestation.toml

Here keys of type ed25519 and ecdsa sign and are checked, without a passphrase; a line of allowed_signers
is a name and a public key: ada@lab.org ssh-ed25519 AAAA...")]
pub struct SignArgs {
    /// A finished run's folder, or its name under runs/
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// A private key in OpenSSH's format
    #[arg(long, value_name = "KEY")]
    pub key: PathBuf,
    /// Put the new signature in the place of one that is there
    #[arg(long)]
    pub replace: bool,
}

/// Run a run again, and name the first step, tensor and operation that differ
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc reproduce runs/depo_llama                       computed again; nothing is written
  canonc reproduce depo_llama --out /scratch/again       kept, as a run of its own
  canonc reproduce runs/depo_llama --against runs/theirs two runs of one lock; nothing is computed

Trains from the initial weights and compares each step, each evaluation and each kept checkpoint with the
run's own, bit for bit. The run's folder is only read. At the first line of the log that differs it goes on
to the next checkpoint that the run kept, and names the first tensor that differs there, in the order of
parameters. Then it computes the step in other ways that this machine has (again, with other numbers of
threads, with the plain kernels) from the last state that both had, if that is at most 16 steps before,
names the first operation of the plan that the way changes, and says which way gives the logged numbers.
The log holds no numbers of single operations: where no way gives the logged numbers, the operation is
narrowed down as far as the kept numbers and tensors allow, and no further.

With --out the run is trained into a new folder as `canonc run` would (interrupted it exits 75, and the same
command goes on), and then both folders are compared, as with --against. A folder whose run is finished
already is compared as it is, and the output says that nothing was computed.

Exit codes: 0 the same bits throughout, 1 a difference, 3 a difference that rounding may explain: this machine
is not the attested one, or the two runs compared were made on different machines.
Schema of --json: {schema: \"canonc.reproduce.v1\", computed, same, steps, of_steps, evaluations, checkpoints: [step],
first: {place, text, tensor: {checkpoint, same, text}, reasons: [text], variants: [{name, gives_the_log,
step, operation}], maybe_rounding}, platform: [text]}; first, tensor, step and operation may be null.")]
pub struct ReproduceArgs {
    /// A run's folder, or its name under runs/
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// The prepared documents of a run on text [default: data/SOURCE.index]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Keep the second run in this folder
    #[arg(long, value_name = "DIR", conflicts_with = "against")]
    pub out: Option<PathBuf>,
    /// Compute nothing: compare with this run of the same lock
    #[arg(long, value_name = "RUN")]
    pub against: Option<PathBuf>,
    /// As JSON on standard output
    #[arg(long)]
    pub json: bool,
}
