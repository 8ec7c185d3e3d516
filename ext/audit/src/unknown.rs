//! Keys and columns without a row in any vocabulary: a difference is a finding, an equal value is not.

use std::collections::BTreeMap;

use crate::finding::{Finding, Findings, Occurrence, Scope};
use crate::keys;
use crate::subject::Subject;

/// Reports a key in which twins differ.
pub(crate) fn difference(a: &Subject, b: &Subject, key: &str, findings: &mut Findings) {
    let message = match keys::suggest(a.vocabulary, key) {
        Some(known) => {
            format!("an unknown key, assumed to affect the result; did you mean `{known}`?")
        }
        None => "an unknown key, assumed to affect the result".to_owned(),
    };
    let observation = format!("{key} {} | {}", a.shown(key), b.shown(key));
    let pair = Occurrence::between(&a.name, &b.name, observation);
    findings.add("unknown-key", Scope::Pair, key, message, pair);
}

/// Unknown keys that no finding is about, each with the key that was probably meant.
pub(crate) fn unreported(subjects: &[Subject], findings: &[&Finding]) -> Vec<String> {
    let reported = |key: &str| findings.iter().any(|finding| finding.key == key);
    let mut keys: BTreeMap<&str, Option<&'static str>> = BTreeMap::new();
    for subject in subjects {
        for key in subject.unknown.iter().filter(|key| !reported(key)) {
            keys.entry(key).or_insert_with(|| keys::suggest(subject.vocabulary, key));
        }
    }
    let shown = |(key, meant): (&str, Option<&str>)| match meant {
        Some(known) => format!("{key} (did you mean `{known}`?)"),
        None => key.to_owned(),
    };
    keys.into_iter().map(shown).collect()
}
