//! Budgets: whether the keys determine them, and whether they are what the name and the table say.
//!
//! In: a set. Out: findings. Must stay true: tokens are steps x tokens per step, exactly; what stands
//! in a comment counts for the total and is told.

use std::collections::BTreeMap;

use super::facts::{DEVICES, ROPE_SHARE, Subject, TOKENS, TOKENS_PER_STEP};
use super::finding::{Findings, Kind, Place};
use super::value::rounded;
use super::vocabulary;
use crate::value::Ratio;

/// A name's `1T` may be this share off: budgets are whole steps of round batches.
const NAMED: Ratio = Ratio { num: 2, den: 100 };

/// Reported numbers are rounded to a few digits.
const REPORTED: Ratio = Ratio { num: 5, den: 1000 };

pub(super) fn budgets(subjects: &[Subject], found: &mut Findings) {
    for subject in subjects {
        in_comment(subject, found);
        named(subject, found);
        reported(subject, found);
    }
    ambiguous(subjects, found);
}

fn alone(subject: &Subject, says: String) -> Place {
    Place { experiment: subject.name.clone(), against: None, says }
}

fn in_comment(subject: &Subject, found: &mut Findings) {
    if subject.budget_in_comment {
        let message = "tokens per step need a device count that no key holds".to_owned();
        let says = format!(
            "{} devices in a comment, {} tokens per step",
            subject.shown(DEVICES),
            subject.shown(TOKENS_PER_STEP)
        );
        found.add("budget-in-comment", Kind::Set, DEVICES, message, alone(subject, says));
    }
}

fn named(subject: &Subject, found: &mut Findings) {
    let (Some((word, claimed)), Some(tokens)) = (&subject.claims.tokens, subject.number(TOKENS))
    else {
        return;
    };
    if off(tokens, *claimed, NAMED) {
        let message =
            format!("the name says {word}, the keys make {} tokens", subject.shown(TOKENS));
        let says = format!(
            "budget.steps {} x {} tokens per step",
            subject.shown("budget.steps"),
            subject.shown(TOKENS_PER_STEP)
        );
        found.add("name-tokens", Kind::Set, TOKENS, message, alone(subject, says));
    }
}

/// Whether two differ by more than a share of the second.
fn off(a: Ratio, b: Ratio, share: Ratio) -> bool {
    let gap = a.add(b.neg()).map(|gap| Ratio { num: gap.num.abs(), den: gap.den });
    let bound = b.mul(share).map(|bound| Ratio { num: bound.num.abs(), den: bound.den });
    match (gap, bound) {
        (Some(gap), Some(bound)) => gap.compare(bound).is_gt(),
        (None, _) | (_, None) => a != b,
    }
}

/// What tables give as derived, and the key it has to equal.
const DERIVED: [(&str, &str); 5] = [
    ("reported.lr_wd_steps", "optimizer.lr_wd_steps"),
    ("reported.rope_share", ROPE_SHARE),
    ("reported.tokens", TOKENS),
    ("reported.tokens_per_step", TOKENS_PER_STEP),
    ("reported.warmup_share", "schedule.warmup_share"),
];

fn reported(subject: &Subject, found: &mut Findings) {
    for (path, ours) in DERIVED {
        let (Some(theirs), Some(value)) = (subject.number(path), subject.number(ours)) else {
            continue;
        };
        if off(theirs, value, REPORTED) {
            let name = subject.written_as.get(path).map_or(path, String::as_str);
            let message = format!(
                "`{name}` is given as {}, the keys make {}",
                rounded(theirs),
                rounded(value)
            );
            found.add("reported", Kind::Set, ours, message, alone(subject, String::new()));
        }
    }
}

/// Keys that are equal and tokens that are not.
fn ambiguous(subjects: &[Subject], found: &mut Findings) {
    let mut files: BTreeMap<Vec<String>, Vec<&Subject>> = BTreeMap::new();
    for subject in subjects {
        let key =
            |path: &&str| vocabulary::class(path).decides() && !subject.comments.contains(*path);
        let keys = subject.compared().filter(key);
        let text = keys.map(|path| format!("{path} = {}", subject.shown(path))).collect();
        files.entry(text).or_default().push(subject);
    }
    for members in files.values() {
        let claims = |s: &Subject| {
            let claimed = s.claims.tokens.as_ref().map(|(word, _)| word.clone());
            (s.shown(TOKENS), claimed)
        };
        let mut values: Vec<_> = members.iter().map(|s| claims(s)).collect();
        values.sort();
        values.dedup();
        if values.len() < 2 {
            continue;
        }
        let differing: Vec<&Subject> = members.to_vec();
        let (Some(first), rest) = (differing.first(), differing.iter().skip(1)) else { continue };
        for other in rest.filter(|other| claims(other) != claims(first)) {
            let message = "equal keys, unequal tokens".to_owned();
            let place = Place {
                experiment: first.name.clone(),
                against: Some(other.name.clone()),
                says: format!(
                    "{} | {} tokens; devices in a comment {} | {}",
                    first.shown(TOKENS),
                    other.shown(TOKENS),
                    first.shown(DEVICES),
                    other.shown(DEVICES)
                ),
            };
            found.add("budget-ambiguous", Kind::Set, TOKENS, message, place);
        }
    }
}
