//! The values of fields, and their canonical text. Equal values have equal texts, and a text reads back to the same value.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};

use dsl::Decimal;

/// A value of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue {
    /// An integer.
    Int(i64),
    /// An integer beyond i63, written as a hexadecimal string: a seed, a count of operations.
    Big(u128),
    /// An exact decimal.
    Real(Decimal),
    /// `true` or `false`.
    Bool(bool),
    /// A word or name.
    Text(String),
    /// Several values, in order.
    List(Vec<FieldValue>),
}

/// The range of a real.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounds {
    /// 0 < x
    Positive,
    /// 0 <= x
    AtLeastZero,
    /// 0 <= x <= 1
    Share,
    /// 0 < x <= 1
    PositiveShare,
    /// 0 <= x < 1
    BelowOne,
}

impl Bounds {
    pub(super) fn hold(self, x: Decimal) -> bool {
        let positive = !x.is_negative() && !x.is_zero();
        let to_one = x.compare(Decimal::ONE);
        match self {
            Bounds::Positive => positive,
            Bounds::AtLeastZero => !x.is_negative(),
            Bounds::Share => !x.is_negative() && to_one != Ordering::Greater,
            Bounds::PositiveShare => positive && to_one != Ordering::Greater,
            Bounds::BelowOne => !x.is_negative() && to_one == Ordering::Less,
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Bounds::Positive => "a number above 0",
            Bounds::AtLeastZero => "a number of 0 or more",
            Bounds::Share => "a number from 0 to 1",
            Bounds::PositiveShare => "a number above 0 and at most 1",
            Bounds::BelowOne => "a number from 0 and below 1",
        }
    }
}

/// A text as a basic TOML string.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

impl FieldValue {
    /// A word or name.
    pub fn text(text: impl Into<String>) -> FieldValue {
        FieldValue::Text(text.into())
    }

    /// A non-negative integer that may exceed i63.
    pub fn count(n: i128) -> FieldValue {
        match i64::try_from(n) {
            Ok(n) => FieldValue::Int(n),
            Err(_) => FieldValue::Big(n.unsigned_abs()),
        }
    }

    /// The integer, unless it is one beyond i63.
    pub fn as_int(&self) -> Option<i64> {
        if let FieldValue::Int(n) = self { Some(*n) } else { None }
    }

    /// The word or name.
    pub fn as_text(&self) -> Option<&str> {
        if let FieldValue::Text(text) = self { Some(text) } else { None }
    }

    /// The items of a list.
    pub fn as_list(&self) -> Option<&[FieldValue]> {
        if let FieldValue::List(items) = self { Some(items) } else { None }
    }

    /// The value for display: as in a lock, but words without quotes and numbers in decimal.
    pub fn plain(&self) -> String {
        match self {
            FieldValue::Text(text) => text.clone(),
            FieldValue::Big(n) => n.to_string(),
            FieldValue::Int(_)
            | FieldValue::Real(_)
            | FieldValue::Bool(_)
            | FieldValue::List(_) => self.to_string(),
        }
    }
}

/// The text in a lock: valid TOML.
impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldValue::Int(n) => write!(f, "{n}"),
            FieldValue::Big(n) => write!(f, "\"0x{n:x}\""),
            FieldValue::Real(x) => write!(f, "{x}"),
            FieldValue::Bool(b) => write!(f, "{b}"),
            FieldValue::Text(text) => f.write_str(&quote(text)),
            FieldValue::List(items) => {
                let parts: Vec<String> = items.iter().map(FieldValue::to_string).collect();
                write!(f, "[{}]", parts.join(", "))
            }
        }
    }
}
