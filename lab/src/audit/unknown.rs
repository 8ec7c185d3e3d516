//! Reports keys and columns without a row in any table.
//!
//! In: a set. Out: a finding for each. Must stay true: no key of a file is skipped; a rules file can give the topic of
//! such a key.

use super::facts::Subject;
use super::finding::{Findings, Occurrence, Scope};
use super::vocabulary;

pub(super) fn unknown(subjects: &[Subject], found: &mut Findings) {
    for subject in subjects {
        for key in &subject.unknown {
            let unknown = "an unknown key, assumed to affect the result";
            let message = match vocabulary::suggest(key) {
                _ if vocabulary::is_result(key) => format!(
                    "{unknown}; if it is a result, leave it out or write `\"{key}\" = \"evaluation\"` under [keys]"
                ),
                Some(near) => format!("{unknown}; did you mean `{near}`?"),
                None => unknown.to_owned(),
            };
            let says = match subject.value(key) {
                Some(value) => format!("{key} {value}"),
                None => format!("{key} null"),
            };
            let place = Occurrence { experiment: subject.name.clone(), against: None, says };
            found.add("unknown-key", Scope::Run, key, message, place);
        }
    }
}
