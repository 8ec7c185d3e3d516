//! Confounds that are no field: definitions of one name that say different things.
//!
//! In: the definitions of both arms. Out: one difference each, with its lines. Must stay true: called
//! only where fields explain nothing, so that a renamed local is never reported.

use super::index::Definitions;
use super::verdict::{Change, Place, Sources};

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
        let (below, [mine, other]) = match (ours, theirs) {
            (Some((a, _)), Some((b, _))) => {
                let (line, differ) = first_difference(a, b);
                (line, differ.map(Some))
            }
            (Some(_), None) => (0, [Some("defined".to_owned()), None]),
            (None, Some(_)) => (0, [None, Some("defined".to_owned())]),
            (None, None) => continue,
        };
        let places = [ours, theirs].map(|own| {
            let place = sources.arch(own?.1);
            Some(Place { line: place.line + below, ..place })
        });
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

/// The first line where two texts part: its number from 0, and both.
fn first_difference(a: &str, b: &str) -> (usize, [String; 2]) {
    let (mut a, mut b) = (a.lines(), b.lines());
    let mut line = 0;
    loop {
        let (x, y) = (a.next(), b.next());
        if x != y || x.is_none() {
            let shown = |line: Option<&str>| line.unwrap_or("(nothing more)").trim().to_owned();
            return (line, [x, y].map(shown));
        }
        line += 1;
    }
}
