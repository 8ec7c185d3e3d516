//! Loss curves of many runs, compared with each other: runs that read other batches than their siblings, and spikes.
//!
//! Runs are compared only if their keys say that they read the same batches, at the same positions. Groups of fewer than four
//! give no finding.

mod siblings;
mod fingerprint;
mod spikes;

use std::collections::BTreeMap;

use crate::finding::{Findings, Occurrence, Scope};
use crate::subject::Subject;

pub use fingerprint::{Fingerprint, fingerprints};
pub use siblings::SiblingRuns;
pub use spikes::{SPIKE, Spike, spikes};

/// One run's points, in order of position.
pub type Points = Vec<(f64, f64)>;

/// Curves by run name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves(BTreeMap<String, Points>);

/// An error in a file of curves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadCurves {
    /// Line number, starting at 1.
    pub line: usize,
    /// What is wrong, in one sentence.
    pub message: String,
    /// What to do next.
    pub help: String,
}

/// Fewest runs of a group.
const LEAST_GROUP: usize = 4;
/// Fewest points of a curve in a group.
const LEAST_POINTS: usize = 60;

impl Curves {
    /// Parses lines `run,step,loss` below a header, or a chart: a column of steps, then one for each run. Fields are
    /// separated by commas, semicolons or tabs.
    pub fn parse(text: &str) -> Result<Curves, BadCurves> {
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let header = lines.next().map_or("", |(_, line)| line);
        let separator = ['\t', ';'].into_iter().find(|c| header.contains(*c)).unwrap_or(',');
        let columns = cells(header, separator);
        let rows = lines.filter(|(_, line)| !line.trim().is_empty());
        let rows: Vec<(usize, Vec<String>)> =
            rows.map(|(line, text)| (line, cells(text, separator))).collect();
        let Some(step) = columns.iter().position(|column| is_step(column)) else {
            let message = match columns.iter().any(|column| is_run(column)) {
                true => format!("no column gives the step; the columns are {}", columns.join(", ")),
                false => format!(
                    "no column gives the run or the step; the columns are {}",
                    columns.join(", ")
                ),
            };
            return Err(bad(1, message));
        };
        match columns.iter().any(|column| is_run(column)) {
            true if columns.len() == 3 => long(&columns, step, &rows),
            true => {
                let message =
                    format!("curves have three columns, but these have {}", columns.len());
                Err(bad(1, message))
            }
            false => chart(&columns, step, &rows),
        }
    }

    /// The names of the runs.
    pub fn runs(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Adds a point of a run. Steps must grow.
    fn push(&mut self, line: usize, run: &str, x: &str, loss: &str) -> Result<(), BadCurves> {
        let number = |name: &str, cell: &str| match cell.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            Ok(_) | Err(_) => Err(bad(line, format!("the {name} of `{run}` is `{cell}`"))),
        };
        let (x, loss) = (number("step", x)?, number("loss", loss)?);
        let points = self.0.entry(run.to_owned()).or_default();
        if let Some((before, _)) = points.last().filter(|(before, _)| *before >= x) {
            return Err(bad(line, format!("`{run}` goes from {before} to {x}")));
        }
        points.push((x, loss));
        Ok(())
    }

    /// Adds the curves of other runs.
    pub fn extend(&mut self, other: Curves) -> Result<(), String> {
        for (run, points) in other.0 {
            if self.0.contains_key(&run) {
                return Err(format!("there are two curves of `{run}`"));
            }
            self.0.insert(run, points);
        }
        Ok(())
    }

    /// The curve of a run.
    pub fn get(&self, run: &str) -> Option<&Points> {
        self.0.get(run)
    }

    /// Replaces the curve of a run.
    pub fn set(&mut self, run: &str, points: Points) {
        self.0.insert(run.to_owned(), points);
    }

    /// Groups of runs with the same declared batches and the same positions; small groups are left out.
    pub fn groups(&self, subjects: &[Subject]) -> Vec<SiblingRuns<'_>> {
        let reads: BTreeMap<&str, String> =
            subjects.iter().map(|subject| (subject.name.as_str(), subject.reads())).collect();
        let mut groups: BTreeMap<(&str, Vec<u64>), SiblingRuns<'_>> = BTreeMap::new();
        for (run, points) in &self.0 {
            let positions = points.iter().map(|(x, _)| x.to_bits()).collect();
            let data = reads.get(run.as_str()).map_or("", String::as_str);
            let group = groups.entry((data, positions)).or_insert_with(|| SiblingRuns {
                positions: points.iter().map(|(x, _)| *x).collect(),
                runs: Vec::new(),
            });
            group.runs.push((run, points.iter().map(|(_, loss)| *loss).collect()));
        }
        let large = |group: &SiblingRuns<'_>| {
            group.runs.len() >= LEAST_GROUP && group.positions.len() >= LEAST_POINTS
        };
        groups.into_values().filter(large).collect()
    }
}

fn bad(line: usize, message: String) -> BadCurves {
    let help = "write a header line `model,step,loss` and lines below it, or a column `step` and one for each run";
    BadCurves { line, message, help: help.to_owned() }
}

/// The cells of a line, without quotation marks around them.
fn cells(line: &str, separator: char) -> Vec<String> {
    let plain = |cell: &str| cell.trim().trim_matches('"').trim().to_owned();
    line.split(separator).map(plain).collect()
}

/// Whether a column gives the position in the training.
fn is_step(column: &str) -> bool {
    const STEPS: [&str; 14] = [
        "_step",
        "epoch",
        "examples",
        "global_step",
        "iter",
        "iteration",
        "iterations",
        "samples",
        "step",
        "steps",
        "tokens",
        "tokens_b",
        "train/global_step",
        "x",
    ];
    STEPS.contains(&column.to_lowercase().replace(' ', "_").as_str())
}

/// Whether a column names the run.
fn is_run(column: &str) -> bool {
    ["experiment", "model", "name", "run", "run_name"].contains(&column.to_lowercase().as_str())
}

/// One point a line.
fn long(
    columns: &[String],
    step: usize,
    rows: &[(usize, Vec<String>)],
) -> Result<Curves, BadCurves> {
    let run = columns.iter().position(|column| is_run(column));
    let loss = (0..columns.len()).find(|at| *at != step && Some(*at) != run);
    let mut curves = Curves::default();
    for (line, cells) in rows {
        if cells.len() != 3 {
            return Err(bad(*line, format!("3 columns, but cells in {} of them", cells.len())));
        }
        let cell = |at: Option<usize>| at.and_then(|at| cells.get(at)).map_or("", String::as_str);
        curves.push(*line, cell(run), cell(Some(step)), cell(loss))?;
    }
    Ok(curves)
}

/// A chart: a column for each run. W&B adds the metric to a run's name, and columns `__MIN` and `__MAX`.
fn chart(
    columns: &[String],
    step: usize,
    rows: &[(usize, Vec<String>)],
) -> Result<Curves, BadCurves> {
    let mut curves = Curves::default();
    for (line, cells) in rows {
        if cells.len() != columns.len() {
            let message = format!(
                "{} columns, but {} in this line",
                columns.len(),
                dsl::counted(cells.len(), "cell")
            );
            return Err(bad(*line, message));
        }
        let x = cells.get(step).map_or("", String::as_str);
        let drawn = columns.iter().zip(cells).enumerate().filter(|(at, (column, cell))| {
            let range = column.ends_with("__MIN") || column.ends_with("__MAX");
            *at != step && !range && !cell.is_empty() && !column.ends_with("_step")
        });
        for (_, (column, cell)) in drawn {
            let run = column.rsplit_once(" - ").map_or(column.as_str(), |(run, _)| run);
            curves.push(*line, run, x, cell)?;
        }
    }
    match curves.0.is_empty() {
        true => Err(bad(1, "no column gives a loss".to_owned())),
        false => Ok(curves),
    }
}

/// Adds the findings of the curves to an audit.
pub fn findings(curves: &Curves, subjects: &[Subject], findings: &mut Findings) {
    for group in curves.groups(subjects) {
        for print in fingerprints(&group).iter().filter(|print| print.is_other()) {
            let message = "paired jitter of another order of batches".to_owned();
            let occurrence = Occurrence::in_experiment(print.run, print.text(group.runs.len()));
            findings.add("data-order", Scope::Run, "curve", message, occurrence);
        }
        let mut events: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for Spike { run, from, to, excess } in spikes(&group) {
            let at =
                if from == to { format!("{from:.1}") } else { format!("{from:.1} to {to:.1}") };
            events.entry(run).or_default().push(format!("{at} +{excess:.3}"));
        }
        for (run, events) in events {
            let message = format!("differs from its siblings by more than {SPIKE}");
            let occurrence = Occurrence::in_experiment(run, events.join("; "));
            findings.add("loss-spike", Scope::Set, "curve", message, occurrence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_no_curves_are_refused() {
        for (text, line, want) in [
            ("", 1, "no column gives the run or the step"),
            ("model,x\n", 1, "these have 2"),
            ("model,time,loss\n", 1, "no column gives the step"),
            ("step,a\n1,2\n2\n", 3, "2 columns, but 1 cell in this line"),
            ("step\n1\n", 1, "no column gives a loss"),
            ("model,x,loss\na,1\n", 2, "cells in 2 of them"),
            ("model,x,loss\na,1,nan\n", 2, "the loss of `a` is `nan`"),
            ("model,x,loss\na,one,2\n", 2, "the step of `a` is `one`"),
            ("model,x,loss\na,2,2\na,1,2\n", 3, "`a` goes from 2 to 1"),
        ] {
            let bad = Curves::parse(text).unwrap_err();
            assert_eq!(bad.line, line, "{text}");
            assert!(bad.message.contains(want), "{}", bad.message);
        }
        let chart = "\"Step\",\"a - loss\",\"a - loss__MIN\",\"b - loss\"\n1,2,0,3\n2,1,0,\n";
        let chart = Curves::parse(chart).unwrap();
        assert_eq!(chart.runs().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(chart.get("a"), Some(&vec![(1.0, 2.0), (2.0, 1.0)]));
        let mut curves = Curves::parse("model\tx\tloss\na\t1\t2\n").unwrap();
        assert!(curves.extend(curves.clone()).unwrap_err().contains("two curves of `a`"));
    }
}
