//! Finds names that contradict their experiment.
//!
//! In: a set. Out: findings. Must stay true: only explicit claims of a name are checked; a naming convention
//! (`Canon` in treated experiments' names) applies only if the rest of the set follows it.

use super::claims::{CanonClaim, NumberClaim};
use super::facts::Subject;
use super::finding::{Findings, Occurrence, Scope};
use super::value::shown;
use super::vocabulary::CANON;

pub(super) fn names(subjects: &[Subject], found: &mut Findings) {
    for pair in subjects.windows(2) {
        if let [a, b] = pair
            && a.name == b.name
        {
            let place = Occurrence {
                experiment: a.name.clone(),
                against: Some(b.name.clone()),
                says: format!("{} | {}", a.source, b.source),
            };
            let message = "two experiments have the same name".to_owned();
            found.add("name-twice", Scope::Set, "", message, place);
        }
    }
    for subject in subjects {
        if let Some(state) = &subject.unfinished {
            let place = Occurrence { says: format!("it is {state}"), ..alone(subject) };
            let message = "a run did not reach its end".to_owned();
            found.add("unfinished", Scope::Run, "", message, place);
        }
        for NumberClaim { path, values, word } in &subject.claims.numbers {
            let Some(value) = subject.number(path).filter(|value| !values.contains(value)) else {
                continue;
            };
            let message = format!("the name says {word}, but {path} is {}", shown(value));
            found.add("name-value", Scope::Set, path, message, alone(subject));
        }
    }
    // If no experiment has a key for slots, nothing is known about them.
    let spoken = subjects.iter().any(|s| s.facts.get(CANON).is_some_and(|fact| fact.written));
    let treated = |s: &Subject| s.value(CANON).filter(|_| spoken).map(|value| !value.is_off());
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
                Some(said) if is_letters(&slots) && *said != slots => {
                    format!("the name says Canon at {said}, but slots {slots} are filled")
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
        found.add("name-canon", Scope::Set, CANON, message, alone(subject));
    }
}

/// Whether the filled slots are the same letters in every layer.
fn is_letters(slots: &str) -> bool {
    slots.chars().all(|c| matches!(c, 'A'..='D'))
}

fn alone(subject: &Subject) -> Occurrence {
    Occurrence { experiment: subject.name.clone(), against: None, says: String::new() }
}
