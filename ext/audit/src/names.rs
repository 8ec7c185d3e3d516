//! Finds names that contradict their experiment.
//!
//! Only explicit claims of a name are checked. A naming convention (`Canon` in treated experiments' names) applies only if
//! the rest of the set follows it.

use crate::claims::{CanonClaim, NumberClaim};
use crate::finding::{Findings, Occurrence, Scope};
use crate::keys::CANON;
use crate::subject::Subject;
use crate::value::shown;

pub(crate) fn names(subjects: &[Subject], findings: &mut Findings) {
    find_repeated_names(subjects, findings);
    for subject in subjects {
        if let Some(state) = &subject.unfinished {
            let run = Occurrence::in_experiment(&subject.name, format!("it is {state}"));
            findings.add("unfinished", Scope::Run, "", "a run did not reach its end", run);
        }
        find_wrong_numbers(subject, findings);
    }
    find_wrong_canon(subjects, findings);
}

fn find_repeated_names(subjects: &[Subject], findings: &mut Findings) {
    for neighbours in subjects.windows(2) {
        if let [a, b] = neighbours
            && a.name == b.name
        {
            let pair =
                Occurrence::between(&a.name, &b.name, format!("{} | {}", a.source, b.source));
            findings.add("name-twice", Scope::Set, "", "two experiments have the same name", pair);
        }
    }
}

fn find_wrong_numbers(subject: &Subject, findings: &mut Findings) {
    for NumberClaim { path, values, word } in &subject.claims.numbers {
        let Some(value) = subject.number(path).filter(|value| !values.contains(value)) else {
            continue;
        };
        let message = format!("the name says {word}, but {path} is {}", shown(value));
        findings.add(
            "name-value",
            Scope::Set,
            path,
            message,
            Occurrence::in_experiment(&subject.name, ""),
        );
    }
}

fn find_wrong_canon(subjects: &[Subject], findings: &mut Findings) {
    // If no experiment has a key for slots, nothing is known about them.
    let has_slots = subjects.iter().any(|s| s.facts.get(CANON).is_some_and(|fact| fact.written));
    let treated = |s: &Subject| s.value(CANON).filter(|_| has_slots).map(|value| !value.is_off());
    let custom = subjects.iter().filter(|s| treated(s) == Some(true)).collect::<Vec<_>>();
    let following = custom.iter().filter(|s| s.claims.canon == CanonClaim::Filled).count();
    let binding = following * 2 > custom.len();
    for subject in subjects {
        let slots = subject.shown(CANON);
        let message = match (subject.claims.canon, treated(subject)) {
            (CanonClaim::Filled, Some(false)) => {
                "the name says Canon, but no slot is filled".to_owned()
            }
            (CanonClaim::Filled, Some(true)) => match &subject.claims.slots {
                Some(claimed) if is_letters(&slots) && *claimed != slots => {
                    format!("the name says Canon at {claimed}, but slots {slots} are filled")
                }
                Some(_) | None => continue,
            },
            (CanonClaim::Empty, Some(true)) => {
                format!("the name says no Canon, but slots {slots} are filled")
            }
            (CanonClaim::Unsaid, Some(true)) if binding => format!(
                "slots {slots} are filled, but the name does not say Canon, unlike {following} others"
            ),
            (
                CanonClaim::Filled | CanonClaim::Empty | CanonClaim::Unsaid | CanonClaim::Mentioned,
                _,
            ) => continue,
        };
        findings.add(
            "name-canon",
            Scope::Set,
            CANON,
            message,
            Occurrence::in_experiment(&subject.name, ""),
        );
    }
}

/// Whether the filled slots are the same letters in every layer.
fn is_letters(slots: &str) -> bool {
    slots.chars().all(|c| matches!(c, 'A'..='D'))
}
