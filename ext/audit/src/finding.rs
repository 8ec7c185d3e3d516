//! Findings: what a rule saw, and where. Equal ones are merged into one with several occurrences.

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
    pub observation: String,
}

impl Occurrence {
    /// In one experiment.
    pub fn in_experiment(experiment: &str, observation: impl Into<String>) -> Occurrence {
        Occurrence {
            experiment: experiment.to_owned(),
            against: None,
            observation: observation.into(),
        }
    }

    /// Between an experiment and the one that it is compared with.
    pub(crate) fn between(base: &str, other: &str, observation: impl Into<String>) -> Occurrence {
        Occurrence {
            against: Some(other.to_owned()),
            ..Occurrence::in_experiment(base, observation)
        }
    }
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
    /// One line, without the experiments.
    pub message: String,
    /// Sorted.
    pub occurrences: Vec<Occurrence>,
}

/// Findings by rule, key and message.
#[derive(Clone, Debug, Default)]
pub struct Findings(BTreeMap<(String, String, String), (Scope, Vec<Occurrence>)>);

impl Findings {
    /// Adds an occurrence. Those with the same rule, key and message are one finding.
    pub fn add(
        &mut self,
        rule: &str,
        scope: Scope,
        key: &str,
        message: impl Into<String>,
        occurrence: Occurrence,
    ) {
        let finding = (rule.to_owned(), key.to_owned(), message.into());
        self.0.entry(finding).or_insert_with(|| (scope, Vec::new())).1.push(occurrence);
    }

    /// Keys and experiments with findings from rules that start with a prefix.
    pub(crate) fn keys_reported_by(&self, rules: &str) -> BTreeSet<(String, String)> {
        let mut reported = BTreeSet::new();
        for ((_, key, _), (_, occurrences)) in
            self.0.iter().filter(|((id, ..), _)| id.starts_with(rules))
        {
            for occurrence in occurrences {
                let both = [Some(&occurrence.experiment), occurrence.against.as_ref()];
                reported.extend(both.into_iter().flatten().map(|name| (key.clone(), name.clone())));
            }
        }
        reported
    }

    pub(crate) fn into_list(self) -> Vec<Finding> {
        let list = self.0.into_iter().map(|((rule, key, message), (scope, mut occurrences))| {
            occurrences.sort();
            occurrences.dedup();
            Finding { rule, scope, key, message, occurrences }
        });
        list.collect()
    }
}
