//! Keys and columns that no table has a row for.
//!
//! In: a set. Out: a finding for each. Must stay true: nothing that a file holds is passed over; who knows
//! what such a key does says so in a rules file.

use super::facts::Subject;
use super::finding::{Findings, Kind, Place};
use super::vocabulary;

pub(super) fn unknown(subjects: &[Subject], found: &mut Findings) {
    for subject in subjects {
        for key in &subject.unknown {
            let near = vocabulary::suggest(key);
            let message = near.map_or_else(
                || "an unknown key, taken to decide".to_owned(),
                |near| format!("an unknown key, taken to decide; did you mean `{near}`?"),
            );
            let says = match subject.value(key) {
                Some(value) => format!("{key} {value}"),
                None => format!("{key} null"),
            };
            let place = Place { experiment: subject.name.clone(), against: None, says };
            found.add("unknown-key", Kind::Run, key, message, place);
        }
    }
}
