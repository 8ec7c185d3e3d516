//! The tasks with texts about people in locks: Capo, and multi-hop birth years.
//!
//! In: the data fields of an experiment. Out: the number of byte tokens they use, their shortest sample, and the
//! generator's own bounds. Must stay true: the numbers here are those of the generator's texts (a test of the
//! runtime counts them); parameters that the generator refuses are refused here (data spec, sections 4 and 7.1).

use crate::field::Fields;
use crate::lock::experiment::{int, list, text};

/// Bytes and two special tokens.
const BYTES: i64 = 258;
/// Distinct bytes in the texts, plus the separator between texts.
const CAPO_BYTES: i64 = 76;
const MULTIHOP_BYTES: i64 = 82;

/// A shorter window would rarely contain a whole biography; their mean length is 367 bytes.
const BIOGRAPHY: i64 = 512;

/// Length of a statement about one person with the shortest names.
const STATEMENT: i64 = 37;

/// The number of possible years for the people of a group.
const YEARS: i64 = 60;
/// Most names in one text.
const PEOPLE: i64 = 1000;

/// The number of tokens in use.
pub(super) fn bytes(fields: &Fields) -> i64 {
    match (text(fields, "data.ids"), text(fields, "data.task")) {
        ("dense", "capo") => CAPO_BYTES,
        ("dense", _) => MULTIHOP_BYTES,
        _ => BYTES,
    }
}

/// Every multi-hop text contains at least its statements.
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
