//! Arguments of `canonc plan`, which plans a comparison before its runs.

use std::path::PathBuf;

use clap::Args;

/// Estimate how many seeds a comparison needs to find a difference of a given size
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc plan lockfiles/depo.lock --effect 0.05             from the finished A/A pairs of the base
  canonc plan lockfiles/depo.lock --effect 0.05 --power 0.9
  canonc plan lockfiles/depo.lock --effect 0.02 --noise 0.01   before any runs exist

The effect is a difference of the lock's primary metric, in its unit: nats for a loss, and a fraction for
accuracies (0.02 is two percentage points). Without --noise the standard deviation of one paired difference is
estimated from finished A/A pairs: runs of the base and of [replicate], at least three pairs with other init and
data seeds. With fewer pairs it is pooled over all finished runs of the base that share no seed; the output says
which. An estimate from few runs is uncertain, so there are two numbers of seeds: at the estimate, and at a larger
value that the true standard deviation exceeds in one case of five.

The level, the family of tests, the margin and the stopping rule come from [analysis] in the lock. With a [grid],
each test counts once for each point, since the runs choose among them. Arms of a comparison share their seeds, which often reduces noise; then the plan asks for too many seeds rather than too
few. docs/statistics.md explains each number.

Exit codes: 0 a plan was made, 1 the runs do not allow one, 2 a lock or number cannot be used.
Schema of --json: {schema: \"canonc.plan.v1\", lock, metric, effect, power, level, tests, listed_seeds,
noise: {sd, df, repetitions, low, high, confidence}, or null with --noise, noise_from: {from: \"aa_pairs\", \"pooled_runs\" or
\"given\", of: seeds of each pair or run, aa_pairs: finished pairs}, plan: {seeds, power,
cautious_seeds, spread: {sd, df}, cautious_sd}, power_of_listed_seeds and fewest_seeds (null and a number
with a stopping rule), equivalence: the same as plan, null
without a margin, sequential: {most, expected, power, sequences}, null without a stopping rule}.")]
pub struct PlanArgs {
    /// A comparison lock
    #[arg(value_name = "LOCK")]
    pub lock: PathBuf,
    /// The difference to find, in the unit of the primary metric
    #[arg(long, value_name = "D", value_parser = above_zero, allow_negative_numbers = true)]
    pub effect: f64,
    /// Probability of finding it
    #[arg(long, value_name = "SHARE", default_value_t = 0.8, value_parser = share)]
    pub power: f64,
    /// Standard deviation of one paired difference, instead of an estimate from finished runs
    #[arg(long, value_name = "SD", value_parser = above_zero, allow_negative_numbers = true)]
    pub noise: Option<f64>,
    /// Folder of runs, with a subfolder for each comparison
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// Print JSON
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
