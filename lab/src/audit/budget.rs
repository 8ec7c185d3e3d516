//! Checks that the keys determine the budget, and that it matches the name and the table.
//!
//! In: a set. Out: findings. Must stay true: tokens are exactly steps x tokens per step; a number
//! that only a comment gives counts towards the total, and the finding says so.

use std::collections::BTreeMap;

use super::facts::{DEVICES, Subject, TOKENS, TOKENS_PER_STEP};
use super::finding::{Findings, Occurrence, Scope};
use super::repeated;
use compiler::number::Ratio;

/// Tolerance for a name's `1T`: budgets are whole steps of round batches.
pub(super) const NAMED: Ratio = Ratio { num: 2, den: 100 };

pub(super) fn budgets(subjects: &[Subject], found: &mut Findings) {
    for subject in subjects {
        in_comment(subject, found);
        named(subject, found);
        repeated::check(subject, found);
    }
    ambiguous(subjects, found);
}

pub(super) fn alone(subject: &Subject, says: String) -> Occurrence {
    Occurrence { experiment: subject.name.clone(), against: None, says }
}

fn in_comment(subject: &Subject, found: &mut Findings) {
    if subject.budget_in_comment {
        let message =
            "tokens per step depend on the number of devices, which no key gives".to_owned();
        let says = format!(
            "{} devices in a comment, {} tokens per step",
            subject.shown(DEVICES),
            subject.shown(TOKENS_PER_STEP)
        );
        found.add("budget-in-comment", Scope::Set, DEVICES, message, alone(subject, says));
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
        found.add("name-tokens", Scope::Set, TOKENS, message, alone(subject, says));
    }
}

/// Whether two values differ by more than a share of the second.
pub(super) fn off(a: Ratio, b: Ratio, share: Ratio) -> bool {
    let gap = a.add(b.neg()).map(|gap| Ratio { num: gap.num.abs(), den: gap.den });
    let bound = b.mul(share).map(|bound| Ratio { num: bound.num.abs(), den: bound.den });
    match (gap, bound) {
        (Some(gap), Some(bound)) => gap.compare(bound).is_gt(),
        (None, _) | (_, None) => a != b,
    }
}

/// Finds experiments with equal keys but different tokens.
fn ambiguous(subjects: &[Subject], found: &mut Findings) {
    let mut files: BTreeMap<Vec<String>, Vec<&Subject>> = BTreeMap::new();
    for subject in subjects {
        let key = |path: &&str| subject.topic(path).decides() && !subject.comments.contains(*path);
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
            let message = "equal keys, but different tokens".to_owned();
            let place = Occurrence {
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
            found.add("budget-ambiguous", Scope::Set, TOKENS, message, place);
        }
    }
}
