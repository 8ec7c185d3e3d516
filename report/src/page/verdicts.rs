//! The differences between two runs of a page, judged when the page is made.
//!
//! In: runs with their locks. Out: for two of them the verdict of `canonc diff`, with every difference in
//! its group, and the first different batch. Must stay true: the page itself judges nothing; runs of one comparison are
//! judged by its declared treatment, others by Canon layers if only one has them; declared pairs are
//! always judged, whatever the number of runs, and each pair is marked as declared or not.

use std::collections::{BTreeMap, BTreeSet};

use lab::comparison::Role;
use lab::verdict::{Change, Meaning, Namesake, Outcome, Side, Trainer, Verdict, controlled};
use serde_json::{Value, json};

use super::run::{Run, first_other_batch};
use super::{Paired, Report};
use crate::compare::Design;

/// Up to this many pairs, all are judged; beyond it, only declared ones. 24 runs have 276 pairs.
const MOST_PAIRS: usize = 300;

/// Verdicts by the numbers of two runs, the less treated one first.
pub(super) struct Judged {
    verdicts: BTreeMap<(usize, usize), Verdict>,
    batches: BTreeMap<(usize, usize), Option<u64>>,
    declared: BTreeSet<(usize, usize)>,
    /// What the declared pairs of base and treated run show, and in words.
    designs: BTreeMap<(usize, usize), (Design, String)>,
}

/// Judges the pairs of a report.
pub(super) fn judge(report: &Report) -> Judged {
    let runs = report.runs();
    let declared = declared(report);
    let (verdicts, batches) = (BTreeMap::new(), BTreeMap::new());
    let mut judged = Judged { verdicts, batches, declared, designs: designs(report) };
    let all = runs.len() * runs.len().saturating_sub(1) / 2 <= MOST_PAIRS;
    let part_of = report.part_numbers();
    for (i, a) in runs.iter().enumerate() {
        for (j, b) in runs.iter().enumerate().skip(i + 1) {
            let named = judged.declared.contains(&(i, j)) || judged.declared.contains(&(j, i));
            if !all && !named {
                continue;
            }
            // The base, or the run without Canon layers, comes first.
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
            let sides = [first, second].map(|run| {
                // canonc trains the runs in run folders.
                Side::arm(&run.name, &run.experiment).run_by(Trainer::Canonc)
            });
            let [left, right] = &sides;
            // A treatment in which the two do not differ cannot be judged.
            let verdict =
                controlled(left, right, &treatment).or_else(|_| controlled(left, right, &[]));
            if let Ok(verdict) = verdict {
                judged.verdicts.insert(at, verdict);
            }
        }
    }
    judged
}

/// Declared pairs: runs of one seed and point, and those that the comparison's rule selects; base first.
fn declared(report: &Report) -> BTreeSet<(usize, usize)> {
    let mut declared = BTreeSet::new();
    let mut first = 0;
    for part in &report.parts {
        for pair in &part.pairs {
            let both = pair.lines.iter().chain(&pair.replicate);
            declared.extend(both.map(|(treated, base)| (base + first, treated + first)));
        }
        let bases: BTreeMap<(usize, usize), usize> = part
            .runs
            .iter()
            .enumerate()
            .filter(|(_, run)| run.role == Some(Role::Base))
            .map(|(at, run)| ((run.seed, run.point), at))
            .collect();
        let others = part.runs.iter().enumerate().filter(|(_, run)| run.role != Some(Role::Base));
        declared.extend(others.filter_map(|(at, run)| {
            Some((bases.get(&(run.seed, run.point))? + first, at + first))
        }));
        first += part.runs.len();
    }
    declared
}

/// The design of each pair of base and treated run: that of the points where they are judged, or at equal points.
fn designs(report: &Report) -> BTreeMap<(usize, usize), (Design, String)> {
    let mut designs = BTreeMap::new();
    let mut first = 0;
    for part in &report.parts {
        let of_role = |role: Role| {
            part.runs.iter().enumerate().filter(move |(_, run)| run.role == Some(role))
        };
        for (at, run) in of_role(Role::Treatment) {
            let base = of_role(Role::Base)
                .find(|(_, base)| (base.seed, base.point) == (run.seed, run.point));
            let Some((base, _)) = base else { continue };
            let design = part.comparison.proved.design(&run.arm);
            let words = part.comparison.standing(&run.arm);
            designs.insert((base + first, at + first), (design, words));
        }
        for pair in &part.pairs {
            let Some(design) = &pair.design else { continue };
            let runs = pair.lines.iter().map(|(treated, base)| (base + first, treated + first));
            designs.extend(runs.map(|at| (at, design.clone())));
        }
        first += part.runs.len();
    }
    designs
}

impl Report {
    /// The part number of each run.
    pub(super) fn part_numbers(&self) -> Vec<Option<usize>> {
        let of_parts = self.parts.iter().enumerate();
        let of_parts = of_parts.flat_map(|(p, part)| part.runs.iter().map(move |_| Some(p)));
        of_parts.chain(self.alone.iter().map(|_| None)).collect()
    }
}

/// Parameters in slot fills.
fn canon(run: &Run) -> u64 {
    let found = run.experiment.value("arch.canon_parameters");
    found.and_then(|count| count.plain().parse().ok()).unwrap_or(0)
}

impl Judged {
    /// Pairs among runs outside comparisons that differ only in Canon layers, with equal seeds; `first` is the
    /// number of the first such run.
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
                replicate: Vec::new(),
                finals: Vec::new(),
                noise: None,
                design: None,
            });
            pair.lines.push((*b, *a));
            if let [Some(base), Some(treated)] = finals {
                pair.finals.push(treated - base);
            }
        }
        pairs.into_values().collect()
    }

    /// The JSON for the page's script.
    pub(super) fn json(&self) -> Value {
        let all = self.batches.iter().map(|((a, b), other)| {
            let verdict = self.verdicts.get(&(*a, *b));
            let declared = self.designs.get(&(*a, *b)).filter(|_| verdict.is_some());
            json!({
                "a": a,
                "b": b,
                "other_batch": other,
                "headline": match declared {
                    Some((_, words)) => Some(words.clone()),
                    None => verdict.map(Verdict::headline),
                },
                "design": match declared {
                    Some((design, _)) => Some(*design),
                    None => verdict.map(Design::of),
                },
                "declared": self.declared.contains(&(*a, *b)) || self.declared.contains(&(*b, *a)),
                "differs": verdict.map(differences).unwrap_or_default(),
            })
        });
        Value::Array(all.collect())
    }
}

/// Group, path, both values, and any note.
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
