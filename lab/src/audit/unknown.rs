//! Keys and columns without a row in any vocabulary: a difference is a finding, an equal value is not.

use std::collections::BTreeMap;

use super::facts::Subject;
use super::finding::{Finding, Findings, Occurrence, Scope};
use super::vocabulary;

/// Reports a key in which twins differ.
pub(super) fn difference(a: &Subject, b: &Subject, key: &str, found: &mut Findings) {
    let message = match vocabulary::suggest(a.vocabulary, key) {
        Some(near) => {
            format!("an unknown key, assumed to affect the result; did you mean `{near}`?")
        }
        None => "an unknown key, assumed to affect the result".to_owned(),
    };
    let says = format!("{key} {} | {}", a.shown(key), b.shown(key));
    let place = Occurrence { experiment: a.name.clone(), against: Some(b.name.clone()), says };
    found.add("unknown-key", Scope::Pair, key, message, place);
}

/// Unknown keys that no finding is about, each with the key that was probably meant.
pub(super) fn rest(subjects: &[Subject], findings: &[&Finding]) -> Vec<String> {
    let told = |key: &str| findings.iter().any(|finding| finding.key == key);
    let mut keys: BTreeMap<&str, Option<&'static str>> = BTreeMap::new();
    for subject in subjects {
        for key in subject.unknown.iter().filter(|key| !told(key)) {
            keys.entry(key).or_insert_with(|| vocabulary::suggest(subject.vocabulary, key));
        }
    }
    let said = |(key, near): (&str, Option<&str>)| match near {
        Some(near) => format!("{key} (did you mean `{near}`?)"),
        None => key.to_owned(),
    };
    keys.into_iter().map(said).collect()
}
