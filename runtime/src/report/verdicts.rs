//! What two runs of a page differ in, judged when the page is made.
//!
//! In: runs with their locks. Out: for each two of them the verdict that `canonc diff` would give, with every
//! difference in its group, and where their batches part. Must stay true: the page judges nothing itself; runs of
//! one comparison are judged by its declared treatment, others by Canon layers where one has them and the other not;
//! of more runs than can be judged in a moment none is guessed.

use std::collections::BTreeMap;

use compiler::compare::{Change, Meaning, Namesake, Outcome, Side, Verdict, controlled};
use compiler::lock::Role;
use serde_json::{Value, json};

use super::run::{Run, first_other_batch};
use super::{Paired, Report};

/// Pairs that are judged; 24 runs have 276.
const MOST_PAIRS: usize = 300;

/// Verdicts by the numbers of two runs, the first being the one that is treated less.
pub(super) struct Judged {
    verdicts: BTreeMap<(usize, usize), Verdict>,
    batches: BTreeMap<(usize, usize), Option<u64>>,
}

/// Judges each two runs of a report.
pub(super) fn judge(report: &Report) -> Judged {
    let runs = report.runs();
    let mut judged = Judged { verdicts: BTreeMap::new(), batches: BTreeMap::new() };
    if runs.len() * runs.len().saturating_sub(1) / 2 > MOST_PAIRS {
        return judged;
    }
    let part_of = part_numbers(report);
    for (i, a) in runs.iter().enumerate() {
        for (j, b) in runs.iter().enumerate().skip(i + 1) {
            // The base, or what has no Canon layers, comes first.
            let swap = a.role != Some(Role::Base) && b.role == Some(Role::Base)
                || a.role.is_none() && canon(a) > canon(b);
            let (at, first, second) = if swap { ((j, i), b, a) } else { ((i, j), a, b) };
            judged.batches.insert(at, first_other_batch(&first.logged, &second.logged));
            let part = match (part_of.get(i), part_of.get(j)) {
                (Some(Some(p)), Some(Some(q))) if p == q => report.parts.get(*p),
                _ => None,
            };
            let treatment = match part {
                Some(part) => {
                    let of = |run: &Run| {
                        part.treatment.get(&run.arm).filter(|_| first.arm != second.arm)
                    };
                    of(second).or_else(|| of(first)).cloned().unwrap_or_default()
                }
                None if (canon(first) == 0) != (canon(second) == 0) => vec!["canon".to_owned()],
                None => Vec::new(),
            };
            let sides = [first, second].map(|run| Side::arm(&run.name, &run.experiment));
            let [left, right] = &sides;
            // A treatment on which the two agree says nothing about them.
            let verdict =
                controlled(left, right, &treatment).or_else(|_| controlled(left, right, &[]));
            if let Ok(verdict) = verdict {
                judged.verdicts.insert(at, verdict);
            }
        }
    }
    judged
}

/// For each run the number of its part.
fn part_numbers(report: &Report) -> Vec<Option<usize>> {
    let of_parts = report.parts.iter().enumerate();
    let of_parts = of_parts.flat_map(|(p, part)| part.runs.iter().map(move |_| Some(p)));
    of_parts.chain(report.alone.iter().map(|_| None)).collect()
}

/// Parameters in the fills of slots.
fn canon(run: &Run) -> u64 {
    let found = run.experiment.value("arch.canon_parameters");
    found.and_then(|count| count.plain().parse().ok()).unwrap_or(0)
}

impl Judged {
    /// Of runs by themselves those that differ in Canon layers and nothing else, seeds included; `first` is the
    /// number of the first of them.
    pub(super) fn twins(&self, alone: &[Run], first: usize) -> Vec<Paired> {
        let mut pairs: BTreeMap<String, Paired> = BTreeMap::new();
        for ((a, b), verdict) in &self.verdicts {
            let (Some(base), Some(treated)) = (
                a.checked_sub(first).and_then(|a| alone.get(a)),
                b.checked_sub(first).and_then(|b| alone.get(b)),
            ) else {
                continue;
            };
            let by_canon = verdict.treatment.iter().any(|declared| declared.entry == "canon");
            if verdict.outcome != Outcome::Controlled || !by_canon {
                continue;
            }
            let title = format!("{} against {}", treated.arm, base.arm);
            let finals =
                [base, treated].map(|run| run.logged.curves.last(crate::compare::TRAINING_LOSS));
            let pair = pairs.entry(title.clone()).or_insert(Paired {
                title,
                lines: Vec::new(),
                again: Vec::new(),
                finals: Vec::new(),
                band: None,
            });
            pair.lines.push((*b, *a));
            if let [Some(base), Some(treated)] = finals {
                pair.finals.push(treated - base);
            }
        }
        pairs.into_values().collect()
    }

    /// As the page's script reads it.
    pub(super) fn json(&self) -> Value {
        let all = self.batches.iter().map(|((a, b), other)| {
            let verdict = self.verdicts.get(&(*a, *b));
            json!({
                "a": a,
                "b": b,
                "other_batch": other,
                "headline": verdict.map(Verdict::headline),
                "controlled": verdict.map(Verdict::is_controlled),
                "differs": verdict.map(differences).unwrap_or_default(),
            })
        });
        Value::Array(all.collect())
    }
}

/// Group, path, both values, and what else there is to say.
fn differences(verdict: &Verdict) -> Vec<Value> {
    let treatment = verdict.treatment.iter().flat_map(|declared| &declared.changes);
    let groups: [(&str, Vec<&Change>); 5] = [
        ("treatment", treatment.collect()),
        ("confound", verdict.confounds.iter().collect()),
        ("consequence", verdict.consequences.iter().collect()),
        ("platform", verdict.platform.iter().collect()),
        ("cosmetic", verdict.cosmetic.iter().collect()),
    ];
    let row = |group: &str, change: &Change| {
        let Change { path, subject: _, a, b, defaults: _, places: _, note } = change;
        json!([group, path, a, b, note])
    };
    let changes = groups
        .into_iter()
        .flat_map(|(group, changes)| changes.into_iter().map(move |change| row(group, change)));
    let names = verdict.names.iter().map(|Namesake { name, meanings: [a, b] }| {
        let [a, b] = [a, b].map(|meaning| meaning.as_ref().map(Meaning::to_string));
        json!(["name", name, a, b, ""])
    });
    changes.chain(names).collect()
}
