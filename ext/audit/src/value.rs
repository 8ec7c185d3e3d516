//! The value of a key of an audited experiment: a cell of a table, a scalar of a foreign file, or a field of a lock.
//!
//! Numbers are exact, so that `0.0200`, `2e-2` and a lock's `0.02` are equal.

use std::fmt;

use compiler::number::Ratio;
use dsl::{Decimal, FileId, Span};
use lab::field::FieldValue;

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyValue {
    /// An exact number.
    Number(Ratio),
    /// `true` or `false`.
    Bool(bool),
    /// Any other text.
    Text(String),
    /// Several values, in order.
    List(Vec<KeyValue>),
}

impl KeyValue {
    /// A text as it is, even if it looks like a number.
    pub fn text(text: impl Into<String>) -> KeyValue {
        KeyValue::Text(text.into())
    }

    /// An integer.
    pub fn int(n: i64) -> KeyValue {
        KeyValue::Number(Ratio { num: i128::from(n), den: 1 })
    }

    /// Parses a cell or scalar as written in a file; `None` if it is empty.
    pub fn parse(cell: &str) -> Option<KeyValue> {
        let cell = cell.trim();
        Some(match cell {
            "" => return None,
            "true" | "True" | "TRUE" => KeyValue::Bool(true),
            "false" | "False" | "FALSE" => KeyValue::Bool(false),
            _ => match number(cell) {
                Some(ratio) => KeyValue::Number(ratio),
                None => numbers(cell).unwrap_or_else(|| KeyValue::text(cell)),
            },
        })
    }

    /// Like [`KeyValue::parse`], for a key that names something: `2.10` is another version than `2.1`.
    pub fn named(cell: &str) -> Option<KeyValue> {
        let cell = cell.trim();
        (!cell.is_empty()).then(|| KeyValue::text(cell))
    }

    /// Parses comma-separated words. Their order is ignored.
    pub fn words(cell: &str) -> Option<KeyValue> {
        let mut words: Vec<&str> =
            cell.split(',').map(str::trim).filter(|w| !w.is_empty()).collect();
        words.sort_unstable();
        let list = words.into_iter().map(KeyValue::text).collect::<Vec<_>>();
        (!list.is_empty()).then_some(KeyValue::List(list))
    }

    /// `yes`, `no`, `on` and `off` as true and false.
    pub(crate) fn switched(self) -> KeyValue {
        let is = |words: [&str; 2]| match &self {
            KeyValue::Text(text) => words.iter().any(|word| text.eq_ignore_ascii_case(word)),
            KeyValue::Number(_) | KeyValue::Bool(_) | KeyValue::List(_) => false,
        };
        match (is(["yes", "on"]), is(["no", "off"])) {
            (true, _) => KeyValue::Bool(true),
            (false, true) => KeyValue::Bool(false),
            (false, false) => self,
        }
    }

    /// The number, if it is one.
    pub fn number(&self) -> Option<Ratio> {
        match self {
            KeyValue::Number(ratio) => Some(*ratio),
            KeyValue::Bool(_) | KeyValue::Text(_) | KeyValue::List(_) => None,
        }
    }

    /// Whether it is a word for yes.
    pub(crate) fn is_on(&self) -> bool {
        match self {
            KeyValue::Text(text) => {
                ["yes", "on"].iter().any(|word| text.eq_ignore_ascii_case(word))
            }
            KeyValue::Bool(on) => *on,
            KeyValue::Number(_) | KeyValue::List(_) => false,
        }
    }

    /// Whether this value switches a treatment off.
    pub(crate) fn is_off(&self) -> bool {
        match self {
            KeyValue::Number(ratio) => ratio.num == 0,
            KeyValue::Bool(on) => !on,
            KeyValue::Text(text) => {
                let off = ["", "none", "empty", "no", "off"];
                off.iter().any(|word| text.eq_ignore_ascii_case(word))
            }
            KeyValue::List(items) => items.is_empty(),
        }
    }
}

/// Several numbers with commas between them.
fn numbers(cell: &str) -> Option<KeyValue> {
    let items = cell.contains(',').then(|| cell.split(','))?;
    let numbers = items.map(|item| number(item.trim()).map(KeyValue::Number));
    numbers.collect::<Option<Vec<KeyValue>>>().map(KeyValue::List)
}

/// `12`, `-0.5`, `1e-5`, `1/30`; not `012`, which is a name, or a number of base eight.
fn number(text: &str) -> Option<Ratio> {
    let digits = text.trim_start_matches(['-', '+']);
    if digits.starts_with('0') && digits.chars().nth(1).is_some_and(|c| c.is_ascii_digit()) {
        return None;
    }
    if let Some((over, under)) = text.split_once('/') {
        let (over, under) = (over.parse::<i64>().ok()?, under.parse::<i64>().ok()?);
        return Ratio::new(i128::from(over), i128::from(under));
    }
    // A name that starts like a number, such as `1T`, is not a decimal.
    Ratio::from_decimal(Decimal::parse(text).ok()?)
}

/// An exact number as text: an integer, a decimal, or a fraction.
pub(crate) fn shown(ratio: Ratio) -> String {
    compiler::tree::Value::of_ratio(ratio, Span::new(FileId(0), 0, 0)).text()
}

/// Whether two numbers differ by at most a share of the second.
pub(crate) fn within_share(a: Ratio, b: Ratio, share: Ratio) -> bool {
    let bound = b.mul(share).map(|bound| Ratio { num: bound.num.abs(), den: bound.den });
    let gap = a.add(b.neg()).map(|gap| Ratio { num: gap.num.abs(), den: gap.den });
    match (gap, bound) {
        (Some(gap), Some(bound)) => gap.compare(bound).is_le(),
        // The difference overflows exact arithmetic: only equal values count.
        (None, _) | (_, None) => a == b,
    }
}

/// A quotient with four significant digits, and `≈` if digits were dropped.
pub(crate) fn rounded(ratio: Ratio) -> String {
    let exact = shown(ratio);
    if exact.len() <= 6 && !exact.contains('/') {
        return exact;
    }
    let (mut scale, mut places) = (1i128, 0usize);
    let negative = ratio.num < 0;
    let size = ratio.num.unsigned_abs();
    let under = ratio.den.unsigned_abs();
    // Four digits, counted from the first nonzero one.
    while places < 12 && size.saturating_mul(scale.unsigned_abs()) / under < 1000 {
        scale = scale.saturating_mul(10);
        places += 1;
    }
    let digits = (size.saturating_mul(scale.unsigned_abs()) + under / 2) / under;
    let units = digits / scale.unsigned_abs();
    let rest = digits % scale.unsigned_abs();
    let sign = if negative { "-" } else { "" };
    let fraction = format!("{rest:0places$}");
    let fraction = fraction.trim_end_matches('0');
    match places == 0 || fraction.is_empty() {
        true => format!("{sign}{units}"),
        false => format!("{sign}{units}.{fraction}"),
    }
}

impl From<&FieldValue> for KeyValue {
    fn from(value: &FieldValue) -> KeyValue {
        match value {
            FieldValue::Int(n) => KeyValue::int(*n),
            FieldValue::Big(n) => match i128::try_from(*n).ok() {
                Some(n) => KeyValue::Number(Ratio { num: n, den: 1 }),
                None => KeyValue::text(value.to_string()),
            },
            FieldValue::Real(x) => match Ratio::from_decimal(*x) {
                Some(ratio) => KeyValue::Number(ratio),
                None => KeyValue::text(x.to_string()),
            },
            FieldValue::Bool(b) => KeyValue::Bool(*b),
            // Fractions without a finite decimal are text in a lock.
            FieldValue::Text(text) => match number(text) {
                Some(ratio) if text.contains('/') => KeyValue::Number(ratio),
                Some(_) | None => KeyValue::text(text),
            },
            FieldValue::List(items) => KeyValue::List(items.iter().map(KeyValue::from).collect()),
        }
    }
}

impl fmt::Display for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyValue::Number(ratio) => f.write_str(&shown(*ratio)),
            KeyValue::Bool(b) => write!(f, "{b}"),
            KeyValue::Text(text) => f.write_str(text),
            KeyValue::List(items) => {
                let parts: Vec<String> = items.iter().map(KeyValue::to_string).collect();
                f.write_str(&parts.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_values() {
        for (cell, want) in [
            ("0.0200", "0.02"),
            ("2e-2", "0.02"),
            ("1006632960000", "1006632960000"),
            ("True", "true"),
            ("TRUE", "true"),
            ("FALSE", "false"),
            ("1/30", "1/30"),
            ("1T", "1T"),
            ("1e-999", "1e-999"),
            ("a,b", "a,b"),
        ] {
            assert_eq!(KeyValue::parse(cell).unwrap().to_string(), want);
        }
        assert_eq!(KeyValue::parse("  "), None);
        assert_eq!(KeyValue::parse("2e-2"), KeyValue::parse("0.020"));
        assert_eq!(KeyValue::words("b, a"), KeyValue::words("a,b"));
    }

    #[test]
    fn quotients_for_people() {
        for (over, under, want) in [
            (8000, 240_000, "0.03333"),
            (96, 10, "9.6"),
            (1_006_632_960_000, 1_000_000_000_000, "1.007"),
            (-1, 3, "-0.3333"),
            (1_000_000, 3, "333333"),
            (0, 5, "0"),
        ] {
            assert_eq!(rounded(Ratio::new(over, under).unwrap()), want);
        }
    }
}
