//! The values of a field as a difference shows them: with units, decimals, and the relative change.

use super::model::{Change, SourceLine, Subject};
use crate::field::FieldValue;

impl Change {
    pub(super) fn of_field(
        path: &str,
        a: Option<&FieldValue>,
        b: Option<&FieldValue>,
        unit: &str,
        places: [Option<SourceLine>; 2],
    ) -> Change {
        let shown = |value: &FieldValue| {
            // A word, such as `never`, has no unit.
            let unit = if matches!(value, FieldValue::Text(_)) { "" } else { unit };
            let space = if unit.is_empty() { "" } else { " " };
            let one = unit.strip_suffix('s').filter(|_| matches!(value, FieldValue::Int(1)));
            let unit = one.unwrap_or(unit);
            let plain = value.plain();
            let text = decimal(&plain).map_or(plain.clone(), |about| format!("{about} ({plain})"));
            format!("{text}{space}{unit}")
        };
        let note = match (a, b) {
            (Some(a), Some(b)) => percent(a, b),
            (Some(_), None) | (None, Some(_)) | (None, None) => String::new(),
        };
        Change {
            path: path.to_owned(),
            subject: Subject::Field,
            a: a.map(shown),
            b: b.map(shown),
            defaults: [false, false],
            places,
            note,
        }
    }
}

/// A decimal for a fraction that is hard to read, such as a number of epochs.
fn decimal(text: &str) -> Option<String> {
    let (over, under) = text.split_once('/')?;
    let (over, under): (i128, i128) = (over.parse().ok()?, under.parse().ok()?);
    if under < 1000 {
        return None;
    }
    // Exact integers, rounded to the nearest ten thousandth.
    let scaled = over.checked_mul(20_000)?.checked_div(under)?.checked_add(over.signum())? / 2;
    let sign = if scaled < 0 { "-" } else { "" };
    let (units, rest) = (scaled.unsigned_abs() / 10_000, scaled.unsigned_abs() % 10_000);
    Some(format!("{sign}{units}.{rest:04}"))
}

/// The relative change of an integer in percent, with two decimals; exact arithmetic, rounded down.
pub(crate) fn percent(a: &FieldValue, b: &FieldValue) -> String {
    let integer = |value: &FieldValue| match value {
        FieldValue::Int(n) => Some(i128::from(*n)),
        FieldValue::Big(n) => i128::try_from(*n).ok(),
        FieldValue::Real(_) | FieldValue::Bool(_) | FieldValue::Text(_) | FieldValue::List(_) => {
            None
        }
    };
    let (Some(a), Some(b)) = (integer(a), integer(b)) else { return String::new() };
    let Some(difference) = b.checked_sub(a).and_then(|d| d.checked_mul(1_000_000)) else {
        return String::new();
    };
    if a <= 0 {
        return String::new();
    }
    let millionths = (difference / a).unsigned_abs();
    let sign = if difference < 0 { '-' } else { '+' };
    let (units, rest) = (millionths / 10_000, millionths % 10_000);
    if units == 0 && rest < 1000 {
        format!("{sign}0.{rest:04}%")
    } else {
        format!("{sign}{units}.{:02}%", rest / 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_fractions_are_shown_with_decimals_too() {
        for (text, want) in [
            ("1/30", None),
            ("12345/6789", Some("1.8184")),
            ("1/20000", Some("0.0001")),
            ("1/30000", Some("0.0000")),
            ("-3/2000", Some("-0.0015")),
            ("2", None),
        ] {
            assert_eq!(decimal(text).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn percents_are_of_exact_integers() {
        let change = |a: i64, b: i64| percent(&FieldValue::Int(a), &FieldValue::Int(b));
        assert_eq!(change(1_364_396_032, 1_366_460_416), "+0.15%");
        assert_eq!(change(1000, 990), "-1.00%");
        assert_eq!(change(1_000_000, 1_000_050), "+0.0050%");
        assert_eq!(change(1, 3), "+200.00%");
        assert_eq!(change(0, 3), "");
    }
}
