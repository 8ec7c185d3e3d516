//! `canonc compare --time`: step times of the arms, measured in turn.
//!
//! The base takes part twice, and if it differs from itself by more than the bound, no interval is given.

use lab::comparison::{Comparison, ComparisonRun, Role};
use lab::lock::{self, Lock};
use records::job::Job;
use report::compare;
use report::statistics::ratio::{Ratio, Refused, base_against_itself, ratio};
use report::statistics::{Confidence, median};
use runtime::train::{alternate, machine};
use serde::Serialize;

use crate::environment::start_again;
use cli::commands::compare::CompareArgs;
use cli::fail::{Exit, Failure, Outcome};
use cli::{documents, output};

#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    /// The bound from --bound, or from the first lock.
    bound: f64,
    comparisons: Vec<One>,
}

#[derive(Debug, Serialize)]
struct One {
    name: String,
    lock: String,
    rounds: usize,
    /// The largest allowed ratio of the base to itself, and whether `lock` or `flag` sets it.
    bound: f64,
    bound_from: &'static str,
    base: String,
    /// Median seconds of a step.
    base_seconds: f64,
    /// A ratio of at least 1; null if it cannot be computed.
    base_against_itself: Option<f64>,
    arms: Vec<Arm>,
}

#[derive(Debug, Serialize)]
struct Arm {
    name: String,
    seconds: f64,
    /// Null if refused.
    ratio: Option<Ratio>,
    refused: Option<Refused>,
}

/// Steps of each arm per ratio: single steps vary more than their means.
const GROUP: usize = 4;

pub(crate) fn measure(args: &CompareArgs, locked: &[Comparison], rounds: usize) -> Outcome {
    if let Some(first) = locked.iter().find_map(|comparison| firsts(comparison).into_iter().next())
    {
        start_again(&first.experiment)?;
    }
    let comparisons = locked
        .iter()
        .map(|comparison| one(args, comparison, rounds))
        .collect::<Result<Vec<_>, _>>()?;
    let bound = args.bound.or(comparisons.first().map(|one| one.bound)).unwrap_or(compare::STEADY);
    let document = Document { schema: "canonc.step_times.v1", bound, comparisons };
    match args.json {
        true => output::json(&document)?,
        false => {
            for comparison in &document.comparisons {
                output::data(&text(comparison))?;
            }
        }
    }
    Ok(Exit::Fine)
}

/// The base and each treated arm, with the first seeds at the first point of the grid; the base first.
fn firsts(comparison: &Comparison) -> Vec<&ComparisonRun> {
    let is_first =
        |run: &&ComparisonRun| run.role != Role::Replicate && run.seed == 0 && run.point == 0;
    comparison.runs().into_iter().filter(is_first).collect()
}

fn one(args: &CompareArgs, comparison: &Comparison, rounds: usize) -> Result<One, Failure> {
    let mut arms = firsts(comparison);
    let Some(base) = arms.first().copied() else {
        return Err(Failure::bad_input("the comparison has no runs"));
    };
    let platform = base.experiment.digests.platform;
    if let Some(other) = arms.iter().find(|run| run.experiment.digests.platform != platform) {
        return Err(Failure::bad_input(format!(
            "`{}` and `{}` require different platforms, which one process cannot have",
            base.arm, other.arm
        ))
        .help("give their recipes the same [platform] to compare their times"));
    }
    // The base a second time, to measure how steady the machine is.
    arms.push(base);
    let mut jobs = Vec::new();
    for run in &arms {
        let text = lock::write(&Lock::Experiment(run.experiment.clone()));
        let documents = documents::read(&run.experiment, args.data.as_deref())?;
        jobs.push(Job::new(&run.experiment, &text, documents)?);
    }
    let on = machine(&base.experiment.platform)?;
    let times = alternate(&mut jobs, on, rounds)?;
    let of = |arm: usize| -> Vec<f64> {
        times.iter().filter_map(|round| round.get(arm).copied()).collect()
    };
    let (of_base, last) = (of(0), arms.len() - 1);
    let over_base = |arm: usize| -> Vec<f64> {
        let seconds = of(arm);
        let groups = seconds.chunks_exact(GROUP).zip(of_base.chunks_exact(GROUP));
        groups.map(|(arm, base)| arm.iter().sum::<f64>() / base.iter().sum::<f64>()).collect()
    };
    let itself = over_base(last);
    let declared = comparison.analysis.time_bound.to_f64();
    let bound = args.bound.unwrap_or(declared);
    let treated = arms.iter().enumerate().take(last).skip(1).map(|(at, run)| {
        let found = ratio(&over_base(at), &itself, bound, Confidence::NINETY_FIVE);
        let (ratio, refused) = match found {
            Ok(ratio) => (Some(ratio), None),
            Err(refused) => (None, Some(refused)),
        };
        Arm { name: run.arm.clone(), seconds: median(&of(at)), ratio, refused }
    });
    Ok(One {
        name: comparison.name.clone(),
        lock: comparison.id().to_string(),
        rounds,
        bound,
        bound_from: if args.bound.is_some() { "flag" } else { "lock" },
        base: base.arm.clone(),
        base_seconds: median(&of_base),
        base_against_itself: base_against_itself(&itself).ok(),
        arms: treated.collect(),
    })
}

fn text(one: &One) -> String {
    let One {
        name,
        base,
        base_seconds,
        base_against_itself,
        arms,
        rounds,
        lock: _,
        bound,
        bound_from,
    } = one;
    let from = match *bound_from {
        "flag" => " (by --bound, not by the lock)",
        _ => "",
    };
    let milliseconds = |seconds: f64| format!("{:.2} ms", 1000.0 * seconds);
    let head = ["", "step", "ratio", "95% interval"].map(str::to_owned).to_vec();
    let mut rows = vec![head, vec![base.clone(), milliseconds(*base_seconds)]];
    let mut notes = Vec::new();
    for Arm { name, seconds, ratio, refused } in arms {
        let mut row = vec![name.clone(), milliseconds(*seconds)];
        if let Some(Ratio { mean, low, high, .. }) = ratio {
            row.extend([format!("×{mean:.3}"), format!("×{low:.3} … ×{high:.3}")]);
        }
        notes.extend(refused.iter().map(|why| format!("{name}: no interval: {why}\n")));
        rows.push(row);
    }
    let itself = base_against_itself.map_or_else(|| "–".to_owned(), |r| format!("×{r:.3}"));
    format!(
        "{name}: {rounds} steps of each arm in turn\n{}base against itself {itself}, at most ×{bound} for an \
         interval{from}\n{}",
        output::table(&rows, &[false, true, true, true], 0),
        notes.concat()
    )
}
