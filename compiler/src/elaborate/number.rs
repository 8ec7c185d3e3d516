//! Values as numbers: exact roots, and numbers as configuration of a primitive.

use crate::number::Root;
use crate::op::Attr;
use crate::tree::Value;

pub(super) fn as_root(value: &Value) -> Option<Root> {
    match value {
        Value::Root(root) => Some(*root),
        other => other.as_ratio().map(Root::rational),
    }
}

/// Whether this is a number that exact arithmetic cannot represent.
pub(super) fn out_of_range(value: &Value) -> bool {
    matches!(value, Value::Decimal(_)) && value.as_ratio().is_none()
}

/// A number as configuration. A decimal if possible, so that `x / 4` and `x * 0.25` give the same graph.
pub(super) fn exact(value: &Value) -> Option<Attr> {
    let root = as_root(value)?;
    Some(value.as_decimal().map_or(Attr::Root(root), Attr::Decimal))
}
