//! Which runs of a comparison are due, and what was decided after each seed.
//!
//! In: a locked comparison and its runs so far. Out: the runs to carry out, in their keyed order, and the looks of a
//! sequential rule. Must stay true: without such a rule all runs are due; with one, the runs of the next seed are due
//! until every treated arm is decided; looks are computed from the runs alone, so they come out the same again.

use std::path::Path;

use compiler::lock::{Comparison, Run, Stop};
use records::run::Paths;
use report::compare::{self, Unit};
use report::statistics::sequential::{Decision, Look, Rule};
use report::statistics::{Confidence, Margin};
use serde::Serialize;

use crate::compared::compared;
use crate::fail::Failure;
use crate::found::Found;

/// A look at one arm after a seed.
#[derive(Clone, Debug, Serialize)]
pub struct Looked {
    pub arm: String,
    pub metric: String,
    #[serde(flatten)]
    pub look: Look,
}

/// The keys of a line of looks, in order.
pub const KEYS: &[&str] =
    &["arm", "metric", "n", "mean", "e", "p", "interval", "undefined", "decision"];

/// The runs that are due, and the looks so far.
pub fn due<'c>(
    comparison: &'c Comparison,
    folder: &Path,
    found: &Found,
) -> Result<(Vec<&'c Run>, Vec<Looked>), Failure> {
    let all = comparison.run_order();
    let Stop::Sequential { max_seeds } = comparison.analysis.stop else {
        return Ok((all, Vec::new()));
    };
    let mut looks = Vec::new();
    for seeds in 1..=max_seeds {
        let so_far: Vec<&Run> = all.iter().copied().filter(|run| run.seed < seeds).collect();
        for run in &so_far {
            let place = found.place(folder, &run.experiment)?;
            if !Paths::new(&place).attestation().exists() {
                return Ok((so_far, looks));
            }
        }
        let ordered = in_lock_order(comparison, &so_far);
        let known = compared(comparison, &ordered, folder, found)?;
        let after = look(comparison, &known, seeds, max_seeds)?;
        let decided = after.iter().all(|looked| looked.look.decision != Decision::Continue);
        looks.extend(after);
        if decided {
            return Ok((so_far, looks));
        }
    }
    Ok((all.into_iter().filter(|run| run.seed < max_seeds).collect(), looks))
}

/// Runs in the order of the lock, in which tables and pages have them.
pub fn in_lock_order<'c>(comparison: &'c Comparison, runs: &[&Run]) -> Vec<&'c Run> {
    let is_there = |run: &&Run| runs.iter().any(|r| r.experiment.name == run.experiment.name);
    comparison.runs().into_iter().filter(is_there).collect()
}

/// Every treated arm after so many seeds, each tested at its share of the level.
fn look(
    comparison: &Comparison,
    known: &compare::Comparison,
    seeds: usize,
    max_seeds: usize,
) -> Result<Vec<Looked>, Failure> {
    let analysis = &comparison.analysis;
    let metric = compare::called(&analysis.primary);
    let pairs = known.pairs();
    let tests = pairs.len() * analysis.family.len();
    let level = Confidence::new(1.0 - analysis.level.to_f64())
        .ok_or_else(|| Failure::bad_input("the level of [analysis] is not below 0.5"))?;
    let margin = analysis.margin.and_then(|margin| Margin::new(margin.to_f64()));
    let rule = Rule { margin, ..Rule::new(level.of_each(tests), max_seeds) };
    let mut looked = Vec::new();
    for pair in pairs {
        let row = pair.row(metric).filter(|row| row.unit != Unit::Seconds);
        let differences = row.map_or_else(Vec::new, |row| row.paired);
        // A seed that diverged has no difference, and leaving the worst results out would make the rule invalid.
        let whole = differences.len() == seeds;
        let last = if whole { rule.last(&differences) } else { None };
        let decision = if seeds == max_seeds { Decision::Exhausted } else { Decision::Continue };
        let none = Look {
            n: differences.len(),
            mean: None,
            e: None,
            p: None,
            interval: None,
            undefined: None,
            decision,
        };
        let look = last.unwrap_or(none);
        looked.push(Looked { arm: pair.arm.name.clone(), metric: metric.to_owned(), look });
    }
    Ok(looked)
}

/// Each decisive look, in a sentence.
pub fn said(looks: &[Looked]) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |v| format!("{v:.4}"));
    let one = |looked: &Looked| {
        let Looked { arm, metric, look } = looked;
        let what = match look.decision {
            Decision::Continue => return None,
            Decision::Differs => "the arms differ",
            Decision::Equivalent => "the arms are equivalent within the margin",
            Decision::Exhausted => "nothing is decided, and no seeds are left",
        };
        let interval = look.interval.map_or_else(
            || "no interval yet".to_owned(),
            |(low, high)| format!("{low:+.4} … {high:+.4}, valid at every look"),
        );
        Some(format!(
            "{arm}: after {} seeds {what}: {metric} {} ({interval}; p {})",
            look.n,
            number(look.mean),
            number(look.p)
        ))
    };
    looks.iter().filter_map(one).collect()
}
