//! Arguments of `canonc build` and `canonc merge`.

use std::path::PathBuf;

use clap::Args;

/// Compile architectures, recipes and comparisons into locks
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc build arch/llamacanon_1B.canon     writes lockfiles/llamacanon_1B.lock
  canonc build recipes/*.toml               writes one lock for each point of each sweep
  canonc build --check arch/*.canon         writes nothing; exits 1 if a lock is missing or stale

For the first four experiments and comparisons, it also says how many evaluation questions training will contain, how
long the missing runs take on this machine (a few steps are timed if they take over a minute), and, once runs of the base
are finished, what difference the seeds can find. -q leaves this out.

Schema of --json: {schema: \"canonc.build.v1\", locks: [{path, kind, id, state, forecast: {questions, time, seeds}, of the
first four experiments and comparisons}], failed: [{source, state}]}. The
state of a lock is \"wrote\" or \"up to date\"; with --check also \"stale\" or \"missing\"; \"orphan\" if its source no longer
makes it, \"unreadable\" (kind and id are null) if it is not a lock. That of a file without locks is \"confounded\" or
\"error\". Verdicts, notes and errors go to standard error.")]
pub struct BuildArgs {
    /// .canon files, recipes and comparisons
    #[arg(value_name = "FILE", required_unless_present = "check")]
    pub files: Vec<PathBuf>,
    /// Write nothing; list locks that are missing or stale, and exit 1 if there are any. Without a FILE, check
    /// the source of every lock
    #[arg(long)]
    pub check: bool,
    /// Folder for locks
    #[arg(long, value_name = "DIR", default_value = "lockfiles")]
    pub out: PathBuf,
    /// Also print the locks as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// Merge a lock for git: merge what it is made from, and build it again
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  git config merge.canonc.driver 'canonc merge %O %A %B %P'
  git config merge.canonc.recursive binary
  echo 'lockfiles/*.lock merge=canonc -text' >> .gitattributes

git then runs this command for each lock that both branches changed. It merges both commits in a temporary folder,
builds the lock there and writes it over OURS. If the files that locks are made from have conflicts, or if it cannot
tell which commits are merged (a rebase, a cherry-pick), it exits 1 and leaves a conflict: a text that cannot be read as a lock,
with the command that builds it once the conflicts are resolved. It needs git 2.38.

Exit codes: 0 merged, 1 a conflict, 2 a file cannot be read.")]
pub struct MergeArgs {
    /// The lock of the common ancestor (%O)
    #[arg(value_name = "BASE")]
    pub base: PathBuf,
    /// Our lock, which the merged one replaces (%A)
    #[arg(value_name = "OURS")]
    pub ours: PathBuf,
    /// Their lock (%B)
    #[arg(value_name = "THEIRS")]
    pub theirs: PathBuf,
    /// The name of the lock in the repository (%P)
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
}
