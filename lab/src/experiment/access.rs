//! Typed access to checked fields. `complete` has put a value of the right kind at every existing path, so the fallbacks
//! below are never used.

use dsl::Decimal;

use crate::field::{FieldValue, Fields};

pub(super) fn int(fields: &Fields, path: &str) -> i64 {
    fields.get(path).and_then(FieldValue::as_int).unwrap_or(0)
}

pub(super) fn count(fields: &Fields, path: &str) -> u64 {
    u64::try_from(int(fields, path)).unwrap_or(0)
}

pub(super) fn real(fields: &Fields, path: &str) -> Decimal {
    if let Some(FieldValue::Real(x)) = fields.get(path) { *x } else { Decimal::ZERO }
}

pub(super) fn truth(fields: &Fields, path: &str) -> bool {
    matches!(fields.get(path), Some(FieldValue::Bool(true)))
}

pub(super) fn text<'a>(fields: &'a Fields, path: &str) -> &'a str {
    fields.get(path).and_then(FieldValue::as_text).unwrap_or("")
}

pub(super) fn list<'a>(fields: &'a Fields, path: &str) -> &'a [FieldValue] {
    fields.get(path).and_then(FieldValue::as_list).unwrap_or(&[])
}

pub(super) fn seed(fields: &Fields, path: &str) -> u64 {
    match fields.get(path) {
        Some(FieldValue::Int(n)) => *n as u64,
        Some(FieldValue::Big(n)) => *n as u64,
        Some(
            FieldValue::Real(_) | FieldValue::Bool(_) | FieldValue::Text(_) | FieldValue::List(_),
        )
        | None => 0,
    }
}

pub(super) fn counts(fields: &Fields, path: &str) -> Vec<u64> {
    let one = |item: &FieldValue| item.as_int().and_then(|n| u64::try_from(n).ok());
    list(fields, path).iter().filter_map(one).collect()
}

/// Task parameters are integers, booleans, words and lists of integers.
pub(super) fn as_toml(value: &FieldValue) -> toml::Value {
    match value {
        FieldValue::Int(n) => toml::Value::Integer(*n),
        FieldValue::Bool(b) => toml::Value::Boolean(*b),
        FieldValue::List(items) => toml::Value::Array(items.iter().map(as_toml).collect()),
        FieldValue::Text(text) => toml::Value::String(text.clone()),
        FieldValue::Big(_) | FieldValue::Real(_) => toml::Value::String(value.to_string()),
    }
}
