//! Jinja2's tests: `value is name(arguments)`.

use crate::arguments::Arguments;
use crate::operators;
use crate::value::{RANGE, Value};

const WITHOUT_ARGUMENTS: &[&str] = &[
    "boolean",
    "callable",
    "defined",
    "even",
    "false",
    "float",
    "integer",
    "iterable",
    "lower",
    "mapping",
    "none",
    "number",
    "odd",
    "sequence",
    "string",
    "true",
    "undefined",
    "upper",
];

/// The result of a test, or `None` if there is none of this name.
pub(crate) fn test(
    name: &str,
    arguments: &Arguments,
    is_lenient: bool,
) -> Result<Option<bool>, String> {
    let value = arguments.value();
    if ["filter", "test", "escaped"].contains(&name) {
        return Err(format!("the test `{name}` is not supported by canonc"));
    }
    if WITHOUT_ARGUMENTS.contains(&name)
        && (arguments.positional().len() > 1 || !arguments.keywords().is_empty())
    {
        return Err(format!("the test `{name}` takes no arguments"));
    }
    let other = || arguments.at(1).ok_or_else(|| format!("the test `{name}` needs an argument"));
    let compare = |holds: fn(std::cmp::Ordering) -> bool| {
        Ok::<_, String>(value.order(other()?)?.is_some_and(holds))
    };
    let parity = || operators::modulo(value, &Value::Int(2));
    Ok(Some(match name {
        "defined" => !value.is_undefined(),
        "undefined" => value.is_undefined(),
        "none" => matches!(value, Value::None),
        "boolean" => matches!(value, Value::Bool(_)),
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "integer" => matches!(value, Value::Int(_)),
        "float" => matches!(value, Value::Float(_)),
        "number" => value.as_float().is_some(),
        "string" => value.as_str().is_some(),
        "mapping" => matches!(value, Value::Map(_)),
        "sequence" => is_sequence(value, is_lenient),
        "iterable" => is_iterable(value),
        "callable" => is_callable(value),
        "odd" => parity()?.equals(&Value::Int(1)),
        "even" => parity()?.equals(&Value::Int(0)),
        "divisibleby" => operators::modulo(value, other()?)?.equals(&Value::Int(0)),
        "lower" => crate::methods::is_lower(&value.text()?),
        "upper" => crate::methods::is_upper(&value.text()?),
        "in" => operators::contains(other()?, value)?,
        "eq" | "equalto" | "==" => value.equals(other()?),
        "ne" | "!=" => !value.equals(other()?),
        "lt" | "lessthan" | "<" => compare(std::cmp::Ordering::is_lt)?,
        "le" | "<=" => compare(std::cmp::Ordering::is_le)?,
        "gt" | "greaterthan" | ">" => compare(std::cmp::Ordering::is_gt)?,
        "ge" | ">=" => compare(std::cmp::Ordering::is_ge)?,
        "sameas" => is_same(value, other()?)?,
        _ => return Ok(None),
    }))
}

/// Whether a value has a length and items by number or key.
fn is_sequence(value: &Value, is_lenient: bool) -> bool {
    match value {
        Value::Undefined(_) => is_lenient,
        Value::Str(_)
        | Value::Markup(_)
        | Value::List(_)
        | Value::Tuple(_)
        | Value::Map(_)
        | Value::View(RANGE, _) => true,
        _ => false,
    }
}

fn is_iterable(value: &Value) -> bool {
    matches!(
        value,
        Value::Undefined(_)
            | Value::Str(_)
            | Value::Markup(_)
            | Value::List(_)
            | Value::Tuple(_)
            | Value::Map(_)
            | Value::View(..)
            | Value::Generator(_)
            | Value::Loop(_)
    )
}

fn is_callable(value: &Value) -> bool {
    matches!(
        value,
        Value::Function(_)
            | Value::Method(_)
            | Value::Macro(_)
            | Value::Undefined(_)
            | Value::Loop(_)
    )
}

/// Python's `is`.
fn is_same(value: &Value, other: &Value) -> Result<bool, String> {
    match (value, other) {
        (Value::None, Value::None) => Ok(true),
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        _ => Err("the test `sameas` of other values than true, false and none depends on \
                  Python's memory"
            .to_owned()),
    }
}
