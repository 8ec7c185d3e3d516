//! A task's parameters, read by serde.
//!
//! In: parameters in any serde format. Out: the task's struct of them, or an error that names the wrong one. Must stay
//! true: an error is data until its message is written, so no message of a library is taken apart.

use std::fmt::Display;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, Deserialize, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;

use super::{Problem, TaskError};

/// Maximum length of an error about an unreadable value, since it may quote the value.
const MOST_SAID: usize = 300;

/// Reads a task's parameters; the error names the wrong one.
pub(super) fn read<'de, P: Deserialize<'de>, D: Deserializer<'de>>(
    task: &str,
    params: D,
) -> Result<P, TaskError> {
    let value = Value::deserialize(params)
        .map_err(|error| Wrong::Unreadable(error.to_string()).of(task, ""))?;
    serde_path_to_error::deserialize(Given(value)).map_err(|error| {
        let path = error.path().to_string();
        error.into_inner().of(task, if path == "." { "" } else { &path })
    })
}

/// What is wrong with a value, in our words.
#[derive(Debug)]
enum Wrong {
    Missing(&'static str),
    Unknown {
        field: String,
        known: &'static [&'static str],
    },
    Unlike {
        found: String,
        wanted: String,
        /// The value as an integer, if it is a whole number written as a float and an integer is wanted.
        instead: Option<i64>,
    },
    /// Anything else, in the library's words.
    Unreadable(String),
}

impl Wrong {
    /// The error at `path` among the task's parameters.
    fn of(self, task: &str, path: &str) -> TaskError {
        let listed = "`canonc data generate --help` lists the parameters of every task";
        // A key of an object that is itself a parameter, such as Lano's grammar.
        let place = if path.is_empty() { String::new() } else { format!("`{path}` ") };
        match self {
            Wrong::Missing(name) if path.is_empty() => {
                let message = format!("task `{task}` needs the parameter `{name}`");
                TaskError { problem: Problem::Missing(name), ..TaskError::new(message, listed) }
            }
            Wrong::Missing(name) => {
                TaskError::new(format!("task `{task}`: `{path}` needs `{name}`"), listed)
            }
            Wrong::Unknown { field, known } => {
                let owner = match path.rsplit_once('.') {
                    Some((above, _)) => format!("`{above}` of task `{task}`"),
                    None => format!("task `{task}`"),
                };
                let help = match dsl::suggest(&field, known.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None if known.is_empty() => listed.to_owned(),
                    None => format!("it has `{}`", known.join("`, `")),
                };
                TaskError::new(format!("{owner} has no parameter `{field}`"), help)
            }
            Wrong::Unlike { found, wanted, instead } => {
                let found = short(&found);
                let message = format!("task `{task}`: {place}is {found}, and must be {wanted}");
                let help = instead.map_or_else(|| listed.to_owned(), |n| format!("write {n}"));
                TaskError::new(message, help)
            }
            Wrong::Unreadable(why) => TaskError::new(
                format!("task `{task}`: {place}cannot be read: {}", short(&why)),
                listed,
            ),
        }
    }
}

impl Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Wrong {}

impl de::Error for Wrong {
    fn custom<T: Display>(why: T) -> Wrong {
        Wrong::Unreadable(why.to_string())
    }

    fn missing_field(field: &'static str) -> Wrong {
        Wrong::Missing(field)
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Wrong {
        Wrong::Unknown { field: field.to_owned(), known }
    }

    fn unknown_variant(found: &str, known: &'static [&'static str]) -> Wrong {
        let quoted: Vec<String> = known.iter().map(|word| format!("`{word}`")).collect();
        let wanted = match quoted.as_slice() {
            [one, other] => format!("{one} or {other}"),
            [_, _, _, ..] => format!("one of {}", quoted.join(", ")),
            _ => quoted.concat(),
        };
        Wrong::Unlike { found: format!("`{found}`"), wanted, instead: None }
    }

    fn invalid_type(found: Unexpected<'_>, wanted: &dyn Expected) -> Wrong {
        let whole = |value: &f64| value.fract() == 0.0 && value.abs() < 9e15;
        let float =
            if let Unexpected::Float(value) = found { Some(value).filter(whole) } else { None };
        let found = match found {
            Unexpected::Bool(value) => format!("`{value}`"),
            Unexpected::Unsigned(value) => format!("`{value}`"),
            Unexpected::Signed(value) => format!("`{value}`"),
            Unexpected::Float(value) => format!("`{value:?}`"),
            Unexpected::Str(text) => format!("{text:?}"),
            Unexpected::Unit | Unexpected::Option => "null".to_owned(),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Map => "an object".to_owned(),
            Unexpected::Char(_)
            | Unexpected::Bytes(_)
            | Unexpected::NewtypeStruct
            | Unexpected::Enum
            | Unexpected::UnitVariant
            | Unexpected::NewtypeVariant
            | Unexpected::TupleVariant
            | Unexpected::StructVariant
            | Unexpected::Other(_) => found.to_string(),
        };
        // serde names the types of Rust.
        let wanted = match wanted.to_string().as_str() {
            "i64" => "a whole number".to_owned(),
            "u64" => "a whole number from 0".to_owned(),
            "a boolean" => "true or false".to_owned(),
            "a sequence" => "a list".to_owned(),
            "a string" => "text".to_owned(),
            other => other.to_owned(),
        };
        let instead =
            float.filter(|_| wanted.starts_with("a whole number")).map(|value| value as i64);
        Wrong::Unlike { found, wanted, instead }
    }

    fn invalid_value(found: Unexpected<'_>, wanted: &dyn Expected) -> Wrong {
        Wrong::invalid_type(found, wanted)
    }
}

/// A value that is read with our own error type.
struct Given(Value);

impl<'de> IntoDeserializer<'de, Wrong> for Given {
    type Deserializer = Given;

    fn into_deserializer(self) -> Given {
        self
    }
}

impl<'de> Deserializer<'de> for Given {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(value), ..) => visitor.visit_u64(value),
                (None, Some(value), _) => visitor.visit_i64(value),
                (None, None, value) => visitor.visit_f64(value.unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_string(text),
            Value::Array(items) => {
                visitor.visit_seq(SeqDeserializer::new(items.into_iter().map(Given)))
            }
            Value::Object(entries) => {
                let entries = entries.into_iter().map(|(key, value)| (key, Given(value)));
                visitor.visit_map(MapDeserializer::new(entries))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match self.0.as_str() {
            Some(word) => visitor.visit_enum(word.into_deserializer()),
            None => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The beginning of a text that may be long.
fn short(text: &str) -> String {
    match text.char_indices().nth(MOST_SAID) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
