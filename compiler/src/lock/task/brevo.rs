//! Brevo in locks: its tokens, its shortest sample, and the generator's own bounds.
//!
//! In: the data fields of an experiment. Out: tokens, counts, problems. Must stay true: parameters that the generator
//! refuses are refused here with the same message (data spec, section 3).

use crate::field::Fields;
use crate::lock::experiment::{int, truth};

/// The number of letters in Brevo2's names, and the number of names with 2 to 4 of them.
const LETTERS: i64 = 4;
const NAMES: i64 = 336;
/// The largest vertex number: the published markers are larger tokens.
const VERTICES: i64 = 9000;

/// The number of tokens that are names or parts of them, starting from 1.
fn names(fields: &Fields) -> i64 {
    if truth(fields, "data.multi") { 2 * LETTERS } else { int(fields, "data.N").min(VERTICES) }
}

/// Markers by the names of their fields.
const MARKS: [&str; 4] = ["data.bos", "data.query", "data.ans", "data.eos"];

pub(super) fn tokens(fields: &Fields) -> impl Iterator<Item = i64> {
    (1..=names(fields)).chain(MARKS.map(|path| int(fields, path)))
}

/// Tokens up to the end of the shortest answer.
pub(super) fn least_tokens(fields: &Fields, largest: bool) -> i64 {
    let size = if largest { int(fields, "data.N").max(3) } else { 3 };
    let name = if truth(fields, "data.multi") { 2 } else { 1 };
    // Every vertex except a leaf has a parent; the answer is the query and at least one parent.
    let leaves = (size - 1) / 4 + i64::from((size - 1) % 4 > 0) + 1;
    1 + 2 * (size - leaves) * name + 1 + name + 1 + 2 * name
}

pub(super) fn check(fields: &Fields, problem: &mut impl FnMut(&str, String, &str)) {
    let n = int(fields, "data.N");
    let (most, why) = if truth(fields, "data.multi") {
        (NAMES, "a graph has 3 vertices or more, and 336 names of 2 to 4 tokens exist")
    } else {
        (VERTICES, "a graph has 3 to 9000 vertices, numbered from 1")
    };
    if !(3..=most).contains(&n) {
        let help = format!("set N to a value from 3 to {most}");
        return problem("data.N", format!("N is {n}, but {why}"), &help);
    }
    let names = names(fields);
    for path in MARKS {
        let mark = int(fields, path);
        if mark <= names {
            let name = path.strip_prefix("data.").unwrap_or(path);
            problem(
                path,
                format!("{name} is {mark}, but tokens 1 to {names} are names"),
                &format!("set {name} to {} or more, or leave it out", names + 1),
            );
        }
    }
    let [bos, query, ans, eos] = MARKS.map(|path| int(fields, path));
    if query == ans || [query, ans].contains(&bos) || eos == query {
        problem(
            "data.eos",
            format!("bos {bos}, query {query}, ans {ans} and eos {eos} cannot be told apart"),
            "leave them out (9999, 9997, 9998, 9998), or give bos, query and ans three numbers and eos none of query's",
        );
    }
}
