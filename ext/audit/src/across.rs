//! Compares groups side by side and lists the keys in which they differ.
//!
//! Keys that define a family or a size are not listed as differences.

use std::collections::{BTreeMap, BTreeSet};

use lab::field::Topic;

use crate::finding::{Findings, Occurrence, Scope};
use crate::keys::{BARE, DEVICES, TOKENS, of_treatment};
use crate::rules::Pairs;
use crate::subject::Subject;
use crate::value::KeyValue;

/// Keys that define a size.
const SIZE: [&str; 8] = [
    "arch.dim",
    "arch.layers",
    "arch.mixer.heads",
    "arch.mixer.inner",
    "arch.mixer.key_dim",
    "arch.mixer.kv_heads",
    "arch.mixer.value_dim",
    "arch.mlp.hidden",
];

/// Derived keys that get a line of their own.
const DERIVED: [&str; 2] = ["batch.tokens_per_step", "schedule.warmup_share"];

/// Keys that follow from those, left out so that each difference is listed once.
const FOLLOWS: [&str; 5] =
    ["arch.mixer.head_dim", "batch.micro_batches", "batch.sequences", DEVICES, TOKENS];

pub(crate) fn across(subjects: &[Subject], pairs: &[Pairs], findings: &mut Findings) {
    let mut tasks: BTreeMap<String, Vec<&Subject>> = BTreeMap::new();
    for subject in subjects {
        tasks.entry(subject.label("task")).or_default().push(subject);
    }
    let several = tasks.len() > 1;
    for (task, members) in &tasks {
        let mut keys: BTreeSet<&str> = members.iter().flat_map(|s| s.compared()).collect();
        keys.extend(DERIVED);
        for key in keys {
            let topics = members.iter().map(|subject| subject.topic(key));
            let listed = topics.into_iter().all(|topic| topic.decides() && topic != Topic::Kernel)
                && !key.starts_with("lingua.")
                && !FOLLOWS.contains(&key)
                && !BARE.contains(&key)
                && key != "arch.mixer"
                && !pairs.iter().any(|pairs| of_treatment(&pairs.treatment, key));
            if !listed {
                continue;
            }
            let task = if several { Some(task.as_str()) } else { None };
            side_by_side("across-families", members, key, ("size", "family"), task, findings);
            if !SIZE.contains(&key) {
                side_by_side("across-sizes", members, key, ("family", "size"), task, findings);
            }
        }
    }
}

/// For each group by the first label, the values of a key in each group by the second.
fn side_by_side(
    rule: &str,
    subjects: &[&Subject],
    key: &str,
    (fixed, varied): (&str, &str),
    task: Option<&str>,
    findings: &mut Findings,
) {
    let mut groups: BTreeMap<String, BTreeMap<String, Vec<KeyValue>>> = BTreeMap::new();
    for subject in subjects {
        let group = groups.entry(subject.label(fixed)).or_default();
        let values = group.entry(subject.label(varied)).or_default();
        // A mixer without this key does not differ in it.
        match subject.value(key) {
            Some(value) if !values.contains(value) => values.push(value.clone()),
            None if !key.starts_with("arch.mixer.")
                && !values.contains(&KeyValue::text("absent")) =>
            {
                values.push(KeyValue::text("absent"));
            }
            Some(_) | None => {}
        }
    }
    // Groups with the same values share a line.
    let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (fixed, group) in groups {
        let mut by_values: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (varied, values) in group.iter().filter(|(_, values)| !values.is_empty()) {
            by_values.entry(listed(values)).or_default().push(varied);
        }
        if by_values.len() < 2 {
            continue;
        }
        let mut parts: Vec<(Vec<&str>, String)> =
            by_values.into_iter().map(|(values, labels)| (labels, values)).collect();
        parts.sort();
        let text =
            |(labels, values): &(Vec<&str>, String)| format!("{} {values}", labels.join("/"));
        let parts: Vec<String> = parts.iter().map(text).collect();
        lines.entry(parts.join("; ")).or_default().push(fixed);
    }
    let groups = if varied == "family" { "families" } else { "sizes" };
    for (observation, fixed) in lines {
        let group = Occurrence::in_experiment(&fixed.join("/"), observation);
        let of_task = task.map_or_else(String::new, |task| format!(" of {task}"));
        findings.add(rule, Scope::Set, key, format!("differs between {groups}{of_task}"), group);
    }
}

/// The values in ascending order.
fn listed(values: &[KeyValue]) -> String {
    let mut values: Vec<&KeyValue> = values.iter().collect();
    values.sort_by(|a, b| match (a.number(), b.number()) {
        (Some(a), Some(b)) => a.compare(b),
        (None, _) | (_, None) => a.to_string().cmp(&b.to_string()),
    });
    let texts: Vec<String> = values.into_iter().map(KeyValue::to_string).collect();
    texts.join(" or ")
}
