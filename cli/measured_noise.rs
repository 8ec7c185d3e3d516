//! The noise of a comparison's metric, from finished runs of its base, and what a plan must reach.

use std::collections::BTreeSet;
use std::path::Path;

use lab::comparison::{Comparison, ComparisonRun, Role};
use records::run::Paths;
use report::compare;
use report::statistics::plan::Wanted;
use report::statistics::{Confidence, Noise, noise};
use serde::Serialize;

use crate::compared::compared;
use crate::fail::Failure;
use crate::finished_runs::FinishedRuns;
use crate::out;

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

/// Source of a spread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Source {
    /// `aa_pairs`, `pooled_runs`, or `given` with --noise.
    pub from: &'static str,
    /// The pairs of runs, or the runs, that it is measured on.
    pub of: Vec<String>,
    /// Finished pairs of the base and its replicate with other init and data seeds.
    pub aa_pairs: usize,
}

/// The metric in a finished run of the base.
struct BaseValue {
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
    let seeds = |value: &BaseValue| match value.role {
        Role::Replicate => comparison.replicate.get(value.seed),
        Role::Base | Role::Treatment => comparison.seeds.get(value.seed),
    };
    let called = |value: &BaseValue| {
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
    let mut pooled: Vec<&BaseValue> = Vec::new();
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
        Failure::finding(format!("the noise of {metric} cannot be estimated from the runs of {base}: {why}"))
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
fn finished(dir: &Path, comparison: &Comparison, metric: &str) -> Result<Vec<BaseValue>, Failure> {
    out::folder(dir)?;
    let folder = out::named(dir, &comparison.name, "")?;
    let finished = FinishedRuns::under(dir);
    let mut runs: Vec<&ComparisonRun> = Vec::new();
    for run in comparison.runs() {
        let run_folder = finished.folder(&folder, &run.experiment)?;
        if run.role != Role::Treatment && Paths::new(&run_folder).is_attested()? {
            runs.push(run);
        }
    }
    let known = compared(comparison, &runs, &folder, &finished)?;
    let point = known.base().and_then(|base| known.chosen(base)).unwrap_or(0);
    let mut values = Vec::new();
    for arm in &known.arms {
        for run in arm.points.get(point).into_iter().flatten() {
            if let Some(value) = run.curves.last(metric) {
                values.push(BaseValue { role: arm.role, seed: run.seed, value });
            }
        }
    }
    Ok(values)
}
