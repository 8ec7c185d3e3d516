//! Arguments of `canonc plan`, which plans a comparison before its runs.

use std::path::PathBuf;

use clap::Args;

/// Say how many seeds a comparison needs to find a difference of a given size
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc plan lockfiles/depo.lock --effect 0.05             from the finished A/A pairs of the base
  canonc plan lockfiles/depo.lock --effect 0.05 --power 0.9
  canonc plan lockfiles/depo.lock --effect 0.02 --noise 0.01   where no runs are there yet

The effect is a difference of the lock's primary metric, in its unit: nats of a loss, and a share of one of
answers (0.02 for two points in a hundred). Without --noise the spread of a single paired difference comes
from the finished A/A pairs: runs of the base and their repetitions in [again], at least three pairs with
other init and data seeds. Where pairs are fewer, it comes from all finished runs of the base that share
no seed, pooled; the answer says which. A few runs give an uncertain spread, so there are two numbers of seeds: at the estimated
spread, and at one that the true spread exceeds in one case of five.

The level, the family of tests, the margin and the stopping rule are those of [analysis] in the lock. Arms
of a comparison share their seeds, which often removes noise: then the plan asks for too many seeds rather
than too few. docs/statistics.md explains each number.

Exit codes: 0 there is a plan, 1 the runs do not allow one, 2 a lock or number cannot be used.
Schema of --json: {schema: \"canonc.plan.v1\", lock, metric, effect, power, level, tests, listed_seeds,
noise: {sd, df, repetitions, low, high, confidence}, or null with --noise, noise_from: {from: \"aa_pairs\", \"pooled_runs\" or
\"given\", of: seeds of each pair or run, aa_pairs: finished pairs}, plan: {seeds, power,
cautious_seeds, spread: {sd, df}, cautious_sd}, power_of_listed_seeds and fewest_seeds (null and a number
with a stopping rule), equivalence: the same as plan, null
without a margin, sequential: {most, expected, power, sequences}, null without a stopping rule}.")]
pub struct PlanArgs {
    /// A lock of kind comparison
    #[arg(value_name = "LOCK")]
    pub lock: PathBuf,
    /// The difference to find, in the unit of the primary metric
    #[arg(long, value_name = "D", value_parser = above_zero, allow_negative_numbers = true)]
    pub effect: f64,
    /// The chance to find it
    #[arg(long, value_name = "SHARE", default_value_t = 0.8, value_parser = share)]
    pub power: f64,
    /// Standard deviation of one paired difference, instead of that of finished runs
    #[arg(long, value_name = "SD", value_parser = above_zero, allow_negative_numbers = true)]
    pub noise: Option<f64>,
    /// Where runs are, each comparison in a folder of its name
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// As JSON on standard output
    #[arg(long)]
    pub json: bool,
}

fn above_zero(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        Ok(_) | Err(_) => Err("give a number above 0, such as 0.05".to_owned()),
    }
}

pub(super) fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 1.0 && value < 10.0 => Ok(value),
        Ok(_) | Err(_) => Err("give a ratio above 1, such as 1.05".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.5 && value < 1.0 => Ok(value),
        Ok(_) | Err(_) => Err("give a share between 0.5 and 1, such as 0.8".to_owned()),
    }
}
