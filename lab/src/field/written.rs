//! Values as TOML writes them: numbers by their digits, never through a float. NaN, infinity and −0 are refused.

use dsl::Decimal;
use toml::Spanned;
use toml::de::DeValue;

use super::value::quote;

/// Most significant digits of a real, so that products of two of them and a step count are exact.
pub(crate) const MAX_DIGITS: usize = 9;
/// Most entries of a list.
pub(crate) const MAX_LIST: usize = 1000;
/// Most bytes of a name.
pub(crate) const MAX_NAME: usize = 120;

/// Formats a TOML value on one line.
pub(crate) fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => {
            let short: String = text.chars().take(60).collect();
            let more = if short.len() < text.len() { "…" } else { "" };
            quote(&format!("{short}{more}"))
        }
        DeValue::Integer(n) => n.to_string(),
        DeValue::Float(x) => x.to_string(),
        DeValue::Boolean(b) => b.to_string(),
        DeValue::Datetime(d) => format!("the date {d}"),
        DeValue::Array(items) => {
            let parts: Vec<String> = items.iter().take(6).map(|i| shown(i.get_ref())).collect();
            let more = if items.len() > parts.len() { ", …" } else { "" };
            format!("[{}{more}]", parts.join(", "))
        }
        DeValue::Table(_) => "a table".to_owned(),
    }
}

pub(crate) fn string<'a>(value: &'a DeValue<'_>) -> Option<&'a str> {
    if let DeValue::String(text) = value { Some(text) } else { None }
}

/// The items of a list that is not too long.
pub(super) fn short<'a, 'i>(
    items: &'a [Spanned<DeValue<'i>>],
) -> Result<&'a [Spanned<DeValue<'i>>], String> {
    match items.len() {
        0..=MAX_LIST => Ok(items),
        more => Err(format!("a list of {more} is longer than {MAX_LIST}")),
    }
}

/// One entry of an axis, as values of `fields` fields; `None` if their number differs.
pub(crate) fn row<'a, 'i>(value: &'a DeValue<'i>, fields: usize) -> Option<Vec<&'a DeValue<'i>>> {
    if fields == 1 {
        return Some(vec![value]);
    }
    let DeValue::Array(items) = value else { return None };
    (items.len() == fields).then(|| items.iter().map(Spanned::get_ref).collect())
}

/// `: write 2` for the float 2.0.
pub(super) fn as_integer(value: &DeValue<'_>) -> String {
    let DeValue::Float(written) = value else { return String::new() };
    let number = Decimal::parse(written.as_str()).ok().and_then(Decimal::to_int);
    number.map_or(String::new(), |n| format!(": write {n}"))
}

pub(super) fn int(value: &DeValue<'_>) -> Result<i64, String> {
    let DeValue::Integer(written) = value else {
        return Err(format!("{} is not an integer{}", shown(value), as_integer(value)));
    };
    if written.as_str() == "-0" {
        return Err("-0 is not allowed: write 0".to_owned());
    }
    i64::from_str_radix(written.as_str(), written.radix())
        .map_err(|_| format!("{written} does not fit into 64 bits"))
}

/// The exact number with these digits.
pub(super) fn real(value: &DeValue<'_>) -> Result<Decimal, String> {
    let text = match value {
        DeValue::Integer(_) => int(value)?.to_string(),
        DeValue::Float(x) => x.as_str().to_owned(),
        DeValue::String(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => return Err(format!("{} is not a number", shown(value))),
    };
    let digits = text.trim_start_matches(['+', '-']);
    if digits.starts_with("inf") || digits.starts_with("nan") {
        return Err(format!("{text} is not allowed: write a finite number"));
    }
    let x = Decimal::parse(text.strip_prefix('+').unwrap_or(&text))
        .map_err(|_| format!("{text} cannot be stored exactly"))?;
    if x.is_zero() && text.starts_with('-') {
        return Err(format!("{text} is not allowed: write 0"));
    }
    let (mantissa, exponent) = x.parts();
    let digits = mantissa.unsigned_abs().to_string().len();
    if digits > MAX_DIGITS {
        return Err(format!(
            "{text} has {digits} significant digits; at most {MAX_DIGITS} are kept"
        ));
    }
    if !x.is_zero() && !(-40..=30).contains(&exponent) {
        return Err(format!("{text} is outside 1e-40 to 1e30"));
    }
    Ok(x)
}
