//! `canonc plan`: how many seeds a comparison needs, from the noise of its finished runs.

use std::path::PathBuf;

use clap::Args;
use lab::comparison::Stop;
use report::statistics::plan::{self, Plan, SequentialPlan, Spread, Wanted};
use report::statistics::sequential::StoppingRule;
use report::statistics::{Margin, Noise, noise};
use serde::Serialize;

use crate::fail::{Exit, Failure, Outcome, shown};
use crate::measured_noise::{Source, measured, wanted};
use crate::{interim_looks, output, workspace};

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

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.5 && value < 1.0 => Ok(value),
        Ok(_) | Err(_) => Err("give a share between 0.5 and 1, such as 0.8".to_owned()),
    }
}

/// Degrees of freedom of a given spread, which counts as known.
const KNOWN: f64 = 10_000.0;

#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    /// The id of the comparison's lock.
    lock: String,
    metric: String,
    effect: f64,
    power: f64,
    level: f64,
    tests: usize,
    listed_seeds: usize,
    noise: Option<Noise>,
    /// Source of the noise estimate.
    noise_from: Source,
    plan: Plan,
    /// `None` with a stopping rule: its power at a given number of seeds is not computed.
    power_of_listed_seeds: Option<f64>,
    /// With a stopping rule, the seeds before which it cannot decide.
    fewest_seeds: Option<usize>,
    equivalence: Option<Plan>,
    sequential: Option<SequentialPlan>,
}

pub fn plan(args: &PlanArgs) -> Outcome {
    let comparison = workspace::read_comparison(&args.lock)?;
    let analysis = &comparison.analysis;
    let wanted = wanted(&comparison, args.power)?;
    let Wanted { confidence, tests, .. } = wanted;
    let (noise, noise_from) = match args.noise {
        Some(_) => (None, Source { from: "given", of: Vec::new(), aa_pairs: 0 }),
        None => {
            let (noise, source) = measured(&args.dir, &shown(&args.lock), &comparison, confidence)?;
            (Some(noise), source)
        }
    };
    let spread = match (args.noise, &noise) {
        (None, Some(noise)) => Spread::from(noise),
        (sd, _) => Spread { sd: sd.unwrap_or(0.0), df: KNOWN },
    };
    let refused = |why: plan::Refused| Failure::finding(format!("no plan can be made: {why}"));
    let needed = plan::difference(spread, args.effect, &wanted).map_err(refused)?;
    let margin = analysis.margin.and_then(|margin| Margin::new(margin.to_f64()));
    let equivalence = margin.map(|margin| plan::equivalence(spread, margin, 0.0, &wanted));
    let equivalence = equivalence.transpose().map_err(refused)?;
    let sequential = match analysis.stop {
        Stop::Fixed => None,
        Stop::Sequential { max_seeds } => {
            let rule = StoppingRule::new(confidence, max_seeds);
            let needed = plan::with_stopping_rule(spread, args.effect, &rule, &wanted);
            Some(needed.map_err(refused)?)
        }
    };
    let (listed_seeds, fewest_seeds) = match analysis.stop {
        Stop::Fixed => (comparison.seeds.len(), None),
        Stop::Sequential { max_seeds } => (max_seeds, interim_looks::fewest(&comparison)),
    };
    let document = Document {
        schema: "canonc.plan.v1",
        lock: comparison.id().to_string(),
        metric: analysis.primary.clone(),
        effect: args.effect,
        power: args.power,
        level: confidence.alpha(),
        tests,
        listed_seeds,
        noise,
        noise_from,
        plan: needed,
        power_of_listed_seeds: fewest_seeds
            .is_none()
            .then(|| plan::power(args.effect, spread.sd, listed_seeds, &wanted)),
        fewest_seeds,
        equivalence,
        sequential,
    };
    match args.json {
        true => output::json(&document)?,
        false => output::data(&text(&document))?,
    }
    Ok(Exit::Fine)
}

fn text(document: &Document) -> String {
    let Document {
        schema: _,
        lock: _,
        metric,
        effect,
        power,
        level,
        tests,
        listed_seeds,
        noise,
        noise_from,
        plan,
        power_of_listed_seeds,
        fewest_seeds,
        equivalence,
        sequential,
    } = document;
    let family = if *tests == 1 { "1 test".to_owned() } else { format!("{tests} tests together") };
    let mut lines = vec![format!(
        "To find a difference of {effect} in {metric} in {} of cases, at the level {level:.3} of {family}:",
        percent(*power)
    )];
    lines.push(spread(noise.as_ref(), noise_from, plan));
    lines.push(format!("  seeds      {} (power {})", plan.seeds, percent(plan.power)));
    if noise.is_some() {
        let cautious = match plan.cautious_seeds {
            Some(seeds) => seeds.to_string(),
            None => format!("more than {}", plan::MOST),
        };
        lines.push(format!(
            "  cautious   {cautious}, at a spread of {:.4}, which the true one exceeds in one case of five",
            plan.cautious_sd
        ));
    }
    if let Some(Plan { seeds, .. }) = equivalence {
        lines.push(format!("  equivalent {seeds}, to call arms equivalent if they do not differ"));
    }
    if let Some(SequentialPlan { most, expected, .. }) = sequential {
        lines.push(format!(
            "  sequential {most} to list, {expected:.1} used on average before the rule stops"
        ));
    }
    lines.push(of_listed_seeds(*listed_seeds, *power_of_listed_seeds, *fewest_seeds));
    lines.join("\n") + "\n"
}

fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}

/// The line about the noise.
fn spread(noise: Option<&Noise>, noise_from: &Source, plan: &Plan) -> String {
    let Some(Noise { sd, low, high, repetitions, .. }) = noise else {
        return format!("  spread     {} of one paired difference, as given", plan.spread.sd);
    };
    let from = match noise_from.from {
        "aa_pairs" => format!("{repetitions} A/A pairs of the base with other init and data seeds"),
        _ => format!(
            "{} of the base, pooled, since {} of {} A/A pairs are finished",
            dsl::counted(*repetitions, "run"),
            noise_from.aa_pairs,
            noise::FEWEST
        ),
    };
    format!("  spread     {sd:.4} of one paired difference ({low:.4} … {high:.4}), from {from}")
}

/// The line about the seeds of the lock.
fn of_listed_seeds(listed: usize, power: Option<f64>, fewest: Option<usize>) -> String {
    let seeds = dsl::counted(listed, "seed");
    match (power, fewest) {
        (Some(power), _) => format!("  this lock  {seeds} (power {})", percent(power)),
        (None, Some(fewest)) if fewest > listed => format!(
            "  this lock  at most {seeds}: too few for its stopping rule, which needs {fewest}; raise max_seeds"
        ),
        (None, fewest) => format!(
            "  this lock  at most {seeds} under its stopping rule, which needs {} to decide (power not computed)",
            fewest.unwrap_or(0)
        ),
    }
}
