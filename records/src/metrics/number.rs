//! Floats in a line of the log: the shortest text that reads back as the same bits, and a quoted word if not finite.

use serde_json::Value;

pub(super) fn float(value: f64) -> String {
    if value.is_finite() { format!("{value:?}") } else { format!("\"{value}\"") }
}

pub(super) fn read_float(value: &Value) -> Option<f64> {
    match value.as_str() {
        None => value.as_f64(),
        Some(text @ ("NaN" | "inf" | "-inf")) => text.parse().ok(),
        Some(_) => None,
    }
}
