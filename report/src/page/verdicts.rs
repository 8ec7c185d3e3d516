//! The differences between two runs of a page, judged when the page is made: the page itself judges nothing.
//!
//! Runs of one comparison are judged by its declared treatment, others by Canon layers if only one has them. Declared pairs
//! are always judged, whatever the number of runs, and each pair is marked as declared or not.

use std::collections::{BTreeMap, BTreeSet};

use lab::comparison::Role;
use lab::trainer::{Setting, TrainerRecord, with_trainers};
use lab::verdict::{Change, Meaning, Namesake, Outcome, Side, Trainer, Verdict, controlled};
use serde_json::{Value, json};

use super::contents::{PageContents, Part};
use super::run::{Batches, PageRun};
use super::run_pairs::RunPairs;
use crate::compare::{Design, TRAINING_LOSS};

/// Up to this many pairs, all are judged; beyond it, only declared ones. 24 runs have 276 pairs.
const MOST_PAIRS: usize = 300;

/// Verdicts by the numbers of two runs, the less treated one first.
pub(super) struct RunVerdicts {
    verdicts: BTreeMap<(usize, usize), Verdict>,
    batches: BTreeMap<(usize, usize), Batches>,
    declared: BTreeSet<(usize, usize)>,
    /// What the declared pairs of base and treated run show, and in words.
    designs: BTreeMap<(usize, usize), (Design, String)>,
}

/// Judges the pairs of runs of a page.
pub(super) fn judge(contents: &PageContents) -> RunVerdicts {
    let runs = contents.runs();
    let mut judged = RunVerdicts {
        verdicts: BTreeMap::new(),
        batches: BTreeMap::new(),
        declared: declared(contents),
        designs: designs(contents),
    };
    let all = runs.len() * runs.len().saturating_sub(1) / 2 <= MOST_PAIRS;
    let part_of = contents.part_numbers();
    for (i, a) in runs.iter().enumerate() {
        for (j, b) in runs.iter().enumerate().skip(i + 1) {
            if !all && !judged.is_declared(i, j) {
                continue;
            }
            // The base, or the run without Canon layers, comes first.
            let swap = a.role != Some(Role::Base) && b.role == Some(Role::Base)
                || a.role.is_none() && canon(a) > canon(b);
            let (at, first, second) = if swap { ((j, i), b, a) } else { ((i, j), a, b) };
            judged.batches.insert(at, Batches::of(&first.logged, &second.logged));
            let part = match (part_of.get(i), part_of.get(j)) {
                (Some(Some(p)), Some(Some(q))) if p == q => contents.parts.get(*p),
                _ => None,
            };
            if let Some(verdict) = verdict(first, second, &treatment(first, second, part)) {
                judged.verdicts.insert(at, verdict);
            }
        }
    }
    judged
}

/// The treatment by which two runs are judged: that of their comparison, or Canon layers.
fn treatment(first: &PageRun, second: &PageRun, part: Option<&Part>) -> Vec<String> {
    let Some(part) = part else {
        let one_has_canon = (canon(first) == 0) != (canon(second) == 0);
        return if one_has_canon { vec!["canon".to_owned()] } else { Vec::new() };
    };
    let declared = |run: &PageRun| part.treatment.get(&run.arm).filter(|_| first.arm != second.arm);
    declared(second).or_else(|| declared(first)).cloned().unwrap_or_default()
}

fn verdict(first: &PageRun, second: &PageRun, treatment: &[String]) -> Option<Verdict> {
    let trainers = [first, second].map(|run| run.logged.curves.trainer.as_ref());
    let engine = |record: &TrainerRecord| Trainer::parse(record.engine()).unwrap_or_default();
    let [one, other] = trainers.map(|trainer| trainer.map_or(Trainer::Canonc, engine));
    let left = Side::arm(&first.name, &first.experiment).run_by(one);
    let right = Side::arm(&second.name, &second.experiment).run_by(other);
    // A treatment in which the two do not differ cannot be judged.
    let verdict =
        controlled(&left, &right, treatment).or_else(|_| controlled(&left, &right, &[])).ok()?;
    let setting = Setting::of(&[&first.experiment, &second.experiment], false);
    Some(with_trainers(verdict, trainers, setting))
}

/// Declared pairs: runs of one seed and point, and those that the comparison's rule selects; base first.
fn declared(contents: &PageContents) -> BTreeSet<(usize, usize)> {
    let mut declared = BTreeSet::new();
    let mut first = 0;
    for part in &contents.parts {
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
fn designs(contents: &PageContents) -> BTreeMap<(usize, usize), (Design, String)> {
    let mut designs = BTreeMap::new();
    let mut first = 0;
    for part in &contents.parts {
        let of_role = |role: Role| {
            part.runs.iter().enumerate().filter(move |(_, run)| run.role == Some(role))
        };
        for (at, run) in of_role(Role::Treatment) {
            let base = of_role(Role::Base)
                .find(|(_, base)| (base.seed, base.point) == (run.seed, run.point));
            let Some((base, _)) = base else { continue };
            let design = part.facts.proof.design(&run.arm);
            let words = part.facts.proof.standing(&run.arm);
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

/// Parameters in slot fills.
fn canon(run: &PageRun) -> u64 {
    let parameters = run.experiment.value("arch.canon_parameters");
    parameters.and_then(|count| count.plain().parse().ok()).unwrap_or(0)
}

impl RunVerdicts {
    fn is_declared(&self, a: usize, b: usize) -> bool {
        self.declared.contains(&(a, b)) || self.declared.contains(&(b, a))
    }

    /// All pairs, as run numbers; runs outside comparisons are paired only if proven twins.
    pub(super) fn pairs(&self, contents: &PageContents) -> Vec<RunPairs> {
        let mut pairs = Vec::new();
        let mut first = 0;
        for part in &contents.parts {
            let moved = |pairs: &[(usize, usize)]| -> Vec<(usize, usize)> {
                pairs.iter().map(|(a, b)| (a + first, b + first)).collect()
            };
            // Comparisons may use the same arm names.
            let name = match contents.parts.len() {
                0 | 1 => String::new(),
                _ => format!("{}: ", part.heading.title),
            };
            pairs.extend(part.pairs.iter().map(|pair| RunPairs {
                title: format!("{name}{}", pair.title),
                lines: moved(&pair.lines),
                replicate: moved(&pair.replicate),
                ..pair.clone()
            }));
            first += part.runs.len();
        }
        pairs.extend(self.twins(&contents.alone, first));
        pairs
    }

    /// Pairs among runs outside comparisons that differ only in Canon layers, with equal seeds; `first` is the
    /// number of the first such run.
    fn twins(&self, alone: &[PageRun], first: usize) -> Vec<RunPairs> {
        let mut pairs: BTreeMap<String, RunPairs> = BTreeMap::new();
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
            let finals = [base, treated].map(|run| run.logged.curves.last(TRAINING_LOSS));
            let pair = pairs.entry(title.clone()).or_insert(RunPairs {
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
        let all = self.batches.iter().map(|((a, b), batches)| {
            let verdict = self.verdicts.get(&(*a, *b));
            let declared = self.designs.get(&(*a, *b)).filter(|_| verdict.is_some());
            json!({
                "a": a,
                "b": b,
                "other_batch": match batches {
                    Batches::DifferFrom(step) => Some(step),
                    Batches::Equal | Batches::Unknown => None,
                },
                "unknown_batches": *batches == Batches::Unknown,
                "headline": match declared {
                    Some((_, words)) => Some(words.clone()),
                    None => verdict.map(Verdict::headline),
                },
                "design": match declared {
                    Some((design, _)) => Some(*design),
                    None => verdict.map(Design::of_verdict),
                },
                "declared": self.is_declared(*a, *b),
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
