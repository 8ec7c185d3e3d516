//! Names that contradict what they name.
//!
//! In: a set. Out: findings. Must stay true: a name is only held to what it says; a custom of naming
//! (`Canon` in treated experiments' names) binds only where the rest of the set follows it.

use super::facts::Subject;
use super::finding::{Findings, Kind, Place};
use super::value::shown;
use super::vocabulary::CANON;

pub(super) fn names(subjects: &[Subject], found: &mut Findings) {
    for pair in subjects.windows(2) {
        if let [a, b] = pair
            && a.name == b.name
        {
            let place = Place {
                experiment: a.name.clone(),
                against: Some(b.name.clone()),
                says: format!("{} | {}", a.source, b.source),
            };
            let message = "two experiments have one name".to_owned();
            found.add("name-twice", Kind::Set, "", message, place);
        }
    }
    for subject in subjects {
        for (path, said, word) in &subject.claims.numbers {
            let Some(value) = subject.number(path).filter(|value| value != said) else { continue };
            let message = format!("the name says {word}, {path} is {}", shown(value));
            found.add("name-value", Kind::Set, path, message, alone(subject));
        }
    }
    // Where nobody speaks of slots, nothing is known of them.
    let spoken = subjects.iter().any(|s| s.facts.get(CANON).is_some_and(|fact| fact.written));
    let treated = |s: &Subject| s.value(CANON).filter(|_| spoken).map(|value| !value.is_off());
    let custom = subjects.iter().filter(|s| treated(s) == Some(true)).collect::<Vec<_>>();
    let following = custom.iter().filter(|s| s.claims.canon).count();
    let binding = following * 2 > custom.len();
    for subject in subjects {
        let message = match (subject.claims.canon, treated(subject)) {
            (true, Some(false)) => "the name says Canon, and no slot is filled".to_owned(),
            (false, Some(true)) if binding => format!(
                "slots {} are filled, and the name does not say Canon as {following} others do",
                subject.shown(CANON)
            ),
            (true | false, _) => continue,
        };
        found.add("name-canon", Kind::Set, CANON, message, alone(subject));
    }
}

fn alone(subject: &Subject) -> Place {
    Place { experiment: subject.name.clone(), against: None, says: String::new() }
}
