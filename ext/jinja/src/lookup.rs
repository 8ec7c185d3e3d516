//! Items and attributes of Python's values.

use std::sync::Arc;

use crate::method_names::has;
use crate::value::{RANGE, Value};

/// `value[key]`; what is absent is undefined.
pub(crate) fn item(value: &Value, key: &Value) -> Result<Value, String> {
    let at = |length: usize| {
        let index = key.as_int()?;
        let length = i128::try_from(length).ok()?;
        let index = if index < 0 { index + length } else { index };
        (0..length).contains(&index).then_some(usize::try_from(index).ok()?)
    };
    let element = match value {
        Value::Undefined(message) => return Err(message.to_string()),
        Value::List(items) | Value::Tuple(items) | Value::View(RANGE, items) => {
            at(items.len()).and_then(|index| items.get(index).cloned())
        }
        Value::Str(text) => {
            let character = at(text.chars().count()).and_then(|index| text.chars().nth(index));
            character.map(|c| Value::from(c.encode_utf8(&mut [0; 4]) as &str))
        }
        Value::Map(_) => value.get(key),
        _ => None,
    };
    match (element, key) {
        (Some(element), _) => Ok(element),
        (None, Value::Str(name)) => attribute(value, name),
        (None, key) => Ok(Value::undefined(format!(
            "{} has no element {}",
            object(value),
            key.repr().unwrap_or_default()
        ))),
    }
}

pub(crate) fn object(value: &Value) -> String {
    match value {
        Value::None => "None".to_owned(),
        other => format!("'{} object'", other.type_name()),
    }
}

/// Attributes of Python's numbers, which are refused by name.
const NUMBER_ATTRIBUTES: &[&str] = &[
    "as_integer_ratio",
    "bit_count",
    "bit_length",
    "conjugate",
    "denominator",
    "fromhex",
    "from_bytes",
    "hex",
    "imag",
    "numerator",
    "real",
    "to_bytes",
];

/// `value.name`: a method before a key of that name.
pub(crate) fn attribute(value: &Value, name: &str) -> Result<Value, String> {
    if let Value::Undefined(message) = value {
        return Err(message.to_string());
    }
    if name.starts_with("__") {
        return Err(format!("access to attribute '{name}' of {} is not allowed", object(value)));
    }
    let is_number = matches!(value, Value::Int(_) | Value::Float(_) | Value::Bool(_));
    if matches!(value, Value::Function(_) | Value::Method(_) | Value::Macro(_))
        || is_number && NUMBER_ATTRIBUTES.contains(&name)
    {
        return Err(format!("`.{name}` of {} is not supported by canonc", object(value)));
    }
    if let Value::Loop(state) = value
        && let Some(result) = loop_attribute(state, name)
    {
        return Ok(result);
    }
    if matches!(value, Value::Tuple(_)) && ["grouper", "list"].contains(&name) {
        return Err(format!("`.{name}` of a group is not supported by canonc: unpack it instead"));
    }
    if has(value, name) {
        return Ok(Value::Method(Arc::new((value.clone(), name.to_owned()))));
    }
    if let Some(result) = value.get(&Value::from(name)) {
        return Ok(result);
    }
    Ok(Value::undefined(format!("{} has no attribute '{name}'", object(value))))
}

fn loop_attribute(state: &crate::value::Loop, name: &str) -> Option<Value> {
    let (index, length) = (state.index, state.items.len());
    let neighbour = |index: Option<usize>, which: &str| {
        let item = index.and_then(|index| state.items.get(index).cloned());
        item.unwrap_or_else(|| Value::undefined(format!("there is no {which} item")))
    };
    Some(match name {
        "index" => Value::int(index + 1),
        "index0" => Value::int(index),
        "revindex" => Value::int(length - index),
        "revindex0" => Value::int(length - index - 1),
        "first" => Value::Bool(index == 0),
        "last" => Value::Bool(index + 1 == length),
        "length" => Value::int(length),
        // Only recursive loops are deeper.
        "depth" => Value::int(1),
        "depth0" => Value::int(0),
        "previtem" => neighbour(index.checked_sub(1), "previous"),
        "nextitem" => neighbour(Some(index + 1), "next"),
        _ => return None,
    })
}
