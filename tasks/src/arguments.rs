//! The values of a task's parameters, read from any serde format and checked against the rows. Errors name the first
//! wrong one.

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::{Map, Value};

use super::parameter::{Default, Form, Key, Parameter, Values, last};
use super::{Cause, TaskError};

/// Maximum number of quoted characters of a value.
const MOST_QUOTED: usize = 300;
const LISTED: &str = "`canonc data generate --help` lists the parameters of every task";

/// The values of a task's parameters.
#[derive(Clone, Debug)]
pub struct Arguments {
    task: &'static str,
    parameters: &'static [Parameter],
    /// The given values, by the parameters' names.
    given: Map<String, Value>,
}

impl Arguments {
    /// Reads the parameters of a task, which have these rows. Every value has the form that its row says, and nothing
    /// required is missing; bounds are checked when a value is taken.
    pub fn read<'de, D: Deserializer<'de>>(
        task: &'static str,
        parameters: &'static [Parameter],
        written: D,
    ) -> Result<Arguments, TaskError> {
        let unreadable = |error: &str| {
            let message = format!("task `{task}`: cannot be read: {}", short(error));
            TaskError::new(message, LISTED)
        };
        let written =
            Value::deserialize(written).map_err(|error| unreadable(&error.to_string()))?;
        let Value::Object(written) = written else {
            return Err(unreadable(&format!("{} is not an object", quoted(&written))));
        };
        let mut given = Map::new();
        for (name, value) in written {
            let known = parameters.iter().find(|known| known.names().any(|known| known == name));
            let parameter = known.ok_or_else(|| unknown(task, parameters, &name))?;
            if given.contains_key(parameter.name()) {
                return Err(unreadable(&format!("duplicate field `{}`", parameter.name())));
            }
            if value.is_null() && parameter.is_nullable() {
                continue;
            }
            check(task, &name, parameter.values.form(), &value)?;
            given.insert(parameter.name().to_owned(), value);
        }
        let is_missing = |p: &&Parameter| p.is_required() && !given.contains_key(p.name());
        if let Some(missing) = parameters.iter().find(is_missing) {
            let name = missing.name();
            let message = format!("task `{task}` needs the parameter `{name}`");
            let cause = Cause::Missing(name);
            return Err(TaskError { cause, ..TaskError::new(message, LISTED) });
        }
        Ok(Arguments { task, parameters, given })
    }

    /// Whether a value is written for this parameter.
    pub(super) fn has(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// A parameter's value, or its default.
    pub(super) fn get<T: DeserializeOwned>(&self, name: &'static str) -> Result<T, TaskError> {
        T::deserialize(self.value(name)).map_err(|error| {
            TaskError::new(format!("task `{}`: `{name}`: {error}", self.task), LISTED).about(name)
        })
    }

    /// An integer within the bounds of its row; `reason` says where they come from.
    pub(super) fn int(&self, name: &'static str, reason: &str) -> Result<u32, TaskError> {
        self.within(name, self.get(name)?, self.bounds(name), reason)
    }

    /// The same for a parameter that can be left out.
    pub(super) fn int_if_given(
        &self,
        name: &'static str,
        reason: &str,
    ) -> Result<Option<u32>, TaskError> {
        self.has(name).then(|| self.int(name, reason)).transpose()
    }

    /// The bounds of an integer, or of each integer of a list.
    pub(super) fn bounds(&self, name: &str) -> (i64, i64) {
        match self.row(name).map(|parameter| parameter.values) {
            Some(Values::Int(least, most) | Values::Ints(least, most)) => (least, most),
            Some(
                Values::Seed
                | Values::Bool
                | Values::Word(_)
                | Values::Name(_)
                | Values::Letters(_)
                | Values::Texts
                | Values::Object(_),
            )
            | None => (i64::MIN, i64::MAX),
        }
    }

    /// `value` if it is within these bounds; if not, an error about the parameter.
    pub(super) fn within(
        &self,
        name: &'static str,
        value: i64,
        (low, high): (i64, i64),
        reason: &str,
    ) -> Result<u32, TaskError> {
        match u32::try_from(value) {
            Ok(fitting) if (low..=high).contains(&value) => Ok(fitting),
            _ => Err(TaskError::new(
                format!("{}: {name} is {value}, but {reason}", self.task),
                format!("set {name} to a value from {low} to {high}"),
            )
            .about(name)),
        }
    }

    /// Every parameter with a value, one per line, sorted by name. They identify the samples.
    pub(super) fn lines(&self) -> String {
        let mut names: Vec<&str> = self.parameters.iter().map(Parameter::name).collect();
        names.sort_unstable();
        let line = |name: &str| {
            let value = self.value(name);
            if value.is_null() { String::new() } else { format!("{name} {}\n", plain(&value)) }
        };
        names.into_iter().map(line).collect()
    }

    fn row(&self, name: &str) -> Option<&'static Parameter> {
        self.parameters.iter().find(|parameter| parameter.name() == name)
    }

    /// The given value or the default; null if there is neither.
    fn value(&self, name: &str) -> Value {
        if let Some(value) = self.given.get(name) {
            return value.clone();
        }
        match self.row(name).map(|parameter| parameter.default) {
            Some(Default::Is(text)) => serde_json::from_str(text).unwrap_or_default(),
            Some(Default::UpTo(path)) => match self.value(last(path)).as_i64() {
                Some(most) => (1..=most.min(self.bounds(name).1)).collect(),
                None => Value::Null,
            },
            Some(Default::SameAs(path)) => self.value(last(path)),
            Some(Default::Required | Default::RequiredInRecipes | Default::Nothing) | None => {
                Value::Null
            }
        }
    }
}

/// A value without quotes and brackets.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" "),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

/// Checks the form of the value at `path` among the parameters.
fn check(task: &str, path: &str, form: Form, value: &Value) -> Result<(), TaskError> {
    let is_fine = match form {
        Form::Int => value.is_i64(),
        Form::Unsigned => value.is_u64(),
        Form::Bool => value.is_boolean(),
        Form::Text => value.is_string(),
        Form::Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
        Form::List(_) => value.is_array(),
        Form::Object(..) => value.is_object(),
    };
    if !is_fine {
        return Err(unlike(task, path, form, value));
    }
    match (form, value) {
        (Form::List(of_item), Value::Array(items)) => items
            .iter()
            .enumerate()
            .try_for_each(|(at, item)| check(task, &format!("{path}[{at}]"), *of_item, item)),
        (Form::Object(_, keys), Value::Object(entries)) => {
            let key_of = |name: &str| keys.iter().find(|key| key.name == name);
            for (name, value) in entries {
                let Some(Key { form, is_optional, .. }) = key_of(name) else { continue };
                if !(*is_optional && value.is_null()) {
                    check(task, &format!("{path}.{name}"), *form, value)?;
                }
            }
            match keys.iter().find(|key| !key.is_optional && !entries.contains_key(key.name)) {
                Some(Key { name, .. }) => {
                    let message = format!("task `{task}`: `{path}` needs `{name}`");
                    Err(TaskError::new(message, LISTED))
                }
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// A value of another form.
fn unlike(task: &str, path: &str, form: Form, value: &Value) -> TaskError {
    let wanted = match form {
        Form::Int => "a whole number".to_owned(),
        Form::Unsigned => "a whole number from 0".to_owned(),
        Form::Bool => "true or false".to_owned(),
        Form::Text => "text".to_owned(),
        Form::Word(words) => {
            let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            match words.as_slice() {
                [one] => one.clone(),
                [one, other] => format!("{one} or {other}"),
                words => format!("one of {}", words.join(", ")),
            }
        }
        Form::List(_) => "a list".to_owned(),
        Form::Object(described, _) => described.to_owned(),
    };
    let written = match (form, value) {
        (Form::Word(_), Value::String(word)) => format!("`{word}`"),
        _ => quoted(value),
    };
    let message = format!("task `{task}`: `{path}` is {}, and must be {wanted}", short(&written));
    let float = match form {
        Form::Int | Form::Unsigned => value.as_f64().filter(|_| value.is_f64()),
        Form::Bool | Form::Text | Form::Word(_) | Form::List(_) | Form::Object(..) => None,
    };
    let whole_number = float.filter(|number| number.fract() == 0.0 && number.abs() < 9e15);
    match whole_number {
        Some(number) => TaskError::new(message, format!("write {}", number as i64)),
        None => TaskError::new(message, LISTED),
    }
}

/// A name that no parameter has.
fn unknown(task: &str, parameters: &[Parameter], name: &str) -> TaskError {
    let known: Vec<&str> = parameters.iter().flat_map(Parameter::names).collect();
    let help = match dsl::suggest(name, known.iter().copied()) {
        Some(similar) => format!("did you mean `{similar}`?"),
        None => format!("it has `{}`", known.join("`, `")),
    };
    TaskError::new(format!("task `{task}` has no parameter `{name}`"), help)
}

/// A value as an error quotes it.
fn quoted(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => format!("`{truth}`"),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => format!("`{float:?}`"),
            None => format!("`{number}`"),
        },
        Value::String(text) => format!("{text:?}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The beginning of a text that may be long.
fn short(text: &str) -> String {
    match text.char_indices().nth(MOST_QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
