//! Arguments of `canonc report`.
//!
//! In: argv, as clap reads it. Out: plain values. Must stay true: as in `args`.

use std::path::PathBuf;

use clap::Args;

/// Runs and comparisons as one HTML file that works offline: curves, paired differences, what locks differ in
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc report lockfiles/demo.lock                        the runs of a comparison, from runs/demo
  canonc report runs/demo --out demo/report.html           the same
  canonc report runs/a runs/b                              two runs, paired if Canon layers are all they differ in
  canonc report runs/demo --published 'GLA5*-1B-*'         with published curves laid over them
  canonc report --published all --out published.html       the release's curves alone
  canonc report runs/demo --tensorboard tb                 also tb/RUN/events.out.tfevents…, for TensorBoard

Each run is held against its lock first. One that is not finished is shown as far as it is, and its name says so; a
comparison that lacks a run has no table. What does not hold is left out of a folder of runs, and the page says so.")]
pub struct ReportArgs {
    /// Folders of runs, their names under --dir, folders that hold several, or locks of what was run
    #[arg(value_name = "RUN|COMPARISON|LOCK", required_unless_present = "published")]
    pub what: Vec<PathBuf>,
    /// The page
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,
    /// Curves of the release's models, by name with `*`; or `all`
    #[arg(long, value_name = "PATTERN")]
    pub published: Vec<String>,
    /// Also event files for TensorBoard, a folder for each run
    #[arg(long, value_name = "DIR")]
    pub tensorboard: Option<PathBuf>,
    /// Where the runs of locks and names lie
    #[arg(long, value_name = "DIR", default_value = crate::runs::FOLDER)]
    pub dir: PathBuf,
}
