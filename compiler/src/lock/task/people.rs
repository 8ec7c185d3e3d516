//! The tasks that are texts about people, Capo and the multi-hop birth years, as a lock knows them.
//!
//! In: the data fields of an experiment. Out: how many byte tokens they use, their shortest sample, and the
//! generator's own bounds. Must stay true: numbers here are those of the generator's texts, which a test of the
//! runtime counts; what the generator refuses is refused here (data spec, sections 4 and 7.1).

use crate::field::Fields;
use crate::lock::experiment::{int, list, text};

/// Bytes and two marks.
const BYTES: i64 = 258;
/// Bytes that occur, and the mark between texts.
const CAPO_BYTES: i64 = 76;
const MULTIHOP_BYTES: i64 = 82;

/// A window of fewer tokens would hardly ever hold a whole biography; they have 367 bytes on average.
const BIOGRAPHY: i64 = 512;

/// A statement about one person with the shortest names.
const STATEMENT: i64 = 37;

/// The years that people of a group can have.
const YEARS: i64 = 60;
/// Names in one text at the most.
const PEOPLE: i64 = 1000;

/// Tokens in use.
pub(super) fn bytes(fields: &Fields) -> i64 {
    match (text(fields, "data.ids"), text(fields, "data.task")) {
        ("dense", "capo") => CAPO_BYTES,
        ("dense", _) => MULTIHOP_BYTES,
        _ => BYTES,
    }
}

/// No multi-hop text is shorter than its statements.
pub(super) fn least_tokens(fields: &Fields) -> i64 {
    int(fields, "data.N") * int(fields, "data.k") * STATEMENT
}

pub(super) fn check_biographies(fields: &Fields, problem: &mut impl FnMut(&str, String, &str)) {
    if text(fields, "data.order") == "published" {
        problem(
            "data.order",
            "order is \"published\", but the published biographies are one a person, in turn, and no windows"
                .to_owned(),
            "write order = \"indexed\", which draws people and sentences anew for each window",
        );
    }
    let seq_len = int(fields, "data.seq_len");
    let bits = list(fields, "evaluation.metrics").iter().any(|metric| metric.plain() == "bits");
    if bits && seq_len < BIOGRAPHY {
        problem(
            "data.seq_len",
            format!(
                "a window of {seq_len} tokens hardly ever holds a whole biography, and bits are counted of whole ones"
            ),
            &format!(
                "set seq_len to {BIOGRAPHY} or more, or leave \"bits\" out of evaluation.metrics"
            ),
        );
    }
}

pub(super) fn check_groups(fields: &Fields, problem: &mut impl FnMut(&str, String, &str)) {
    let (n, k) = (int(fields, "data.N"), int(fields, "data.k"));
    if n > YEARS {
        problem(
            "data.N",
            format!("N is {n}, but each of N people has another year of {YEARS}"),
            &format!("set N to a value from 1 to {YEARS}"),
        );
    } else if n * k > PEOPLE {
        problem(
            "data.k",
            format!("N x k is {n} x {k} = {} people, but a text names {PEOPLE} at the most", n * k),
            &format!("set k to {} or less, or lower N", PEOPLE / n),
        );
    }
}
