//! One finding and its places.
//!
//! In: observations of rules. Out: [`Finding`]s; equal ones are merged into one with several places. Must
//! stay true: a finding shows both values; its places name every experiment it is about.

use std::collections::{BTreeMap, BTreeSet};

/// The scope of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Two twins differ in something that may affect the result.
    Pair,
    /// One run has a problem that invalidates its pair.
    Run,
    /// A sweep, a budget or a name; does not affect pairs.
    Set,
}

/// One occurrence of a finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Occurrence {
    /// Name of the experiment.
    pub experiment: String,
    /// The other experiment of a pair.
    pub against: Option<String>,
    /// The observation, with both values for a pair.
    pub says: String,
}

/// One finding with all its occurrences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Id of the rule.
    pub rule: String,
    /// Whether it is about one experiment, a pair or the set.
    pub scope: Scope,
    /// The key it is about; empty if it is about the whole experiment.
    pub key: String,
    /// One line, without places.
    pub message: String,
    /// Sorted.
    pub places: Vec<Occurrence>,
}

/// Findings by rule, key and message.
#[derive(Clone, Debug, Default)]
pub struct Findings(BTreeMap<(String, String, String), (Scope, Vec<Occurrence>)>);

impl Findings {
    /// Adds an occurrence. Those with the same rule, key and message are one finding.
    pub fn add(&mut self, rule: &str, scope: Scope, key: &str, message: String, place: Occurrence) {
        let at = (rule.to_owned(), key.to_owned(), message);
        self.0.entry(at).or_insert_with(|| (scope, Vec::new())).1.push(place);
    }

    /// Keys and experiments with findings from rules that start with a prefix.
    pub(super) fn keys_reported_by(&self, rules: &str) -> BTreeSet<(String, String)> {
        let mut reported = BTreeSet::new();
        for ((_, key, _), (_, places)) in
            self.0.iter().filter(|((id, ..), _)| id.starts_with(rules))
        {
            for place in places {
                let both = [Some(&place.experiment), place.against.as_ref()];
                reported.extend(both.into_iter().flatten().map(|name| (key.clone(), name.clone())));
            }
        }
        reported
    }

    pub(super) fn into_list(self) -> Vec<Finding> {
        let list = self.0.into_iter().map(|((rule, key, message), (scope, mut places))| {
            places.sort();
            places.dedup();
            Finding { rule, scope, key, message, places }
        });
        list.collect()
    }
}
