//! Checks that the field table and an import agree on the meaning of absent keys.

use compiler::field::{self, Absent};

use super::{As, PAIRS};

/// Why an import uses another default than the trainer for an absent key.
const UNLIKE: [(&str, &str); 1] = [(
    "checkpoint.dump.keep",
    "the trainer's 0 keeps none, and a run here goes on from one of at least two",
)];

#[test]
fn defaults_of_an_import_are_those_of_the_field_table() {
    let mut compared = 0;
    for pair in PAIRS {
        let row = field::find(pair.ours).unwrap_or_else(|| panic!("no field {}", pair.ours));
        let known = match row.absent {
            Absent::Default(value) | Absent::Is(value) => value,
            Absent::Unknown | Absent::As(_) => continue,
        };
        // `none`, `null` and 0 devices are written in the form of the key's kind.
        let plain = |text: &str| match (text, pair.how) {
            ("null", As::IntOr(word)) => word.to_owned(),
            (text, As::Words(words)) => {
                let word = words.iter().find(|(theirs, _)| *theirs == text);
                word.map_or(text, |(_, ours)| ours).trim_matches('"').to_owned()
            }
            (text, _) => text.to_owned(),
        };
        let reason = UNLIKE.iter().find(|(key, _)| *key == pair.theirs);
        assert_eq!(
            plain(pair.absent) != plain(known),
            reason.is_some(),
            "{}: {known}",
            pair.theirs
        );
        compared += 1;
    }
    assert!(compared > 20, "{compared} keys have a default in both places");
}
