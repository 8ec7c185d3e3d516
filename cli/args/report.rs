//! Arguments of `canonc report`.
//!
//! In: argv, as clap reads it. Out: plain values. Must stay true: as in `args`.

use std::path::PathBuf;

use clap::Args;

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        Ok(_) | Err(_) => Err(format!("`{text}` is not a number above 0, such as 2.4e12")),
    }
}

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
  canonc report runs/demo --peak-flops 2.4e12              speeds as a share of what the machine can do
  canonc report runs/text --samples a.json,b.json          with texts of `canonc generate --json`
  canonc report --wandb-script > log_to_wandb.py           a script that logs a run for Weights & Biases

Each run is first checked against its lock. An unfinished run is shown up to its last step and marked; a comparison
with a missing run has no table. Faulty runs of a folder are left out, and the page says so.

MFU is the share of the machine's peak that the model's own FLOPs take. The peaks of H100 and H200 are NVIDIA's; for
another machine, give --peak-flops. `canonc run --tensorboard DIR` writes event files while a run trains.")]
pub struct ReportArgs {
    /// Runs: folders, names under --dir, folders with several runs, or locks
    #[arg(value_name = "RUN|COMPARISON|LOCK", required_unless_present_any = ["published", "scores", "samples", "wandb_script"])]
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
    /// The FLOP/s that the machine can do, all devices that train a run together, in the precision of the runs
    #[arg(long, value_name = "FLOPS", allow_negative_numbers = true, value_parser = positive)]
    pub peak_flops: Option<f64>,
    /// Bytes of text per token, marks of documents counted as tokens, for bits per byte of runs on text whose tokenizer is
    /// not `bytes`
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = positive)]
    pub bytes_per_token: Option<f64>,
    /// Add texts of `canonc generate --json`
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    pub samples: Vec<PathBuf>,
    /// Print docs/log_to_wandb.py, which logs a run offline with the `wandb` package (Python 3.11), and nothing else
    #[arg(long, conflicts_with_all = ["what", "published", "scores", "samples", "tensorboard"])]
    pub wandb_script: bool,
    /// Folder in which to find runs of locks and names
    #[arg(long, value_name = "DIR", default_value = crate::runs::FOLDER)]
    pub dir: PathBuf,
}
