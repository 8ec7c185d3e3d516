//! Arguments of `canonc audit`.
//!
//! In: argv, as clap reads it. Out: plain values. Must stay true: as in `args`.

use std::path::PathBuf;

use clap::Args;

/// Find in a set of experiments what no pairwise diff shows: confounds, broken invariants, false claims
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  canonc audit --published                       the 64 experiments of the release, with their curves
  canonc audit lockfiles/*.lock                  experiments, and the arms of comparisons
  canonc audit lockfiles                         every lock, table and Lingua recipe in a folder
  canonc audit runs.tsv --curves losses.csv.gz   a table: a row an experiment, a column a key
  canonc audit runs.tsv --rules mine.toml        with rules of your own

Exit codes: 0 notes and warnings at most, 1 a confound or an error, 2 bad input.
`--list` prints every rule and key; `--help` says what files hold.",
    after_long_help = "\
Examples:
  canonc audit --published                       the 64 experiments of the release, with their curves
  canonc audit lockfiles/*.lock                  experiments, and the arms of comparisons
  canonc audit lockfiles                         every lock, table and Lingua recipe in a folder
  canonc audit runs.tsv --curves losses.csv.gz   a table: a row an experiment, a column a key
  canonc audit runs.tsv --rules mine.toml        with rules of your own

A table has a line of column names, then a line for each experiment; cells stand between tabs, or commas if
there is no tab. `model` (or `name`) is the experiment's name; other columns are keys, in canonc's words
(optimizer.lr) or Lingua's (optim.lr). An empty cell is an absent key. A column that no table
knows is reported, and no pair that has it is clean. A column whose name ends in `_from_comment` stands in no key.

Curves are lines `model,x,loss` under a line of names, plain or gzip; x is steps or tokens, the same for all of
a group.

A rules file is TOML:
  off = [\"twin-cosmetic\"]                  built-in rules that are not to be applied
  [keys]                                   keys of your own, and what they are about
  \"my.flag\" = \"training\"                 or data, budget, numerics, kernel, revision, evaluation,
                                           cadence, setup
  [severity]
  missing-twin = \"error\"                   \"error\", \"confound\", \"warning\" or \"note\"
  [[pairs]]                                more twins, by what is meant to differ between them
  treatment = [\"arch.mixer.window\"]
  [[invariant]]                            one value over a sweep, by majority
  id = \"lr-by-batch\"
  of = \"optimizer.lr / batch.tokens_per_step\"
  within = [\"family\", \"size\"]            or `task`, `tokens`, or keys; all of the set if left out
  tolerance = 0.01
  [[range]]
  id = \"lr-range\"
  of = \"optimizer.lr\"
  max = 0.01
Invariants and ranges may have a severity (else \"confound\"), a `why` and a `help`.

Exit codes: 0 notes and warnings at most, 1 a confound or an error, 2 bad input.

Schema of --json, one object on standard output:
  schema       \"canonc.audit.v1\"
  experiments  how many
  fails        whether there is a confound or an error
  pairs        each {without, with, clean}: names, and whether nothing in them may decide
  rules        what is not as built in
  findings     the heaviest first, each
    rule, severity, key (null for the whole), message, why, help
    places     each {experiment, against (the other of two, or null), says}"
)]
pub struct AuditArgs {
    /// Locks, tables (.tsv, .csv), recipes of Lingua (.yaml), or folders that have some
    #[arg(value_name = "PATH", required_unless_present_any = ["published", "list"])]
    pub paths: Vec<PathBuf>,
    /// The 64 experiments of the release and the loss curves of 48 of them, which canonc brings along
    #[arg(long)]
    pub published: bool,
    /// Loss curves of the experiments, by their names
    #[arg(long, value_name = "FILE")]
    pub curves: Option<PathBuf>,
    /// Rules that change or add to the built-in ones
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Instead: every rule and every key, as recipes/AUDIT.md has them
    #[arg(long, conflicts_with_all = ["paths", "published", "curves", "rules", "json"])]
    pub list: bool,
    /// As JSON on standard output (`--help` states the schema)
    #[arg(long)]
    pub json: bool,
}
