//! Finds confounds, broken invariants and false claims in a *set* of experiments, ours and other people's, which no
//! pairwise diff shows.
//!
//! Tables, configurations and locks become experiments with the same keys; what follows from the keys is derived; rules
//! compare the results with each other. Every finding follows from a rule, never from the name of an experiment, and the
//! same set gives the same report in whatever order it was read.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod value;
mod foreign;
mod launchers;
pub mod vocabularies;
pub mod keys;
mod comment;
mod devices;
mod experiment;
mod launch;
mod cells;
mod locked;
mod table;
mod toml_keys;
mod words;
mod claims;
mod subject;
mod finding;
mod names;
mod budget;
mod repeated;
mod quantity;
mod rules;
mod rules_file;
mod pairs;
mod unknown;
mod twins;
mod sweep;
mod across;
pub mod curves;
mod logs;
mod report;
mod document;

use std::collections::BTreeSet;

pub use devices::{Reading, devices};
pub use document::document;
pub use experiment::{BadInput, Declared, Experiment, MAX_EXPERIMENTS, Names, Origin};
pub use finding::{Finding, Findings, Occurrence, Scope};
pub use logs::{LogSummary, LogValues};
pub use report::{AuditReport, Json, json, text};
pub use rules::{BuiltInRule, RuleDetails, Rules, Severity, TABLE};
pub use rules_file::{BadRules, rules};
pub use subject::Subject;
pub use table::{markdown, records, table, table_in};
pub use toml_keys::toml_keys;
pub use value::KeyValue;

/// Prepares experiments for the rules, sorted by name.
pub fn subjects(experiments: &[Experiment]) -> Vec<Subject> {
    let mut subjects: Vec<Subject> = experiments.iter().map(Subject::new).collect();
    subjects.sort_by(|a, b| (&a.name, &a.source).cmp(&(&b.name, &b.source)));
    subjects
}

/// Applies every rule. `curves` are the findings from the experiments' curves, if any.
pub fn audit(subjects: &[Subject], rules: &Rules, curves: Findings) -> AuditReport {
    let mut findings = curves;
    names::names(subjects, &mut findings);
    budget::budgets(subjects, &mut findings);
    repeated::columns(subjects, &mut findings);
    let (mut pairs, mut unpaired) = (Vec::new(), Vec::new());
    let mut locked = BTreeSet::new();
    for (pair, declared) in pairs::locked(subjects) {
        twins::twins(subjects, &[pair], &declared, &mut findings);
        locked.extend([pair.without, pair.with]);
        pairs.push(pair);
    }
    pairs::bundles(subjects, &mut findings);
    // The pairs of a rules file go before the built-in ones by Canon layers.
    let (built_in, of_file) = rules
        .pairs
        .split_first()
        .map_or((None, [].as_slice()), |(first, rest)| (Some(first), rest));
    for declared in of_file.iter().chain(built_in) {
        let is_first = pairs.is_empty();
        let mut partners = pairs::partners(subjects, declared, &locked, is_first);
        let none = pairs::unpaired(subjects, &partners.pairs, &locked, declared);
        unpaired.extend(none.filter(|_| is_first || built_in != Some(declared)));
        pairs::missing(subjects, &partners, declared, &mut findings);
        pairs::unclear(subjects, &partners, declared, &mut findings);
        twins::twins(subjects, &partners.pairs, declared, &mut findings);
        let lonely: Vec<usize> = partners.lonely.iter().map(|(at, _)| *at).collect();
        twins::uniform(subjects, &partners.pairs, &lonely, declared, &mut findings);
        pairs.append(&mut partners.pairs);
    }
    twins::shared_names(subjects, &pairs, &mut findings);
    sweep::invariants(subjects, &rules.invariants, &mut findings);
    sweep::ranges(subjects, &rules.ranges, &mut findings);
    sweep::siblings(subjects, &rules.pairs, &mut findings);
    across::across(subjects, &rules.pairs, &mut findings);
    report::report(subjects, &pairs, findings, unpaired, rules)
}
