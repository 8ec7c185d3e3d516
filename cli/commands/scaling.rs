//! `canonc scaling`: the gain of a treatment across sizes, expressed as saved compute.
//!
//! If a treated arm costs more than its base, the extra cost counts against it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use lab::comparison::{Comparison, ComparisonRun, Role};
use lab::experiment::Experiment;
use lab::field::{Class, FieldValue, Origin, TABLE};
use records::run::Paths;
use report::compare::{self, Design};
use report::statistics::Confidence;
use report::statistics::scaling::{self, Curve, Fit, Model, Size};
use serde::Serialize;
use tasks::metric::EVAL_LOSS;

use crate::compared::compared;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::finished_runs::FinishedRuns;
use crate::{out, output, overlap_counts, workspace};

/// Fit the loss of both arms against size, and estimate how much compute the treatment saves
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc scaling lockfiles/width64.lock lockfiles/width128.lock lockfiles/width256.lock lockfiles/width512.lock
  canonc scaling lockfiles/depth*.lock --by parameters
  canonc scaling lockfiles/width*.lock --arm canon --json

Each LOCK is a comparison of the same treatment at another size, with finished runs: `canonc compare LOCK` makes
them. Both arms are fitted by the same curve, loss = b C^-c, or with five or more sizes over two decades
loss = a + b C^-c. The result is a compute ratio with a 95% interval: how many times the compute of the treated
arm the base needs for the same loss, at the middle of the sizes. If the treated arm is larger or needs more
FLOPs than the base of its size, the ratio counts that against it. Sizes can have different numbers of seeds. A
loss is marked as seen in training by the rule of `canonc compare`.

A reason replaces the ratio with fewer than four sizes, with less than one decade between the smallest and the
largest, if a loss does not fall with size beyond chance, if no loss is reached by both arms within the sizes, or
if the interval is not finite. docs/statistics.md explains the method and its coverage.

Exit codes: 0 a fit was made, 1 the sizes or runs do not support one, 2 a lock cannot be used.
Schema of --json: {schema: \"canonc.scaling.v1\", by, metric, label (with the reason if the
loss is not held-out), base, treated, controlled, sizes: [{name, lock, design (as
in canonc compare), at, treated_over_base, base: [loss by seed], treated: the same}], fit: {model, base: {floor, factor, exponent,
exponent_error}, treated: the same, unit, sizes, runs, at_loss, df}, compute_ratio: {ratio, low, high, level,
reaches_beyond_sizes}, compute_saved: {share, low, high}, refused: the reason}; without a fit the first three
are null, with a fit refused is.")]
pub struct ScalingArgs {
    /// Comparison locks, one for each size
    #[arg(value_name = "LOCK", required = true)]
    pub locks: Vec<PathBuf>,
    /// Measure of size
    #[arg(long, value_enum, default_value_t = By::Flops)]
    pub by: By,
    /// The loss to fit
    #[arg(long, value_enum, default_value_t = Which::Evaluation)]
    pub loss: Which,
    /// The treated arm, if comparisons have several
    #[arg(long, value_name = "NAME")]
    pub arm: Option<String>,
    /// Folder of runs, with a subfolder for each comparison
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// FLOPs of the whole training
    Flops,
    /// Parameters of the arch
    Parameters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// The loss of the last evaluation
    Evaluation,
    /// The mean training loss of the last tenth of the steps
    Training,
}

/// The largest spread of the ratios of treated to base size: one factor has to hold at all sizes.
const ONE_FACTOR: f64 = 1.05;

#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    by: &'static str,
    metric: &'static str,
    /// The metric's label: its name, and why its questions are not held out, if they are not.
    label: String,
    base: String,
    treated: String,
    /// Whether the treated arm differs from the base only in what was declared, at every size.
    controlled: bool,
    sizes: Vec<OneSize>,
    fit: Option<OneFit>,
    compute_ratio: Option<ComputeRatio>,
    compute_saved: Option<Saved>,
    refused: Option<String>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct OneSize {
    name: String,
    lock: String,
    /// How the arms differ at the points of the grid where they are judged.
    design: Design,
    /// Size of the base.
    at: f64,
    treated_over_base: f64,
    base: Vec<f64>,
    treated: Vec<f64>,
    /// Seeds of the lock.
    listed: usize,
    /// Pairs that have no losses because a run of them diverged.
    diverged: usize,
    /// Listed seeds without a finished run of one of the arms.
    missing: usize,
}

#[derive(Debug, Serialize)]
struct OneFit {
    model: Model,
    base: Curve,
    treated: Curve,
    unit: f64,
    sizes: usize,
    runs: usize,
    at_loss: f64,
    df: f64,
}

#[derive(Debug, Serialize)]
struct ComputeRatio {
    ratio: f64,
    low: f64,
    high: f64,
    level: f64,
    reaches_beyond_sizes: bool,
}

/// Saved shares of the base's compute; negative if the treatment costs compute.
#[derive(Debug, Serialize)]
struct Saved {
    share: f64,
    low: f64,
    high: f64,
}

/// A comparison, and its treated arm.
struct One {
    name: String,
    locked: Comparison,
    arm: String,
}

pub fn scaling(args: &ScalingArgs) -> Outcome {
    let all = args.locks.iter().map(|path| read(path, args)).collect::<Result<Vec<_>, _>>()?;
    alike(&all)?;
    let results = all.iter().map(|one| size(one, args)).collect::<Result<Vec<_>, _>>()?;
    let (mut sizes, runs): (Vec<OneSize>, Vec<Vec<compare::ArmRun>>) = results.into_iter().unzip();
    sizes.sort_by(|a, b| a.at.total_cmp(&b.at));
    let name = |of: fn(&One) -> &str| -> String {
        let names: BTreeSet<&str> = all.iter().map(of).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    };
    let mut document = Document {
        schema: "canonc.scaling.v1",
        by: word(args.by),
        metric: metric(args.loss),
        label: compare::label(
            metric(args.loss),
            compare::training_overlap(
                metric(args.loss),
                runs.iter().flatten().filter_map(|run| run.shown.as_ref()),
            ),
        ),
        base: name(|one| &one.locked.base),
        treated: name(|one| &one.arm),
        controlled: sizes.iter().all(|size| size.design.is_controlled()),
        sizes,
        fit: None,
        compute_ratio: None,
        compute_saved: None,
        refused: None,
        warnings: nuisances(&all),
    };
    for size in document.sizes.iter().filter(|size| size.missing > 0) {
        document.warnings.push(format!(
            "Warning: {} of {} of {} are not finished; `canonc compare` on its lock trains them.",
            size.missing,
            dsl::counted(size.listed, "seed"),
            size.name
        ));
    }
    match fit(&document.sizes) {
        Ok((fit, factor)) => take(&mut document, &fit, factor),
        Err(why) => document.refused = Some(why),
    }
    match args.json {
        true => output::json(&document)?,
        false => output::data(&text(&document))?,
    }
    Ok(if document.fit.is_some() { Exit::Fine } else { Exit::Finding })
}

fn read(path: &Path, args: &ScalingArgs) -> Result<One, Failure> {
    let name = shown(path);
    let locked = workspace::read_comparison(path)?;
    let arms: Vec<&String> = locked.verdicts.keys().collect();
    let arm = match (&args.arm, arms.as_slice()) {
        (Some(wanted), _) if arms.contains(&wanted) => wanted.clone(),
        (Some(wanted), _) => {
            return Err(Failure::bad_input(format!("`{name}` has no treated arm `{wanted}`"))
                .help(format!("it has {}", list(&arms))));
        }
        (None, [only]) => (*only).clone(),
        (None, _) => {
            return Err(Failure::bad_input(format!("`{name}` has several treated arms"))
                .help(format!("name one with --arm: {}", list(&arms))));
        }
    };
    Ok(One { name, locked, arm })
}

fn list(names: &[&String]) -> String {
    names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Refuses comparisons with different treatments or data: their losses are not points of one curve.
fn alike(all: &[One]) -> Result<(), Failure> {
    let Some(first) = all.first() else { return Ok(()) };
    let treatment = |one: &One| one.locked.entries(&one.arm);
    for other in all {
        let (a, b) = (treatment(first), treatment(other));
        if a != b {
            return Err(Failure::bad_input(format!(
                "`{}` has the treatment {}, but `{}` {}",
                first.name,
                a.join(", "),
                other.name,
                b.join(", ")
            ))
            .help("name comparisons of one treatment at several sizes"));
        }
        for ((path, ours), (_, theirs)) in settings(first).iter().zip(&settings(other)) {
            if ours != theirs {
                return Err(Failure::bad_input(format!(
                    "the treatment differs between `{}` and `{}`: {path} is {ours} and {theirs}",
                    first.name, other.name
                ))
                .help("name comparisons of one treatment at several sizes"));
            }
        }
        for path in ["data.source", "data.task_digest", "data.digest", "data.seq_len", "data.ids"] {
            let [a, b] = [first, other].map(|one| value(base(one), path).unwrap_or_default());
            if a != b {
                return Err(Failure::bad_input(format!(
                    "`{}` has {path} = {a}, but `{}` {b}: their losses cannot be compared",
                    first.name, other.name
                ))
                .help("name comparisons on the same data"));
            }
        }
    }
    Ok(())
}

/// The slots that a comparison treats, with the settings of their fills in both arms: these do not follow from a size.
fn settings(one: &One) -> Vec<(String, String)> {
    let declared = one.locked.verdicts.get(&one.arm).map(|verdict| verdict.treatment.as_slice());
    let changes = declared.unwrap_or_default().iter().flat_map(|entry| &entry.changes);
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for change in changes {
        // Sizes have different numbers of layers.
        let Some((_, slot)) = change.path.split_once(".slots.") else { continue };
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
        let both = format!("{} -> {}", value(&change.a), value(&change.b));
        found.entry(format!("slots.{slot}")).or_default().insert(both);
    }
    let listed = |values: BTreeSet<String>| values.into_iter().collect::<Vec<_>>().join(", ");
    let all: String = found.keys().map(|path| path.as_str()).collect::<Vec<_>>().join(", ");
    std::iter::once(("the list of slots".to_owned(), all))
        .chain(found.into_iter().map(|(path, values)| (path, listed(values))))
        .collect()
}

/// Recipe fields that differ between sizes but do not measure size. The curves show their effect too.
fn nuisances(all: &[One]) -> Vec<String> {
    let Some(first) = all.first() else { return Vec::new() };
    let mut said = Vec::new();
    for def in TABLE.iter().filter(|def| def.origin == Origin::Free) {
        let decides = matches!(def.class, Class::Semantic | Class::Measured | Class::Platform);
        // A longer training is a size, too.
        if !decides || def.path.starts_with("budget.") {
            continue;
        }
        let of = |one: &One| value(base(one), def.path);
        if let Some(other) = all.iter().find(|one| of(one) != of(first)) {
            let [a, b] = [first, other].map(|one| of(one).unwrap_or_else(|| "absent".to_owned()));
            said.push(format!(
                "Warning: {} is {a} in {} and {b} in {}; the curves show both changes together.",
                def.path, first.locked.name, other.locked.name
            ));
        }
    }
    said
}

fn base(one: &One) -> Option<&Experiment> {
    let arm = one.locked.arms.iter().find(|arm| arm.name == one.locked.base);
    arm.map(|arm| &arm.experiment)
}

fn value(experiment: Option<&Experiment>, path: &str) -> Option<String> {
    experiment?.value(path).map(FieldValue::plain)
}

/// The finished runs of one comparison, paired by seed: their losses, and the runs themselves.
fn size(one: &One, args: &ScalingArgs) -> Result<(OneSize, Vec<compare::ArmRun>), Failure> {
    let One { name, locked, arm } = one;
    out::folder(&args.dir)?;
    let folder = out::named(&args.dir, &locked.name, "")?;
    let finished = FinishedRuns::under(&args.dir);
    let mut finished_runs: Vec<&ComparisonRun> = Vec::new();
    for run in locked.runs() {
        let run_folder = finished.folder(&folder, &run.experiment)?;
        let wanted = run.role == Role::Base || (run.role == Role::Treatment && run.arm == *arm);
        if wanted && Paths::new(&run_folder).is_attested()? {
            finished_runs.push(run);
        }
    }
    let mut known = compared(locked, &finished_runs, &folder, &finished)?;
    if args.loss == Which::Evaluation {
        overlap_counts::count(&finished_runs, &mut known, &folder, false)?;
    }
    let pairs: Vec<_> = known.pairs().into_iter().filter(|pair| pair.arm.name == *arm).collect();
    let (mut losses, mut runs) = (Vec::new(), Vec::new());
    // If the selection rule leaves several points, use none of them.
    if let [pair] = pairs.as_slice() {
        for base in pair.base_runs() {
            let treated = pair.arm_runs().iter().find(|run| run.seed == base.seed);
            let metric = metric(args.loss);
            let both = treated.and_then(|treated| {
                Some((base.curves.last(metric)?, treated.curves.last(metric)?))
            });
            if both.is_some() {
                runs.extend([Some(base), treated].into_iter().flatten().cloned());
            }
            losses.extend(both);
        }
    }
    if losses.is_empty() {
        return Err(Failure {
            exit: Exit::Finding,
            ..Failure::bad_input(format!(
                "`{name}` has no seed with {} of both arms at one point of its grid",
                match args.loss {
                    Which::Evaluation => "an evaluation loss",
                    Which::Training => "a training loss",
                }
            ))
        }
        .help(format!("`canonc compare {name}` trains its runs")));
    }
    let path = match args.by {
        By::Flops => "budget.flops",
        By::Parameters => "arch.parameters",
    };
    let of = |arm: &str| {
        let experiment = locked.arms.iter().find(|known| known.name == arm);
        let number = value(experiment.map(|arm| &arm.experiment), path);
        number.and_then(|number| number.parse::<f64>().ok()).ok_or_else(|| {
            Failure::bad_input(format!("`{name}` has no {path} for {arm}"))
                .help("build it again with this canonc")
        })
    };
    let (of_base, of_treated) = (of(&locked.base)?, of(arm)?);
    let diverged = pairs.iter().map(|pair| pair.diverged_seeds().without_difference()).sum();
    let size = OneSize {
        name: locked.name.clone(),
        lock: locked.id().to_string(),
        design: pairs.iter().map(|pair| pair.design()).max().unwrap_or(Design::NotControlled),
        at: of_base,
        treated_over_base: of_treated / of_base,
        base: losses.iter().map(|(base, _)| *base).collect(),
        treated: losses.iter().map(|(_, treated)| *treated).collect(),
        listed: locked.seeds.len(),
        diverged,
        missing: locked.seeds.len().saturating_sub(losses.len() + diverged),
    };
    Ok((size, runs))
}

/// The fit, and the ratio of the treated arm's size to the base's.
fn fit(sizes: &[OneSize]) -> Result<(Fit, f64), String> {
    let points: Vec<Size> = sizes
        .iter()
        .map(|size| Size { at: size.at, base: size.base.clone(), treated: size.treated.clone() })
        .collect();
    let fit = scaling::fit(&points, Confidence::NINETY_FIVE).map_err(|why| why.to_string())?;
    let factors = || sizes.iter().map(|size| size.treated_over_base);
    let (least, most) = (factors().fold(f64::INFINITY, f64::min), factors().fold(0.0, f64::max));
    if most / least > ONE_FACTOR {
        return Err(format!(
            "the treated arm has {least:.3} to {most:.3} times the size of the base; a single ratio needs the same \
             factor at all sizes, within {ONE_FACTOR}"
        ));
    }
    Ok((fit, factors().product::<f64>().powf(1.0 / sizes.len() as f64)))
}

/// Adds a fit to the document. Both curves are against the base's size; the treated arm's extra size reduces the gain.
fn take(document: &mut Document, fit: &Fit, factor: f64) {
    let Fit {
        model, base, treated, unit, sizes, runs, compute_ratio, low, high, at_loss, df, ..
    } = *fit;
    let [ratio, low, high] = [compute_ratio, low, high].map(|ratio| ratio / factor);
    let saved = |ratio: f64| 1.0 - 1.0 / ratio;
    document.fit = Some(OneFit { model, base, treated, unit, sizes, runs, at_loss, df });
    document.compute_ratio = Some(ComputeRatio {
        ratio,
        low,
        high,
        level: fit.confidence.share(),
        reaches_beyond_sizes: fit.reaches_beyond_sizes,
    });
    document.compute_saved =
        Some(Saved { share: saved(ratio), low: saved(low), high: saved(high) });
}

fn word(by: By) -> &'static str {
    match by {
        By::Flops => "flops",
        By::Parameters => "parameters",
    }
}

fn metric(which: Which) -> &'static str {
    match which {
        Which::Evaluation => compare::metric_name(EVAL_LOSS),
        Which::Training => "training loss",
    }
}

/// `9 of 12, 1 diverged`: pairs of seeds that the fit uses.
fn used(size: &OneSize) -> String {
    let count = size.base.len();
    let of = if count == size.listed { String::new() } else { format!(" of {}", size.listed) };
    let diverged =
        if size.diverged > 0 { format!(", {} diverged", size.diverged) } else { String::new() };
    format!("{count}{of}{diverged}")
}

fn text(document: &Document) -> String {
    let Document { by, label, base, treated, sizes, refused, warnings, .. } = document;
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len().max(1) as f64;
    let unit = match *by {
        "flops" => "training FLOPs",
        other => other,
    };
    let head = ["", unit, "treated / base", base, treated, "seeds"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for size in sizes {
        rows.push(vec![
            size.name.clone(),
            format!("{:.3e}", size.at),
            format!("×{:.3}", size.treated_over_base),
            format!("{:.4} nats", mean(&size.base)),
            format!("{:.4} nats", mean(&size.treated)),
            used(size),
        ]);
    }
    let mut said = output::table(&rows, &[false, true, true, true, true, true], 0);
    said.push_str(&format!("losses: {label}, means over seeds\n"));
    for warning in warnings {
        said.push_str(&format!("{warning}\n"));
    }
    for size in sizes.iter().filter(|size| size.diverged > 0) {
        said.push_str(&format!(
            "Warning: {} of {} pairs of {} diverged: the fit leaves the worst results out.\n",
            size.diverged, size.listed, size.name
        ));
    }
    let tuned = sizes.iter().filter(|size| size.design == Design::Tuned).count();
    if tuned > 0 {
        said.push_str(&format!(
            "Tuned at {tuned} of {} sizes: each arm is at its own best point of the grid, so the arms also differ in the \
             grid's fields, and both losses are better than they would be on other seeds.\n",
            sizes.len()
        ));
    }
    if sizes.iter().any(|size| size.design == Design::NotControlled) {
        said.push_str(
            "NOT CONTROLLED at every size: the gain cannot be attributed to the treatment.\n",
        );
    }
    if let Some(why) = refused {
        said.push_str(&format!("no compute ratio: {why}\n"));
    }
    if let (Some(fit), Some(ratio), Some(saved)) =
        (&document.fit, &document.compute_ratio, &document.compute_saved)
    {
        said.push_str(&fitted(fit, ratio, saved, label, base, treated));
    }
    said
}

fn fitted(
    fit: &OneFit,
    ratio: &ComputeRatio,
    saved: &Saved,
    label: &str,
    base: &str,
    treated: &str,
) -> String {
    let curve = |name: &str, curve: &Curve| {
        let Curve { floor, factor, exponent, exponent_error } = *curve;
        let floor = match fit.model {
            Model::PowerLaw => String::new(),
            Model::PowerLawWithFloor => format!("{floor:.4} + "),
        };
        format!(
            "{name}: {label} = {floor}{factor:.4} (C / {:.3e})^-{exponent:.4}, exponent ±{exponent_error:.4} (SE)\n",
            fit.unit
        )
    };
    let ComputeRatio { ratio: mean, low, high, level, reaches_beyond_sizes } = ratio;
    let percent = |share: f64| format!("{:.0}%", 100.0 * share);
    let beyond = match reaches_beyond_sizes {
        true => "The interval is wider than the range of sizes: read it as a bound.\n",
        false => "",
    };
    let word = match (*low > 1.0, *high < 1.0) {
        (true, _) => "saves compute",
        (_, true) => "costs compute",
        (false, false) => "undecided: the interval holds ×1",
    };
    format!(
        "{}{}compute ratio ×{mean:.3} ({} interval ×{low:.3} … ×{high:.3}): {base} needs this many times the compute \
         of {treated} for a loss of {:.4}\ncompute saved {} ({} … {}): {word}\n{beyond}",
        curve(base, &fit.base),
        curve(treated, &fit.treated),
        percent(*level),
        fit.at_loss,
        percent(saved.share),
        percent(saved.low),
        percent(saved.high),
    )
}
