//! One thing that was found, and where.
//!
//! In: what rules see. Out: [`Finding`]s, equal ones gathered into one with many places. Must stay
//! true: a finding shows both values; its places name every experiment it is about.

use std::collections::{BTreeMap, BTreeSet};

/// What a finding is about: two experiments beside each other, or each by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Twins differ in what may decide.
    Pair,
    /// One run, in a way that spoils its pair.
    Run,
    /// A sweep, a budget, a name: says nothing of twins as such.
    Set,
}

/// Where it was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub experiment: String,
    /// The other of two.
    pub against: Option<String>,
    /// What is there, with both values where there are two.
    pub says: String,
}

/// One finding, wherever it occurs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub rule: String,
    pub kind: Kind,
    /// The key it is about; empty for the whole.
    pub key: String,
    /// One line, without the places.
    pub message: String,
    /// Sorted.
    pub places: Vec<Place>,
}

/// Findings by rule, key and message.
#[derive(Clone, Debug, Default)]
pub struct Findings(BTreeMap<(String, String, String), (Kind, Vec<Place>)>);

impl Findings {
    pub fn add(&mut self, rule: &str, kind: Kind, key: &str, message: String, place: Place) {
        let at = (rule.to_owned(), key.to_owned(), message);
        self.0.entry(at).or_insert_with(|| (kind, Vec::new())).1.push(place);
    }

    /// Keys and experiments that rules of some beginning have something on.
    pub(super) fn told(&self, rules: &str) -> BTreeSet<(String, String)> {
        let mut told = BTreeSet::new();
        for ((_, key, _), (_, places)) in
            self.0.iter().filter(|((id, ..), _)| id.starts_with(rules))
        {
            for place in places {
                let both = [Some(&place.experiment), place.against.as_ref()];
                told.extend(both.into_iter().flatten().map(|name| (key.clone(), name.clone())));
            }
        }
        told
    }

    pub(super) fn into_list(self) -> Vec<Finding> {
        let list = self.0.into_iter().map(|((rule, key, message), (kind, mut places))| {
            places.sort();
            places.dedup();
            Finding { rule, kind, key, message, places }
        });
        list.collect()
    }
}
