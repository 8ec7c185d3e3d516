//! Arguments of `canonc audit`.
//!
//! In: argv, as clap reads it. Out: plain values. Must stay true: as in `args`.

use std::path::PathBuf;

use clap::Args;

/// Audit a set of experiments for faults that no pairwise diff shows: confounds, broken invariants, false claims
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  canonc audit --published                       the 64 experiments of the release, with their curves
  canonc audit lockfiles/*.lock                  experiments, and the arms of comparisons
  canonc audit lockfiles                         every lock, table and Lingua recipe in a folder
  canonc audit runs.tsv --curves losses.csv.gz   a table: one row per experiment, one column per key
  canonc audit runs.tsv --rules mine.toml        with your own rules

Exit codes: 0 only notes and warnings, 1 a confound or an error, 2 bad input.
`--list` prints every rule and key; `--help` describes the file formats.",
    after_long_help = "\
Examples:
  canonc audit --published                       the 64 experiments of the release, with their curves
  canonc audit lockfiles/*.lock                  experiments, and the arms of comparisons
  canonc audit lockfiles                         every lock, table and Lingua recipe in a folder
  canonc audit runs.tsv --curves losses.csv.gz   a table: one row per experiment, one column per key
  canonc audit runs.tsv --rules mine.toml        with your own rules

A table has a line of column names, then a line for each experiment; cells are separated by tabs, or by
commas if there is no tab. `model` (or `name`) is the experiment's name; other columns are keys, by canonc's
names (optimizer.lr) or Lingua's (optim.lr). An empty cell is an absent key. An unknown column is reported,
and no pair that has it is clean. A column with a name ending in `_from_comment` is not a key.

Curves are a header line and lines `model,x,loss`, plain or gzip; x is steps or tokens, the same for a whole
group.

A rules file is TOML:
  off = [\"twin-cosmetic\"]                  built-in rules to switch off
  [keys]                                   your own keys, each with its topic
  \"my.flag\" = \"training\"                 or data, budget, numerics, kernel, revision, evaluation,
                                           cadence, setup
  [severity]
  missing-twin = \"error\"                   \"error\", \"confound\", \"warning\" or \"note\"
  [[pairs]]                                more twins, by the fields that are meant to differ
  treatment = [\"arch.mixer.window\"]
  [[invariant]]                            a value that is constant over a sweep, by majority
  id = \"lr-by-batch\"
  of = \"optimizer.lr / batch.tokens_per_step\"
  within = [\"family\", \"size\"]            or `task`, `tokens`, or keys; by default the whole set
  tolerance = 0.01
  [[range]]
  id = \"lr-range\"
  of = \"optimizer.lr\"
  max = 0.01
Invariants and ranges can have a severity (default \"confound\"), a `why` and a `help`.

Exit codes: 0 only notes and warnings, 1 a confound or an error, 2 bad input.

Schema of --json, one object on standard output:
  schema       \"canonc.audit.v1\"
  experiments  number of experiments
  fails        whether there is a confound or an error
  pairs        each {without, with, clean}: names, and whether no other difference can affect results
  rules        changes to the built-in rules
  findings     the most severe first, each
    rule, severity, key (null for the whole experiment), message, why, help
    places     each {experiment, against (the other one of a pair, or null), says}"
)]
pub struct AuditArgs {
    /// Locks, tables (.tsv, .csv), Lingua recipes (.yaml), or folders that contain some
    #[arg(value_name = "PATH", required_unless_present_any = ["published", "list"])]
    pub paths: Vec<PathBuf>,
    /// Audit the 64 experiments of the release and the loss curves of 48 of them, which are built in
    #[arg(long)]
    pub published: bool,
    /// Loss curves of the experiments, by experiment name
    #[arg(long, value_name = "FILE")]
    pub curves: Option<PathBuf>,
    /// A file of rules that change or extend the built-in ones
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// List every rule and key instead, as in recipes/AUDIT.md
    #[arg(long, conflicts_with_all = ["paths", "published", "curves", "rules", "json"])]
    pub list: bool,
    /// Print JSON (`--help` shows the schema)
    #[arg(long)]
    pub json: bool,
}
