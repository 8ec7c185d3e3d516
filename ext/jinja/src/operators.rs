//! Operators on Python's values.

use std::sync::PoisonError;

use crate::entries::LARGEST;
use crate::format;
use crate::lookup;
use crate::value::{RANGE, Value};

fn unsupported(operator: &str, left: &Value, right: &Value) -> String {
    match (left, right) {
        (Value::Undefined(message), _) | (_, Value::Undefined(message)) => message.to_string(),
        _ => format!(
            "unsupported operand type(s) for {operator}: '{}' and '{}'",
            left.type_name(),
            right.type_name()
        ),
    }
}

fn bounded(size: usize) -> Result<(), String> {
    match size <= LARGEST {
        true => Ok(()),
        false => Err(format!("a value of {size} bytes; the limit is {LARGEST}")),
    }
}

fn bounded_items(count: usize) -> Result<(), String> {
    bounded(count.saturating_mul(size_of::<Value>()))
}

pub(crate) fn add(left: &Value, right: &Value) -> Result<Value, String> {
    match (left, right) {
        (Value::Str(a), Value::Str(b)) => {
            bounded(a.len() + b.len())?;
            Ok(Value::from([&**a, &**b].concat()))
        }
        (Value::List(a), Value::List(b)) => {
            bounded_items(a.len() + b.len())?;
            Ok(Value::from([&a[..], &b[..]].concat()))
        }
        (Value::Tuple(a), Value::Tuple(b)) => {
            bounded_items(a.len() + b.len())?;
            Ok(Value::tuple([&a[..], &b[..]].concat()))
        }
        (Value::Str(_), other) if !other.is_undefined() => {
            Err(format!("can only concatenate str (not \"{}\") to str", other.type_name()))
        }
        _ => numbers("+", left, right, i128::checked_add, |a, b| a + b),
    }
}

fn numbers(
    operator: &str,
    left: &Value,
    right: &Value,
    whole: impl Fn(i128, i128) -> Option<i128>,
    float: impl Fn(f64, f64) -> f64,
) -> Result<Value, String> {
    if let (Some(a), Some(b)) = (left.as_int(), right.as_int()) {
        let result = whole(a, b).map(Value::Int);
        return result.ok_or_else(|| format!("{a} {operator} {b} is larger than canonc computes"));
    }
    match (left.as_float(), right.as_float()) {
        (Some(a), Some(b)) => Ok(Value::Float(float(a, b))),
        _ => Err(unsupported(operator, left, right)),
    }
}

pub(crate) fn subtract(left: &Value, right: &Value) -> Result<Value, String> {
    numbers("-", left, right, i128::checked_sub, |a, b| a - b)
}

pub(crate) fn multiply(left: &Value, right: &Value) -> Result<Value, String> {
    for (value, times) in [(left, right), (right, left)] {
        let Some(times) = times.as_int() else { continue };
        let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
        let size = |length: usize| length.saturating_mul(times);
        match value {
            Value::Str(text) => {
                bounded(size(text.len()))?;
                return Ok(Value::from(text.repeat(times)));
            }
            Value::List(items) => {
                bounded_items(size(items.len()))?;
                return Ok(Value::from(repeated(items, times)));
            }
            Value::Tuple(items) => {
                bounded_items(size(items.len()))?;
                return Ok(Value::tuple(repeated(items, times)));
            }
            _ => {}
        }
    }
    numbers("*", left, right, i128::checked_mul, |a, b| a * b)
}

fn repeated(items: &[Value], times: usize) -> Vec<Value> {
    std::iter::repeat_n(items, times).flatten().cloned().collect()
}

fn is_zero(value: &Value) -> bool {
    value.as_float() == Some(0.0)
}

pub(crate) fn divide(left: &Value, right: &Value) -> Result<Value, String> {
    match (left.as_float(), right.as_float()) {
        (Some(_), Some(_)) if is_zero(right) => Err("division by zero".to_owned()),
        (Some(a), Some(b)) => Ok(Value::Float(a / b)),
        _ => Err(unsupported("/", left, right)),
    }
}

/// Rounds down, also for negative numbers.
pub(crate) fn floor_divide(left: &Value, right: &Value) -> Result<Value, String> {
    if is_zero(right) && left.as_float().is_some() {
        return Err("integer division or modulo by zero".to_owned());
    }
    let of_integers = |a: i128, b: i128| {
        let quotient = a.checked_div(b)?;
        Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
    };
    numbers("//", left, right, of_integers, |a, b| {
        // As Python: of the exact remainder, not of the rounded quotient.
        let rest = a % b;
        let quotient = (a - rest) / b;
        let quotient =
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) { quotient - 1.0 } else { quotient };
        if quotient - quotient.floor() > 0.5 { quotient.floor() + 1.0 } else { quotient.floor() }
    })
}

/// The remainder, with the divisor's sign; of a text, formatting.
pub(crate) fn modulo(left: &Value, right: &Value) -> Result<Value, String> {
    if let Value::Str(text) = left {
        return format::percent(text, right).map(Value::from);
    }
    if is_zero(right) && left.as_float().is_some() {
        return Err("integer division or modulo by zero".to_owned());
    }
    let of_integers = |a: i128, b: i128| {
        let rest = a.checked_rem(b)?;
        Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
    };
    let of_floats = |a: f64, b: f64| {
        let rest = a % b;
        if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
    };
    numbers("%", left, right, of_integers, of_floats)
}

pub(crate) fn power(left: &Value, right: &Value) -> Result<Value, String> {
    match (left.as_int(), right.as_int()) {
        (Some(base), Some(exponent)) if exponent >= 0 => {
            let exponent = u32::try_from(exponent).ok();
            let result = exponent.and_then(|exponent| base.checked_pow(exponent));
            result
                .map(Value::Int)
                .ok_or_else(|| "a power is larger than canonc computes".to_owned())
        }
        _ => match (left.as_float(), right.as_float()) {
            (Some(0.0), Some(exponent)) if exponent < 0.0 => {
                Err("0.0 cannot be raised to a negative power".to_owned())
            }
            (Some(base), Some(exponent)) if base < 0.0 && exponent.fract() != 0.0 => {
                Err("a power of a negative number is complex".to_owned())
            }
            (Some(base), Some(exponent)) => Ok(Value::Float(base.powf(exponent))),
            _ => Err(unsupported("** or pow()", left, right)),
        },
    }
}

pub(crate) fn negate(value: &Value) -> Result<Value, String> {
    match (value, value.as_int()) {
        (_, Some(number)) => {
            let negated = number.checked_neg().map(Value::Int);
            negated.ok_or_else(|| format!("-({number}) is larger than canonc computes"))
        }
        (Value::Float(number), _) => Ok(Value::Float(-number)),
        (Value::Undefined(message), _) => Err(message.to_string()),
        _ => Err(format!("bad operand type for unary -: '{}'", value.type_name())),
    }
}

pub(crate) fn contains(container: &Value, item: &Value) -> Result<bool, String> {
    match container {
        Value::Str(text) | Value::Markup(text) => match item {
            Value::Str(part) | Value::Markup(part) => Ok(text.contains(&**part)),
            Value::Undefined(message) => Err(message.to_string()),
            other => Err(format!(
                "'in <string>' requires string as left operand, not {}",
                other.type_name()
            )),
        },
        Value::Map(_) => {
            item.hashable()?;
            Ok(container.get(item).is_some())
        }
        Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            Err(format!("argument of type '{}' is not iterable", container.type_name()))
        }
        // What was looked at is gone.
        Value::Generator(generator) => {
            let mut items = generator.items.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(std::iter::from_fn(|| items.pop_front()).any(|other| other.equals(item)))
        }
        Value::List(items) | Value::Tuple(items) | Value::View(_, items) => {
            Ok(items.iter().any(|other| other.equals(item)))
        }
        other => Ok(other.iterate()?.iter().any(|other| other.equals(item))),
    }
}

/// `value[start:stop:step]`.
pub(crate) fn slice(value: &Value, bounds: [Value; 3]) -> Result<Value, String> {
    let [start, stop, step] = bounds;
    let integer = |bound: &Value| match bound {
        Value::None => Ok(None),
        other => other.as_int().map(Some).ok_or_else(|| {
            "slice indices must be integers or None or have an __index__ method".to_owned()
        }),
    };
    let (start, stop, step) = (integer(&start)?, integer(&stop)?, integer(&step)?.unwrap_or(1));
    if step == 0 {
        return Err("slice step cannot be zero".to_owned());
    }
    let indices = |length: usize| {
        let length = i128::try_from(length).unwrap_or(i128::MAX);
        let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
        let bound = |bound: Option<i128>, absent: i128| match bound {
            None => absent,
            Some(at) if at < 0 => (at + length).max(low),
            Some(at) => at.min(high),
        };
        let (first, end) = match step > 0 {
            true => (bound(start, low), bound(stop, high)),
            false => (bound(start, high), bound(stop, low)),
        };
        let mut indices = Vec::new();
        let mut at = first;
        while (step > 0 && at < end) || (step < 0 && at > end) {
            indices.extend(usize::try_from(at));
            at += step;
        }
        indices
    };
    let pick = |items: &[Value]| -> Vec<Value> {
        indices(items.len()).into_iter().filter_map(|at| items.get(at).cloned()).collect()
    };
    match value {
        Value::Str(text) => {
            let characters: Vec<char> = text.chars().collect();
            let picked = indices(characters.len()).into_iter();
            Ok(Value::from(picked.filter_map(|at| characters.get(at)).collect::<String>()))
        }
        Value::List(items) => Ok(Value::from(pick(items))),
        Value::Tuple(items) => Ok(Value::tuple(pick(items))),
        Value::View(RANGE, items) => Ok(Value::View(RANGE, Value::items(pick(items)))),
        Value::Undefined(message) => Err(message.to_string()),
        other => Ok(Value::undefined(format!("{} cannot be sliced", lookup::object(other)))),
    }
}

/// Sets an attribute of a `namespace`.
pub(crate) fn set_attribute(target: &Value, name: &str, value: Value) -> Result<(), String> {
    let Value::Namespace(entries) = target else {
        return Err("cannot assign attribute on non-namespace object".to_owned());
    };
    if name.starts_with('_') {
        return Err(format!("a namespace has no attribute that begins with `_`: '{name}'"));
    }
    if value.measure().is_mutable {
        return Err(
            "a namespace or a loop inside a namespace is not supported by canonc".to_owned()
        );
    }
    let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
    match entries.iter_mut().find(|(key, _)| key.as_str() == Some(name)) {
        Some((_, old)) => *old = value,
        None => entries.push((Value::from(name), value)),
    }
    Ok(())
}
