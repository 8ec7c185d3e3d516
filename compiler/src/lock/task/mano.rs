//! Mano in locks: the generator's own bounds.
//!
//! In: the data fields of an experiment. Out: problems. Must stay true: parameters that the generator refuses are
//! refused here with the same message (data spec, section 5).

use crate::field::{FieldValue, Fields};
use crate::lock::experiment::{int, list, text};

/// With division: most operations per number below the modulus. With more, hardly any expression has a value.
const DIVISIBLE: i64 = 4;

pub(super) fn check(fields: &Fields, problem: &mut impl FnMut(&str, String, &str)) {
    let (lens, qids) = (list(fields, "data.lens"), list(fields, "data.qids"));
    if lens.is_empty() || lens.len() != qids.len() {
        problem(
            "data.qids",
            format!("lens has {} entries and qids {}", lens.len(), qids.len()),
            "give lens at least one length and qids one number for each, or leave both out",
        );
    }
    let most = int(fields, "data.L");
    let long = lens.iter().find_map(|len| match len {
        FieldValue::Int(len) if *len > most => Some(*len),
        FieldValue::Int(_)
        | FieldValue::Big(_)
        | FieldValue::Real(_)
        | FieldValue::Bool(_)
        | FieldValue::Text(_)
        | FieldValue::List(_) => None,
    });
    if let Some(long) = long {
        problem(
            "data.lens",
            format!("lens has {long}, but L is {most}, the most operations of an expression"),
            &format!("set L to {long} or more, or leave {long} out of lens"),
        );
    }
    let bos = int(fields, "data.bos");
    if bos < 9901 {
        problem(
            "data.bos",
            format!("bos is {bos}, but tokens up to 9900 may be values"),
            "leave bos out: it is 9999, as published",
        );
    }
    divides(fields, problem);
}

/// Checks that divisions have inverses and rarely divide by zero.
fn divides(fields: &Fields, problem: &mut impl FnMut(&str, String, &str)) {
    let (letters, modulus) = (text(fields, "data.ttype"), int(fields, "data.value_mod"));
    if !letters.contains('d') {
        return;
    }
    if let Some(factor) = (2..modulus).find(|factor| modulus % factor == 0) {
        return problem(
            "data.value_mod",
            format!(
                "ttype `{letters}` divides, but value_mod is {modulus}, a multiple of {factor}, which has no inverse"
            ),
            "set value_mod to a prime, such as 23, or leave `d` out of ttype",
        );
    }
    let (most, bound) = (int(fields, "data.L"), DIVISIBLE * modulus);
    if most > bound {
        problem(
            "data.L",
            format!(
                "L is {most}, but with division modulo {modulus} hardly any expression of more than {bound} operations has a value"
            ),
            &format!("set L to {bound} or less, raise value_mod, or leave `d` out of ttype"),
        );
    }
}
