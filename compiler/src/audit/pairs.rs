//! Who is whose twin.
//!
//! In: a set, and what is meant to differ. Out: pairs, and who has no partner. Must stay true: names
//! that agree but for the words of their arms decide first, contents next, so that neither a wrong
//! name nor a wrong key hides a pair; every experiment has at most one partner for each treatment.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::experiment::BARE_MANIFEST;
use super::facts::Subject;
use super::rules::Pairs;
use super::value::Value;
use super::vocabulary;

/// Twins, as places in the set: without and with the treatment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    pub without: usize,
    pub with: usize,
}

/// Deciding keys in which twins of unlike names may differ and still be known as twins.
const MAX_APART: usize = 3;

/// Whether a key belongs to a treatment: it, or something below it.
pub(super) fn of_treatment(treatment: &[String], path: &str) -> bool {
    treatment.iter().any(|entry| {
        path.strip_prefix(entry.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// The value of a treatment, as text.
pub(super) fn treatment_of(subject: &Subject, treatment: &[String]) -> String {
    let values: Vec<String> = treatment.iter().map(|path| subject.shown(path)).collect();
    values.join(" ")
}

/// What decides in an experiment, beside the treatment: sorted keys and values.
type Deciding<'a> = Vec<(&'a str, &'a Value)>;

fn deciding<'a>(subject: &'a Subject, declared: &Pairs) -> Deciding<'a> {
    let own = |path: &&str| {
        subject.topic(path).decides()
            // Two parameters that differ in a graph are one difference.
            && *path != BARE_MANIFEST
            && !of_treatment(&declared.treatment, path)
            && !of_treatment(&declared.ignore, path)
    };
    subject.compared().filter(own).filter_map(|path| Some((path, subject.value(path)?))).collect()
}

/// Keys in which two differ; counted no further than one above what twins may.
fn apart(a: &Deciding<'_>, b: &Deciding<'_>) -> usize {
    let (mut left, mut right) = (a.iter().peekable(), b.iter().peekable());
    let mut differing = 0;
    while differing <= MAX_APART {
        let order = match (left.peek(), right.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((one, _)), Some((other, _))) => one.cmp(other),
        };
        let one = if order.is_le() { left.next() } else { None };
        let other = if order.is_ge() { right.next() } else { None };
        differing += usize::from(one != other);
    }
    differing
}

/// Pairs in order of the set, and the places of those without one; of a set without any treatment, or
/// without any pair, nobody lacks a partner.
pub(super) fn pairs(subjects: &[Subject], declared: &Pairs) -> (Vec<Pair>, Vec<usize>) {
    let treated = |at: &usize| subjects.get(*at).is_some_and(|s| s.treated(&declared.treatment));
    let (with, without): (Vec<usize>, Vec<usize>) = (0..subjects.len()).partition(treated);
    let mut by_treatment: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for at in &with {
        if let Some(subject) = subjects.get(*at) {
            let value = treatment_of(subject, &declared.treatment);
            by_treatment.entry(value).or_default().push(*at);
        }
    }
    let contents: Vec<Deciding<'_>> = subjects.iter().map(|s| deciding(s, declared)).collect();
    let mut pairs = Vec::new();
    let mut free: BTreeSet<usize> = without.iter().copied().collect();
    for pass in [Pass::Names, Pass::Contents] {
        for members in by_treatment.values() {
            let mut candidates = Vec::new();
            for with in members.iter().filter(|at| !has(&pairs, **at)) {
                for without in &without {
                    let (Some(a), Some(b)) = (subjects.get(*without), subjects.get(*with)) else {
                        continue;
                    };
                    let named = a.claims.stem == b.claims.stem;
                    let distance = match pass {
                        Pass::Names if !named => continue,
                        // A base may serve arms of several treatments, but by its name only.
                        Pass::Contents if !free.contains(without) => continue,
                        Pass::Names | Pass::Contents => {
                            match (contents.get(*without), contents.get(*with)) {
                                (Some(a), Some(b)) => apart(a, b),
                                (None, _) | (_, None) => continue,
                            }
                        }
                    };
                    if named || distance <= MAX_APART {
                        candidates.push((distance, *without, *with));
                    }
                }
            }
            candidates.sort_unstable();
            let mut used = BTreeSet::new();
            for (_, without, with) in candidates {
                if !has(&pairs, with) && used.insert(without) {
                    free.remove(&without);
                    pairs.push(Pair { without, with });
                }
            }
        }
    }
    pairs.sort_unstable();
    let paired: BTreeSet<usize> = pairs.iter().flat_map(|p| [p.without, p.with]).collect();
    // The same experiment under another name has its partner there.
    let facts = |at: usize| subjects.get(at).map(|subject| &subject.facts);
    let alone = |at: &usize| {
        !paired.contains(at) && !paired.iter().any(|other| facts(*other) == facts(*at))
    };
    let lonely = match pairs.is_empty() {
        true => Vec::new(),
        false => (0..subjects.len()).filter(alone).collect(),
    };
    (pairs, lonely)
}

/// Why there is no pair, where several experiments could have made one.
pub(super) fn unpaired(subjects: &[Subject], pairs: &[Pair], declared: &Pairs) -> Option<String> {
    if subjects.len() < 2 || !pairs.is_empty() {
        return None;
    }
    let treatment = declared.treatment.join(" and ");
    let own = |path: &str| of_treatment(&declared.treatment, path);
    let spoken = |s: &Subject| s.facts.iter().any(|(path, fact)| fact.written && own(path));
    let treated = subjects.iter().filter(|s| s.treated(&declared.treatment)).count();
    let why = if !subjects.iter().any(spoken) {
        let other = match declared.treatment.iter().any(|path| path == vocabulary::CANON) {
            true => " (nor `model.canon_set`)",
            false => "",
        };
        format!("no column or key `{treatment}`{other} says what is treated")
    } else if treated == 0 {
        "no experiment is treated".to_owned()
    } else if treated == subjects.len() {
        "every experiment is treated".to_owned()
    } else {
        format!("no two agree in their names, or in all but {MAX_APART} deciding keys")
    };
    Some(format!("{treatment}: {why}"))
}

#[derive(Clone, Copy, Debug)]
enum Pass {
    Names,
    Contents,
}

fn has(pairs: &[Pair], with: usize) -> bool {
    pairs.iter().any(|pair| pair.with == with)
}
