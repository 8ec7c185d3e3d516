//! Confounds that are no field: definitions of one name that say different things.
//!
//! In: the definitions of both arms. Out: one difference each, with its lines. Must stay true: called
//! only where fields explain nothing, so that a renamed local is never reported.

use super::index::Definitions;
use super::verdict::{Change, Sources};

pub(super) fn differing_definitions(
    definitions: [&Definitions; 2],
    sources: &Sources<'_>,
) -> Vec<Change> {
    let [a, b] = definitions;
    let mut names: Vec<&String> = a.own.keys().chain(b.own.keys()).collect();
    names.sort();
    names.dedup();
    let mut changes = Vec::new();
    for name in names {
        let (ours, theirs) = (a.own.get(name), b.own.get(name));
        if ours.map(|(text, _)| text) == theirs.map(|(text, _)| text) {
            continue;
        }
        let places = [
            ours.map(|(_, span)| sources.arch(*span)),
            theirs.map(|(_, span)| sources.arch(*span)),
        ];
        let [mine, other] = match (ours, theirs) {
            (Some((a, _)), Some((b, _))) => first_difference(a, b).map(Some),
            (Some(_), None) => [Some("defined".to_owned()), None],
            (None, Some(_)) => [None, Some("defined".to_owned())],
            (None, None) => [None, None],
        };
        changes.push(Change {
            path: format!("definition {name}"),
            a: mine,
            b: other,
            defaults: [false, false],
            places,
            note: String::new(),
        });
    }
    changes
}

/// The first line where two texts part.
fn first_difference(a: &str, b: &str) -> [String; 2] {
    let (mut a, mut b) = (a.lines(), b.lines());
    loop {
        let (x, y) = (a.next(), b.next());
        if x != y || x.is_none() {
            return [x, y].map(|line| line.unwrap_or("(nothing more)").trim().to_owned());
        }
    }
}
