//! `canonc diff`: the differences between two locks, and whether they are the treatment alone.
//!
//! Only locks are read, never their sources.

pub mod explain;

use std::path::{Path, PathBuf};

use clap::Args;
use lab::lock::Lock;
use lab::trainer::{Setting, TrainerRecord, with_trainers};
use lab::verdict::{self, Refusal, Trainer};
use records::external::trainer_of;
use records::run::Paths;

use crate::fail::{Exit, Failure, Outcome, shown};
use crate::workspace::Target;
use crate::{output, workspace};

/// Show how two locks differ: treatment, confounds, consequences
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  canonc diff lockfiles/llama_1B.lock lockfiles/llamacanon_1B.lock --treatment canon
  canonc diff lockfiles/a.lock lockfiles/b.lock --treatment canon --treatment optimizer.lr
  canonc diff lockfiles/a.lock lockfiles/b.lock --json
  canonc diff lockfiles/a.lock lockfiles/b.lock --treatment canon --explain

Exit codes: 0 controlled, 1 confounded, 2 a lock or the treatment cannot be used.",
    after_long_help = "\
Examples:
  canonc diff lockfiles/llama_1B.lock lockfiles/llamacanon_1B.lock --treatment canon
  canonc diff lockfiles/a.lock lockfiles/b.lock --treatment canon --treatment optimizer.lr
  canonc diff lockfiles/a.lock lockfiles/b.lock --json | jq '.confounds[].path'
  canonc diff lockfiles/a.lock lockfiles/b.lock --treatment canon --explain
  canonc diff --script > check_verdict.py          a script that checks a verdict on slots without canonc
  canonc diff lockfiles/a.lock lockfiles/b.lock --treatment canon --trainer canonc
  canonc diff runs/a runs/b --treatment canon      two runs: also how the engines that trained them differ

A treatment names fields: `canon` means all slots; `optimizer.lr` is a field of the lock; `rope.dims` is a
field of every layer that has it; `arch.layers.0..6.slots.A` means only these layers.

A lock carries keys that only another trainer reads: its seed, folder, prefetching, compilation. They have
no effect in canonc but can change results there, so a difference in one is a confound. With
`--trainer canonc` you declare that canonc runs both locks, with `--trainer pytorch` that PyTorch does, by
canonc.torch; the verdict says so.

Of two runs, the engines that trained them are compared, too, if one was trained elsewhere: another engine, other
kernels of a primitive or another precision are confounds, which no treatment clears.

Exit codes: 0 controlled, 1 confounded, 2 a lock or the treatment cannot be used.

Schema of --json, one object on standard output:
  schema       \"canonc.diff.v1\"
  a, b         names of the locks
  verdict      \"identical\", \"controlled\", \"bundle\" or \"confounded\"
  controlled   whether only the treatment differs
  factors      number of independent fields in the treatment
  headline     the verdict in one line
  exploratory  whether the treatment comes from the command line, not from a comparison file
  assumed      inputs without a digest that are assumed equal because their names are
  trainer      \"canonc\" or \"pytorch\" if declared with --trainer, else null
  trainers     [text, text]: who trained the two runs; null if canonc trained both, or for locks
  treatment    each {entry, factors, changes}
  confounds, consequences, platform, cosmetic, and changes: lists, each
    path, a, b   the field and both values; null if a lock has no such field
    at_a, at_b   file:line, or null
    note         `+0.15%`, `decides training`, `measured differently`; may be empty
  graph        each {change (added, removed, changed), layers, node, times (in each layer), a, b,
               at_a, at_b}
  names        each {name, a, b}: the meaning in each arm of a name with several meanings, as
               {kind, digest, standard, at}; null if the arm does not use the name
  proof        {graph, manifest, reverse_graph, reverse_manifest, erased_slots, erased_graph,
               erased_manifest}: digests of both locks, first a with b's values at the treatment,
               then b with a's; null if it could not be built"
)]
pub struct DiffArgs {
    /// Baseline lock
    #[arg(value_name = "A", required_unless_present = "script")]
    pub a: Option<PathBuf>,
    /// Lock to compare with it
    #[arg(value_name = "B", required_unless_present = "script")]
    pub b: Option<PathBuf>,
    /// A field that is meant to differ; `canon` means the Canon slots
    #[arg(long = "treatment", value_name = "T")]
    pub treatment: Vec<String>,
    /// The trainer that runs both locks: keys that only other trainers read have no effect
    #[arg(long, value_name = "T", value_parser = clap::builder::PossibleValuesParser::new(lab::verdict::Trainer::WORDS))]
    pub trainer: Option<String>,
    /// Print the verdict as JSON
    #[arg(long)]
    pub json: bool,
    /// Explain how to check the verdict with a Python script that does not use canonc
    #[arg(long, conflicts_with = "json")]
    pub explain: bool,
    /// Print that script, docs/check_verdict.py (Python 3.11 and the `blake3` package)
    #[arg(long, conflicts_with_all = ["a", "b", "treatment", "json", "explain"])]
    pub script: bool,
}

pub fn diff(args: &DiffArgs) -> Outcome {
    let (Some(a), Some(b)) = (&args.a, &args.b) else {
        output::data(explain::SCRIPT)?;
        return Ok(Exit::Fine);
    };
    let (a_name, b_name) = (shown(a), shown(b));
    let trainers = trainers(a, b)?;
    let (a, a_text) = workspace::read_lock(a)?;
    let (b, b_text) = workspace::read_lock(b)?;
    let sides = (a.side(&a_name, &a_text), b.side(&b_name, &b_text));
    let (left, right) = (sides.0.map_err(refused)?, sides.1.map_err(refused)?);
    let trainer = args.trainer.as_deref().and_then(Trainer::parse).unwrap_or_default();
    let (mut left, mut right) = (left.run_by(trainer), right.run_by(trainer));
    // Two runs of locks of one name.
    if left.label == right.label && a_name != b_name {
        (left.label, right.label) = (&a_name, &b_name);
    }
    let verdict = verdict::controlled(&left, &right, &args.treatment).map_err(refused)?;
    let verdict = match (&trainers, &a, &b) {
        (Some([one, other]), Lock::Experiment(first), Lock::Experiment(second)) => {
            let setting = Setting::of(&[first, second], false);
            with_trainers(verdict, [one.as_ref(), other.as_ref()], setting)
        }
        (_, _, _) => verdict,
    };
    if args.json {
        output::json(&verdict::json(&verdict, true))?;
    } else {
        output::data(&verdict::text(&verdict, true))?;
    }
    if args.explain {
        output::data(&explain::commands(
            &a_name,
            &b_name,
            &args.treatment,
            args.trainer.as_deref(),
        ))?;
    }
    Ok(if verdict.is_controlled() { Exit::Fine } else { Exit::Finding })
}

/// Who trained two runs, if both words name runs.
fn trainers(a: &Path, b: &Path) -> Result<Option<[Option<TrainerRecord>; 2]>, Failure> {
    match (workspace::resolve(a)?, workspace::resolve(b)?) {
        // A folder with a lock alone was trained by nobody.
        (Target::Run(a), Target::Run(b))
            if [&a, &b].map(|run| Paths::new(run).metrics().exists()) == [true; 2] =>
        {
            Ok(Some([trainer_of(&Paths::new(a))?, trainer_of(&Paths::new(b))?]))
        }
        (_, _) => Ok(None),
    }
}

fn refused(refusal: Refusal) -> Failure {
    let Refusal { code: _, message, help } = refusal;
    Failure::bad_input(message).help(help)
}
