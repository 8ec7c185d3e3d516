//! Finds outliers in a sweep: experiments that differ from the majority's value, if there is one.

use std::collections::BTreeMap;

use compiler::number::Ratio;

use crate::finding::{Findings, Occurrence, Scope};
use crate::keys::{
    BARE_GRAPH, BARE_MANIFEST, ROPE_DIMS, ROPE_SHARE, SLOT_PLACES, TOKENS, TOKENS_PER_STEP,
    of_treatment,
};
use crate::rules::{Invariant, Pairs, Range};
use crate::subject::Subject;
use crate::value::{rounded, shown, within_share};

/// Smaller groups have no usual value.
const LEAST_GROUP: usize = 4;

/// Groups a set by labels.
fn groups<'a>(
    subjects: &'a [Subject],
    within: &[String],
) -> BTreeMap<Vec<String>, Vec<&'a Subject>> {
    let mut groups: BTreeMap<Vec<String>, Vec<&Subject>> = BTreeMap::new();
    for subject in subjects {
        let labels = within.iter().map(|label| subject.label(label)).collect();
        groups.entry(labels).or_default().push(subject);
    }
    groups
}

pub(crate) fn invariants(subjects: &[Subject], rules: &[Invariant], findings: &mut Findings) {
    for invariant in rules {
        let Invariant { id, of, within, tolerance } = invariant;
        for (labels, members) in groups(subjects, within) {
            let values: Vec<(&Subject, Ratio)> =
                members.iter().filter_map(|s| Some((*s, of.value_in(s)?))).collect();
            if values.len() < LEAST_GROUP {
                continue;
            }
            let company =
                |x: Ratio| values.iter().filter(|(_, y)| within_share(*y, x, *tolerance)).count();
            let mut usual: Option<(usize, usize, Ratio)> = None;
            for (_, x) in &values {
                let exact = values.iter().filter(|(_, y)| y == x).count();
                let next = (company(*x), exact, *x);
                if usual.is_none_or(|(company, exact, _)| (next.0, next.1) > (company, exact)) {
                    usual = Some(next);
                }
            }
            let Some((company, _, usual)) = usual.filter(|(n, ..)| n * 2 > values.len()) else {
                continue;
            };
            for (subject, x) in values.iter().filter(|(_, x)| !within_share(*x, usual, *tolerance))
            {
                let of_what = match labels.is_empty() {
                    true => String::new(),
                    false => format!(" of {}", labels.join(" ").trim_end()),
                };
                let message = format!(
                    "{}, but {company} of {}{of_what} have {}{}",
                    rounded(*x),
                    values.len(),
                    rounded(usual),
                    factor(*x, usual),
                );
                let parts: Vec<String> =
                    of.keys().iter().map(|key| format!("{key} {}", subject.shown(key))).collect();
                let outlier = Occurrence::in_experiment(&subject.name, parts.join(", "));
                findings.add(id, Scope::Set, &of.to_string(), message, outlier);
            }
        }
    }
}

/// `, a factor of 3 less`, or an empty text without such a factor.
fn factor(x: Ratio, usual: Ratio) -> String {
    if x.num <= 0 || usual.num <= 0 {
        return String::new();
    }
    let (word, factor) = match x.compare(usual).is_lt() {
        true => ("less", usual.div(x)),
        false => ("more", x.div(usual)),
    };
    factor.map_or_else(String::new, |factor| format!(" (a factor of {} {word})", rounded(factor)))
}

pub(crate) fn ranges(subjects: &[Subject], rules: &[Range], findings: &mut Findings) {
    for Range { id, of, least, most } in rules {
        for subject in subjects {
            let Some(x) = of.value_in(subject) else { continue };
            let low = least.is_some_and(|least| x.compare(least).is_lt());
            let high = most.is_some_and(|most| x.compare(most).is_gt());
            if !low && !high {
                continue;
            }
            let bounds = match (least, most) {
                (Some(least), Some(most)) => format!("from {} to {}", shown(*least), shown(*most)),
                (Some(least), None) => format!("at least {}", shown(*least)),
                (None, Some(most)) => format!("at most {}", shown(*most)),
                (None, None) => continue,
            };
            let message = format!("{}, but should be {bounds}", rounded(x));
            let outlier = Occurrence::in_experiment(&subject.name, "");
            findings.add(id, Scope::Set, &of.to_string(), message, outlier);
        }
    }
}

/// Keys that sweeps vary, or that have their own rule: they are not expected to be constant here.
const SWEPT: [&str; 9] = [
    BARE_GRAPH,
    BARE_MANIFEST,
    SLOT_PLACES,
    "optimizer.lr",
    "optimizer.weight_decay",
    "seeds.data",
    "seeds.init",
    TOKENS,
    TOKENS_PER_STEP,
];

/// In a family, size and budget, finds keys in which a few experiments differ from all others.
pub(crate) fn siblings(subjects: &[Subject], pairs: &[Pairs], findings: &mut Findings) {
    // Skip differences that a pair already reports.
    let reported = findings.keys_reported_by("twin-");
    let alike = ["task", "family", "size", "tokens"].map(str::to_owned);
    for (labels, members) in groups(subjects, &alike) {
        if members.len() < LEAST_GROUP {
            continue;
        }
        let mut keys: Vec<&str> = members.iter().flat_map(|s| s.compared()).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let decides = members.iter().all(|subject| subject.topic(key).decides());
            let treatment = pairs.iter().any(|pairs| of_treatment(&pairs.treatment, key));
            if treatment || SWEPT.contains(&key) || !decides {
                continue;
            }
            let shown = if key == ROPE_DIMS { ROPE_SHARE } else { key };
            let mut values: BTreeMap<String, Vec<&Subject>> = BTreeMap::new();
            for subject in &members {
                values.entry(subject.shown(key)).or_default().push(subject);
            }
            let Some((usual, most)) = values.iter().max_by_key(|(_, members)| members.len()) else {
                continue;
            };
            // A third or more is part of the sweep rather than an oversight.
            if (members.len() - most.len()) * 3 > members.len() {
                continue;
            }
            for (value, outliers) in values.iter().filter(|(value, _)| *value != usual) {
                for subject in outliers {
                    // What a lock declares of an arm is meant to differ.
                    let is_declared = subject.declared.iter().any(|declared| {
                        declared.arch && key.starts_with("arch.")
                            || of_treatment(&declared.fields, key)
                    });
                    if is_declared {
                        continue;
                    }
                    if reported.contains(&(shown.to_owned(), subject.name.clone())) {
                        continue;
                    }
                    let message = format!(
                        "{value}, but {} of {} of {} have {usual}",
                        most.len(),
                        members.len(),
                        labels.join(" ").trim_end()
                    );
                    let outlier = Occurrence::in_experiment(&subject.name, "");
                    findings.add("siblings", Scope::Set, key, message, outlier);
                }
            }
        }
    }
}
