//! Groups that are shown side by side, and the keys in which they differ.
//!
//! In: a set. Out: one finding for each key, with the values of each group. Must stay true: for
//! information only; keys that make a family or a size are not listed as differing between them.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::Subject;
use super::finding::{Findings, Kind, Place};
use super::pairs::of_treatment;
use super::rules::Pairs;
use super::vocabulary::{self, Class};

/// What makes a size.
const SIZE: [&str; 6] = [
    "arch.dim",
    "arch.layers",
    "arch.mixer.heads",
    "arch.mixer.kv_heads",
    "arch.mlp.hidden",
    "batch.sequences",
];

/// Derived, and worth a line of their own.
const DERIVED: [&str; 2] = ["batch.tokens_per_step", "schedule.warmup_share"];

/// What follows from those, so that one thing is told once.
const FOLLOWS: [&str; 3] = ["batch.sequences", "arch.mixer.head_dim", super::facts::DEVICES];

pub(super) fn across(subjects: &[Subject], pairs: &[Pairs], found: &mut Findings) {
    let mut keys: BTreeSet<&str> = subjects.iter().flat_map(Subject::compared).collect();
    keys.extend(DERIVED);
    for key in keys {
        let told = vocabulary::class(key).decides()
            && vocabulary::class(key) != Class::Kernel
            && !key.starts_with("lingua.")
            && key != super::experiment::BARE_GRAPH
            && key != "arch.mixer"
            && !pairs.iter().any(|pairs| of_treatment(&pairs.treatment, key));
        if !told || FOLLOWS.contains(&key) {
            continue;
        }
        let family = |s: &Subject| s.family.clone();
        let size = |s: &Subject| s.size.clone();
        side_by_side("across-families", subjects, key, &size, &family, found);
        if !SIZE.contains(&key) {
            side_by_side("across-sizes", subjects, key, &family, &size, found);
        }
    }
}

type Label<'a> = &'a dyn Fn(&Subject) -> String;

/// In each group by `fixed`, the values of a key for each group by `varied`.
fn side_by_side(
    rule: &str,
    subjects: &[Subject],
    key: &str,
    fixed: Label<'_>,
    varied: Label<'_>,
    found: &mut Findings,
) {
    let mut groups: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for subject in subjects {
        let group = groups.entry(fixed(subject)).or_default();
        group.entry(varied(subject)).or_default().insert(subject.shown(key));
    }
    for (fixed, group) in groups {
        let mut by_values: BTreeMap<Vec<&str>, Vec<&str>> = BTreeMap::new();
        for (varied, values) in &group {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            by_values.entry(values).or_default().push(varied);
        }
        if by_values.len() < 2 {
            continue;
        }
        let parts: Vec<String> = by_values
            .iter()
            .map(|(values, who)| format!("{} {}", who.join("/"), values.join(" or ")))
            .collect();
        let what = if rule == "across-families" { "families" } else { "sizes" };
        let place = Place { experiment: fixed, against: None, says: parts.join("; ") };
        found.add(rule, Kind::Set, key, format!("differs between {what}"), place);
    }
}
