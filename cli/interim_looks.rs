//! Interim looks at a comparison: which runs are due, and the decisions after each seed.
//!
//! Without a stopping rule all runs are due; with one, the runs of the next seed are due until every treated arm is
//! decided. A recorded look is never replaced.

use std::path::{Path, PathBuf};

use lab::comparison::{Comparison, ComparisonRun, Stop};
use records::run::Paths;
use report::compare::{self, ArmLook};
use report::statistics::Confidence;
use report::statistics::sequential::{Decision, StoppingRule};
use serde::Serialize;

use crate::compared::compared;
use crate::fail::{Failure, shown};
use crate::finished_runs::FinishedRuns;
use crate::out::{self, OutputKind};

/// The keys of a line of looks, in order.
pub const KEYS: &[&str] =
    &["lock", "arm", "metric", "n", "mean", "e", "p", "interval", "undefined", "decision"];

/// Tests of the comparison's family: one for each treated arm and metric.
fn tests(comparison: &Comparison) -> usize {
    comparison.verdicts.len() * comparison.analysis.family.len()
}

/// With a stopping rule, the seeds before which it cannot decide, at its level of each test.
pub fn fewest(comparison: &Comparison) -> Option<usize> {
    let level = Confidence::new(1.0 - comparison.analysis.level.to_f64())?;
    match comparison.analysis.stop {
        Stop::Fixed => None,
        Stop::Sequential { .. } => {
            Some(StoppingRule::new(level.of_each(tests(comparison)), MOST).fewest())
        }
    }
}

/// Where the search for the fewest seeds ends.
const MOST: usize = 10_000;

/// Refuses a stopping rule that ends before it can decide.
pub fn can_decide(comparison: &Comparison) -> Result<(), Failure> {
    let (Stop::Sequential { max_seeds }, Some(fewest)) =
        (comparison.analysis.stop, fewest(comparison))
    else {
        return Ok(());
    };
    if max_seeds >= fewest {
        return Ok(());
    }
    Err(Failure::bad_input(format!(
        "the stopping rule of `{}` ends after {}, and at its level ({} for {}) it cannot decide before {fewest}",
        comparison.name,
        dsl::counted(max_seeds, "seed"),
        comparison.analysis.level,
        dsl::counted(tests(comparison), "test")
    ))
    .help(format!("list at least {fewest} seeds, and raise max_seeds in [analysis] if it is set")))
}

/// The runs that are due, and the looks so far.
pub fn due<'c>(
    comparison: &'c Comparison,
    folder: &Path,
    finished: &FinishedRuns,
) -> Result<(Vec<&'c ComparisonRun>, Vec<ArmLook>), Failure> {
    let all = comparison.run_order();
    let Stop::Sequential { max_seeds } = comparison.analysis.stop else {
        return Ok((all, Vec::new()));
    };
    let mut looks = Vec::new();
    for seeds in 1..=max_seeds {
        let so_far: Vec<&ComparisonRun> =
            all.iter().copied().filter(|run| run.seed < seeds).collect();
        for run in &so_far {
            let place = finished.folder(folder, &run.experiment)?;
            if !Paths::new(&place).is_attested()? {
                return Ok((so_far, looks));
            }
        }
        let ordered = in_lock_order(comparison, &so_far);
        let known = compared(comparison, &ordered, folder, finished)?;
        let after = known.looks(seeds);
        let decided = after.iter().all(|looked| looked.look.decision != Decision::Continue);
        looks.extend(after);
        if decided {
            return Ok((so_far, looks));
        }
    }
    Ok((all.into_iter().filter(|run| run.seed < max_seeds).collect(), looks))
}

/// Runs in the order of the lock, which tables and pages use.
pub fn in_lock_order<'c>(
    comparison: &'c Comparison,
    runs: &[&ComparisonRun],
) -> Vec<&'c ComparisonRun> {
    let is_there =
        |run: &&ComparisonRun| runs.iter().any(|r| r.experiment.name == run.experiment.name);
    comparison.runs().into_iter().filter(is_there).collect()
}

/// A line of the file of looks.
#[derive(Serialize)]
struct Line<'a> {
    /// The id of the comparison's lock.
    lock: &'a str,
    #[serde(flatten)]
    looked: &'a ArmLook,
}

fn lines(comparison: &Comparison, looks: &[ArmLook]) -> Result<Vec<String>, Failure> {
    let lock = comparison.id().to_string();
    let line = |looked: &ArmLook| {
        serde_json::to_string(&Line { lock: &lock, looked })
            .map_err(|error| Failure::machine(format!("a look cannot be written: {error}")))
    };
    looks.iter().map(line).collect()
}

fn path(folder: &Path) -> PathBuf {
    folder.join(compare::LOOKS)
}

/// Recorded lines: those of this lock, and those of other locks.
fn recorded(comparison: &Comparison, path: &Path) -> Result<(Vec<String>, Vec<String>), Failure> {
    let text = match disk::read_text(path, disk::SMALL) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Failure::cannot_read(path, &error)),
    };
    let own = format!("{{\"lock\":\"{}\",", comparison.id());
    Ok(text.lines().map(str::to_owned).partition(|line| line.starts_with(&own)))
}

/// Checks that the runs reproduce the recorded looks: a look cannot be taken twice.
pub fn check(comparison: &Comparison, folder: &Path, looks: &[ArmLook]) -> Result<(), Failure> {
    let (own, _) = recorded(comparison, &path(folder))?;
    let lines = lines(comparison, looks)?;
    let differs = own.iter().zip(&lines).find(|(recorded, now)| recorded != now);
    let Some((recorded, now)) = differs else { return Ok(()) };
    let message = format!(
        "a recorded look does not match the runs: recorded is {recorded}, but the runs now give {now}"
    );
    Err(Failure::finding(message)
        .at(shown(&path(folder)))
        .help("a run was replaced after the look; `canonc verify` on each run's folder shows which")
        .help("to start over, build a comparison with another name and other seeds"))
}

/// Records the decisions after each seed, one object per line. Earlier records stay, also those of an earlier lock.
pub fn record(comparison: &Comparison, folder: &Path, looks: &[ArmLook]) -> Result<(), Failure> {
    if looks.is_empty() {
        return Ok(());
    }
    check(comparison, folder, looks)?;
    let (own, mut all) = recorded(comparison, &path(folder))?;
    let lines = lines(comparison, looks)?;
    if own.len() >= lines.len() {
        return Ok(());
    }
    all.extend(lines);
    out::put(&path(folder), OutputKind::Lines(KEYS), format!("{}\n", all.join("\n")))
}

/// The keys of a line of shown results, in order.
const REPORTED_KEYS: &[&str] = &["lock", "runs"];

/// A line of the file of shown results.
#[derive(Serialize)]
struct Reported {
    lock: String,
    runs: Vec<String>,
}

/// Records that the results of these runs were shown under this lock, so that seeds added later are marked.
pub fn reported(
    comparison: &Comparison,
    folder: &Path,
    runs: &[&ComparisonRun],
) -> Result<(), Failure> {
    let path = folder.join(compare::REPORTED);
    let (own, mut lines) = recorded(comparison, &path)?;
    if !own.is_empty() {
        return Ok(());
    }
    let lock = comparison.id().to_string();
    let runs = runs.iter().map(|run| run.experiment.id().to_string()).collect();
    let line = serde_json::to_string(&Reported { lock, runs })
        .map_err(|error| Failure::machine(format!("a report cannot be recorded: {error}")))?;
    lines.push(line);
    out::put(&path, OutputKind::Lines(REPORTED_KEYS), format!("{}\n", lines.join("\n")))
}

/// One sentence for each decisive look.
pub fn said(looks: &[ArmLook]) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |v| format!("{v:.4}"));
    let one = |looked: &ArmLook| {
        let ArmLook { arm, metric, look } = looked;
        let what = match look.decision {
            Decision::Continue => return None,
            Decision::Differs => "the arms differ",
            Decision::Equivalent => "the arms are equivalent within the margin",
            Decision::Exhausted => "nothing is decided, and no seeds remain",
        };
        let interval = look.interval.map_or_else(
            || "no interval yet".to_owned(),
            |(low, high)| format!("{low:+.4} … {high:+.4}, valid at every look"),
        );
        Some(format!(
            "{arm}: after {} {what}: {metric} {} ({interval}; p {})",
            dsl::counted(look.n, "seed"),
            number(look.mean),
            number(look.p)
        ))
    };
    looks.iter().filter_map(one).collect()
}
