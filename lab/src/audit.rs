//! Finds confounds, broken invariants and false claims in a *set* of experiments, which no pairwise diff shows.
//!
//! In: experiments as flat maps (ours or foreign), rules, and findings from their curves. Out: a
//! [`Report`]. Must stay true: every finding follows from a rule, never from the name of an
//! experiment; both values are shown; arithmetic is exact; the same set gives the same report,
//! in whatever order it was read.

use std::collections::BTreeSet;

mod across;
mod budget;
mod claims;
mod comment;
mod devices;
mod document;
mod experiment;
mod extend;
mod facts;
mod finding;
mod flags;
mod launch;
mod lexicon;
mod mentions;
mod names;
mod pairs;
mod quantity;
mod repeated;
mod report;
mod rules;
mod sweep;
mod table;
mod toml;
mod twins;
mod unknown;
mod value;
pub mod vocabulary;
mod words;

pub use claims::{ARM_WORDS, NAME_WORDS};
pub use devices::{Reading, devices};
pub use document::document;
pub use experiment::{BadInput, Declared, Experiment, MAX_EXPERIMENTS, Names, Origin};
pub use extend::{BadRules, rules};
pub use facts::Subject;
pub use finding::{Finding, Findings, Occurrence, Scope};
pub use pairs::Pair;
pub use report::{Json, Report, json, text};
pub use rules::{Own, Rule, Rules, Severity, TABLE};
pub use table::{markdown, records, table, table_in};
pub use toml::toml;
pub use value::Value;

/// Prepares experiments for the rules, sorted by name.
pub fn subjects(experiments: &[Experiment]) -> Vec<Subject> {
    let mut subjects: Vec<Subject> = experiments.iter().map(Subject::new).collect();
    subjects.sort_by(|a, b| (&a.name, &a.source).cmp(&(&b.name, &b.source)));
    subjects
}

/// Applies every rule. `curves` are the findings from the experiments' curves, if any.
pub fn audit(subjects: &[Subject], rules: &Rules, curves: Findings) -> Report {
    let mut found = curves;
    names::names(subjects, &mut found);
    budget::budgets(subjects, &mut found);
    devices::findings(subjects, &mut found);
    let (mut pairs, mut unpaired) = (Vec::new(), Vec::new());
    let mut locked = BTreeSet::new();
    for (pair, declared) in pairs::locked(subjects) {
        twins::twins(subjects, &[pair], &declared, &mut found);
        locked.extend([pair.without, pair.with]);
        pairs.push(pair);
    }
    pairs::bundles(subjects, &mut found);
    // The pairs of a rules file go before the built-in ones by Canon layers.
    let (built_in, own) =
        rules.pairs.split_first().map_or((None, [].as_slice()), |(first, own)| (Some(first), own));
    for declared in own.iter().chain(built_in) {
        let is_first = pairs.is_empty();
        let mut partners = pairs::partners(subjects, declared, &locked, is_first);
        let none = pairs::unpaired(subjects, &partners.pairs, &locked, declared);
        unpaired.extend(none.filter(|_| is_first || built_in != Some(declared)));
        pairs::missing(subjects, &partners, declared, &mut found);
        pairs::unclear(subjects, &partners, declared, &mut found);
        twins::twins(subjects, &partners.pairs, declared, &mut found);
        let lonely: Vec<usize> = partners.lonely.iter().map(|(at, _)| *at).collect();
        twins::uniform(subjects, &partners.pairs, &lonely, declared, &mut found);
        pairs.append(&mut partners.pairs);
    }
    twins::shared_names(subjects, &pairs, &mut found);
    sweep::invariants(subjects, &rules.invariants, &mut found);
    sweep::ranges(subjects, &rules.ranges, &mut found);
    sweep::siblings(subjects, &rules.pairs, &mut found);
    across::across(subjects, &rules.pairs, &mut found);
    report::report(subjects, &pairs, found, unpaired, rules)
}
