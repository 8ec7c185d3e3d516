//! Loss curves of many runs, compared with each other.
//!
//! In: lines of run, position and loss; the experiments of the runs. Out: [`Curves`], and findings for an
//! audit: runs that read other batches than their siblings, and spikes. Must stay true: runs are compared only
//! if their keys say that they read the same batches, at the same positions; groups of fewer than
//! four give no finding; no threshold depends on a name.

mod fingerprint;
mod spikes;

use crate::statistics::median;
use std::collections::BTreeMap;

use lab::audit::{Findings, Occurrence, Scope, Subject};

pub use fingerprint::{Fingerprint, fingerprints};
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
    /// Parses `run,x,loss` below a header line; fields are separated by commas or tabs.
    pub fn parse(text: &str) -> Result<Curves, BadCurves> {
        let bad = |line: usize, message: String| {
            let help = "write a header line, then lines `model,tokens,loss`".to_owned();
            BadCurves { line, message, help }
        };
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let header = lines.next().map_or("", |(_, line)| line);
        let separator = if header.contains('\t') { '\t' } else { ',' };
        if header.split(separator).count() != 3 {
            let columns = header.split(separator).count();
            return Err(bad(1, format!("curves have three columns, but these have {columns}")));
        }
        let mut curves = Curves::default();
        for (line, cells) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let cells: Vec<&str> = cells.split(separator).map(str::trim).collect();
            let [run, x, loss] = cells.as_slice() else {
                return Err(bad(line, format!("3 columns, but cells in {} of them", cells.len())));
            };
            let number = |name: &str, cell: &str| match cell.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(number),
                Ok(_) | Err(_) => Err(bad(line, format!("the {name} of `{run}` is `{cell}`"))),
            };
            let (x, loss) = (number("place", x)?, number("loss", loss)?);
            let points = curves.0.entry((*run).to_owned()).or_default();
            if let Some((before, _)) = points.last().filter(|(before, _)| *before >= x) {
                return Err(bad(line, format!("`{run}` goes from {before} to {x}")));
            }
            points.push((x, loss));
        }
        Ok(curves)
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
    pub fn groups(&self, subjects: &[Subject]) -> Vec<Group<'_>> {
        let reads: BTreeMap<&str, String> =
            subjects.iter().map(|subject| (subject.name.as_str(), subject.reads())).collect();
        let mut groups: BTreeMap<(&str, Vec<u64>), Group<'_>> = BTreeMap::new();
        for (run, points) in &self.0 {
            let places = points.iter().map(|(x, _)| x.to_bits()).collect();
            let said = reads.get(run.as_str()).map_or("", String::as_str);
            let group = groups.entry((said, places)).or_insert_with(|| Group {
                places: points.iter().map(|(x, _)| *x).collect(),
                runs: Vec::new(),
            });
            group.runs.push((run, points.iter().map(|(_, loss)| *loss).collect()));
        }
        let large = |group: &Group<'_>| {
            group.runs.len() >= LEAST_GROUP && group.places.len() >= LEAST_POINTS
        };
        groups.into_values().filter(large).collect()
    }
}

/// Runs with the same positions, each with its losses.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// The positions, in the file's unit of progress.
    pub places: Vec<f64>,
    /// Each run's name, and its losses at these positions.
    pub runs: Vec<(&'a str, Vec<f64>)>,
}

/// Adds the findings of the curves to an audit.
pub fn findings(curves: &Curves, subjects: &[Subject], found: &mut Findings) {
    for group in curves.groups(subjects) {
        for print in fingerprints(&group) {
            if print.is_other() {
                let Fingerprint { run, jitter, usual, elevated, windows, from, to } = &print;
                let message = "paired jitter of another order of batches".to_owned();
                let says = format!(
                    "{jitter:.6}, where the median of {} is {usual:.6} (a factor of {:.1}); {} of {windows} windows, {from:.0} to {to:.0}",
                    group.runs.len(),
                    print.ratio(),
                    elevated.len(),
                );
                found.add("data-order", Scope::Run, "curve", message, place(run, says));
            }
        }
        let mut events: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for Spike { run, from, to, excess } in spikes(&group) {
            let at =
                if from == to { format!("{from:.1}") } else { format!("{from:.1} to {to:.1}") };
            events.entry(run).or_default().push(format!("{at} +{excess:.3}"));
        }
        for (run, events) in events {
            let message = format!("differs from its siblings by more than {SPIKE}");
            found.add("loss-spike", Scope::Set, "curve", message, place(run, events.join("; ")));
        }
    }
}

fn place(run: &str, says: String) -> Occurrence {
    Occurrence { experiment: run.to_owned(), against: None, says }
}

/// Values minus their running median over `width` neighbours.
fn residual(values: &[f64], width: usize) -> Vec<f64> {
    let half = width / 2;
    let one = |(at, value): (usize, &f64)| {
        let around = at.saturating_sub(half)..(at + half + 1).min(values.len());
        value - median(values.get(around).unwrap_or(&[]))
    };
    values.iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_no_curves() {
        for (text, line, want) in [
            ("", 1, "these have 1"),
            ("model,x\n", 1, "these have 2"),
            ("model,x,loss\na,1\n", 2, "cells in 2 of them"),
            ("model,x,loss\na,1,nan\n", 2, "the loss of `a` is `nan`"),
            ("model,x,loss\na,one,2\n", 2, "the place of `a` is `one`"),
            ("model,x,loss\na,2,2\na,1,2\n", 3, "`a` goes from 2 to 1"),
        ] {
            let bad = Curves::parse(text).unwrap_err();
            assert_eq!(bad.line, line, "{text}");
            assert!(bad.message.contains(want), "{}", bad.message);
        }
        let mut curves = Curves::parse("model\tx\tloss\na\t1\t2\n").unwrap();
        assert!(curves.extend(curves.clone()).unwrap_err().contains("two curves of `a`"));
    }
}
