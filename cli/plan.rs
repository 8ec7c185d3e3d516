//! `canonc plan`: how many seeds a comparison needs.
//!
//! In: a comparison lock, an effect and a power. Out: numbers of seeds, from the spread of finished runs of the base
//! or from a given spread. Must stay true: the analysis is the lock's; nothing is run or written; if the runs do not
//! support a plan, the reason is given instead of a number.

use std::collections::BTreeSet;
use std::path::Path;

use lab::comparison::{Comparison, Role, Run, Stop};
use lab::lock;
use records::run::{Paths, read_lock};
use report::compare;
use report::statistics::plan::{self, Plan, SequentialPlan, Spread, Wanted};
use report::statistics::sequential::StoppingRule;
use report::statistics::{Confidence, Margin, Noise, noise};
use serde::Serialize;

use crate::args::PlanArgs;
use crate::compared::compared;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::found::Found;
use crate::runs::{failure, read_text};
use crate::{looks, out, output};

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
    let name = shown(&args.lock);
    let locked = read_lock(&name, &read_text(&args.lock)?).map_err(failure)?;
    let comparison = lock::comparable(locked)
        .map_err(|error| Failure::bad_input(error.message).help(error.help).at(name.as_str()))?;
    let analysis = &comparison.analysis;
    let wanted = wanted(&comparison, args.power)?;
    let Wanted { confidence, tests, .. } = wanted;
    let (noise, noise_from) = match args.noise {
        Some(_) => (None, Source { from: "given", of: Vec::new(), aa_pairs: 0 }),
        None => {
            let (noise, source) = measured(&args.dir, &name, &comparison, confidence)?;
            (Some(noise), source)
        }
    };
    let spread = match (args.noise, &noise) {
        (None, Some(noise)) => Spread::from(noise),
        (sd, _) => Spread { sd: sd.unwrap_or(0.0), df: KNOWN },
    };
    let refused = |why: plan::Refused| finding(format!("no plan can be made: {why}"));
    let found = plan::difference(spread, args.effect, &wanted).map_err(refused)?;
    let margin = analysis.margin.and_then(|margin| Margin::new(margin.to_f64()));
    let equivalence = margin.map(|margin| plan::equivalence(spread, margin, 0.0, &wanted));
    let equivalence = equivalence.transpose().map_err(refused)?;
    let sequential = match analysis.stop {
        Stop::Fixed => None,
        Stop::Sequential { max_seeds } => {
            let rule = StoppingRule::new(confidence, max_seeds);
            let found = plan::with_stopping_rule(spread, args.effect, &rule, &wanted);
            Some(found.map_err(refused)?)
        }
    };
    let (listed_seeds, fewest_seeds) = match analysis.stop {
        Stop::Fixed => (comparison.seeds.len(), None),
        Stop::Sequential { max_seeds } => (max_seeds, looks::fewest(&comparison)),
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
        plan: found,
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

/// What a plan with this power must reach, by the lock's analysis. A test at points that the runs choose counts once for
/// each point that could be chosen.
pub fn wanted(comparison: &Comparison, power: f64) -> Result<Wanted, Failure> {
    let analysis = &comparison.analysis;
    let confidence = Confidence::new(1.0 - analysis.level.to_f64())
        .ok_or_else(|| Failure::bad_input("the level of [analysis] is not below 0.5"))?;
    let points = comparison.runs().iter().map(|run| run.point + 1).max().unwrap_or(1);
    let tests = comparison.verdicts.len().max(1) * analysis.family.len() * points;
    Ok(Wanted { power, confidence, tests })
}

fn finding(message: String) -> Failure {
    Failure { exit: Exit::Finding, ..Failure::bad_input(message) }
}

/// Source of a spread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Source {
    /// `aa_pairs`, `pooled_runs`, or `given` with --noise.
    pub from: &'static str,
    /// The pairs of runs, or the runs, that it is measured on.
    of: Vec<String>,
    /// Finished pairs of the base and its replicate with other init and data seeds.
    aa_pairs: usize,
}

/// The metric's value in a finished run of the base.
struct Value {
    role: Role,
    seed: usize,
    value: f64,
}

/// The spread of one paired difference, from pairs of the base and its replicate. If these are too few, from all
/// finished runs of the base that share no seed. Runs are in `dir`; `lock` is the lock's path in messages.
pub fn measured(
    dir: &Path,
    lock: &str,
    comparison: &Comparison,
    confidence: Confidence,
) -> Result<(Noise, Source), Failure> {
    let metric = compare::metric_name(&comparison.analysis.primary);
    let values = finished(dir, comparison, metric)?;
    let bounds = (compare::unit(metric) == compare::Unit::Share).then_some(noise::Bounds::SHARE);
    let seeds = |value: &Value| match value.role {
        Role::Replicate => comparison.replicate.get(value.seed),
        Role::Base | Role::Treatment => comparison.seeds.get(value.seed),
    };
    let called = |value: &Value| {
        seeds(value).map_or_else(String::new, |s| format!("init {} data {}", s.init, s.data))
    };
    let mut pairs = Vec::new();
    let mut of_pairs = Vec::new();
    for base in values.iter().filter(|value| value.role == Role::Base) {
        let replicate =
            values.iter().find(|value| value.role == Role::Replicate && value.seed == base.seed);
        let Some(replicate) = replicate else { continue };
        let (Some(one), Some(other)) = (seeds(base), seeds(replicate)) else { continue };
        if one.init != other.init && one.data != other.data {
            pairs.push((base.value, replicate.value));
            of_pairs.push(format!("{} and {}", called(base), called(replicate)));
        }
    }
    let aa_pairs = pairs.len();
    if aa_pairs >= noise::FEWEST
        && let Ok(noise) = Noise::of_pairs(&pairs, bounds, confidence)
    {
        return Ok((noise, Source { from: "aa_pairs", of: of_pairs, aa_pairs }));
    }
    let (mut inits, mut datas) = (BTreeSet::new(), BTreeSet::new());
    let mut pooled: Vec<&Value> = Vec::new();
    for value in &values {
        let Some(seeds) = seeds(value) else { continue };
        // Runs that share a seed differ by less than runs with other seeds.
        if inits.contains(&seeds.init) || datas.contains(&seeds.data) {
            continue;
        }
        inits.insert(seeds.init);
        datas.insert(seeds.data);
        pooled.push(value);
    }
    let source = Source {
        from: "pooled_runs",
        of: pooled.iter().map(|value| called(value)).collect(),
        aa_pairs,
    };
    let pooled: Vec<f64> = pooled.iter().map(|value| value.value).collect();
    Noise::of_runs(&pooled, bounds, confidence).map(|noise| (noise, source)).map_err(|why| {
        let base = &comparison.base;
        finding(format!("the noise of {metric} cannot be estimated from the runs of {base}: {why}"))
            .help(format!(
                "`canonc compare {}` trains runs; needed are at least {} pairs of the base and [replicate] with \
                 other init and data seeds, or as many finished runs of the base",
                lock,
                noise::FEWEST
            ))
            .help("or give the standard deviation of one paired difference: --noise 0.01")
    })
}

/// The metric of each finished run of the base and of its replicate, at the base's point of the grid.
fn finished(dir: &Path, comparison: &Comparison, metric: &str) -> Result<Vec<Value>, Failure> {
    out::folder(dir)?;
    let folder = out::named(dir, &comparison.name, "")?;
    let found = Found::under(dir);
    let mut finished: Vec<&Run> = Vec::new();
    for run in comparison.runs() {
        let place = found.place(&folder, &run.experiment)?;
        if run.role != Role::Treatment && Paths::new(&place).attestation().exists() {
            finished.push(run);
        }
    }
    let known = compared(comparison, &finished, &folder, &found)?;
    let point = known.base().and_then(|base| known.chosen(base)).unwrap_or(0);
    let mut values = Vec::new();
    for arm in &known.arms {
        for run in arm.points.get(point).into_iter().flatten() {
            if let Some(value) = run.curves.last(metric) {
                values.push(Value { role: arm.role, seed: run.seed, value });
            }
        }
    }
    Ok(values)
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
    let percent = |share: f64| format!("{:.0}%", 100.0 * share);
    let family = if *tests == 1 { "1 test".to_owned() } else { format!("{tests} tests together") };
    let mut said = vec![format!(
        "To find a difference of {effect} in {metric} in {} of cases, at the level {level:.3} of {family}:",
        percent(*power)
    )];
    match noise {
        Some(Noise { sd, low, high, repetitions, .. }) => said.push(format!(
            "  spread     {sd:.4} of one paired difference ({low:.4} … {high:.4}), from {}",
            match noise_from.from {
                "aa_pairs" =>
                    format!("{repetitions} A/A pairs of the base with other init and data seeds"),
                _ => format!(
                    "{} of the base, pooled, since {} of {} A/A pairs are finished",
                    dsl::counted(*repetitions, "run"),
                    noise_from.aa_pairs,
                    noise::FEWEST
                ),
            }
        )),
        None => {
            said.push(format!("  spread     {} of one paired difference, as given", plan.spread.sd))
        }
    }
    said.push(format!("  seeds      {} (power {})", plan.seeds, percent(plan.power)));
    if noise.is_some() {
        let cautious = match plan.cautious_seeds {
            Some(seeds) => seeds.to_string(),
            None => format!("more than {}", plan::MOST),
        };
        said.push(format!(
            "  cautious   {cautious}, at a spread of {:.4}, which the true one exceeds in one case of five",
            plan.cautious_sd
        ));
    }
    if let Some(Plan { seeds, .. }) = equivalence {
        said.push(format!("  equivalent {seeds}, to call arms equivalent if they do not differ"));
    }
    if let Some(SequentialPlan { most, expected, .. }) = sequential {
        said.push(format!(
            "  sequential {most} to list, {expected:.1} used on average before the rule stops"
        ));
    }
    said.push(match (power_of_listed_seeds, fewest_seeds) {
        (Some(power), _) => format!("  this lock  {} (power {})", dsl::counted(*listed_seeds, "seed"), percent(*power)),
        (None, Some(fewest)) if fewest > listed_seeds => format!(
            "  this lock  at most {}: too few for its stopping rule, which needs {fewest}; raise max_seeds",
            dsl::counted(*listed_seeds, "seed")
        ),
        (None, fewest) => format!(
            "  this lock  at most {} under its stopping rule, which needs {} to decide (power not computed)",
            dsl::counted(*listed_seeds, "seed"),
            fewest.unwrap_or(0)
        ),
    });
    said.join("\n") + "\n"
}
