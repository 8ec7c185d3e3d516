//! Arguments of `canonc report`.
//!
//! In: argv, as clap reads it. Out: plain values. Must stay true: as in `args`.

use std::path::PathBuf;

use clap::Args;

/// Write runs and comparisons as one offline HTML file: curves, paired differences, differences of locks
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc report lockfiles/demo.lock                        the runs of a comparison, from runs/demo
  canonc report runs/demo --out demo/report.html           the same
  canonc report runs/a runs/b                              two runs, paired if only Canon layers differ
  canonc report runs/demo --published 'GLA5*-1B-*'         with published curves
  canonc report --published all --out published.html       only the release's curves
  canonc report --scores mine.json --out scores.html       evaluations, beside published scores
  canonc report runs/demo --tensorboard tb                 also writes tb/RUN/events.out.tfevents…, for TensorBoard

Each run is first checked against its lock. An unfinished run is shown up to its last step and marked; a comparison
with a missing run has no table. Faulty runs of a folder are left out, and the page says so.")]
pub struct ReportArgs {
    /// Runs: folders, names under --dir, folders with several runs, or locks
    #[arg(value_name = "RUN|COMPARISON|LOCK", required_unless_present_any = ["published", "scores"])]
    pub what: Vec<PathBuf>,
    /// The HTML file to write
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,
    /// Add curves of the release's models, by name with `*`, or `all`
    #[arg(long, value_name = "PATTERN")]
    pub published: Vec<String>,
    /// Add results of `canonc eval --out`, beside the release's scores and those of open models
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    pub scores: Vec<PathBuf>,
    /// Also write TensorBoard event files, in a folder for each run
    #[arg(long, value_name = "DIR")]
    pub tensorboard: Option<PathBuf>,
    /// Folder in which to find runs of locks and names
    #[arg(long, value_name = "DIR", default_value = crate::runs::FOLDER)]
    pub dir: PathBuf,
}
