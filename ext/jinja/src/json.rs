//! JSON as Python's `json` reads and writes it.

use std::fmt;

use disk::json::{WORDS, replace_words};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::text;
use crate::value::Value;

/// Begins the text that stands for a number JSON does not have.
const MARK: &str = "\u{0}number ";

impl Value {
    /// Reads JSON with the words `NaN` and `Infinity`; keys keep their order, and of two equal keys the last counts.
    pub fn from_json(json: &str) -> Result<Value, String> {
        let text = replace_words(json, |word| format!("\"\\u0000number {word}\""));
        let mut from = serde_json::Deserializer::from_str(&text);
        let any = AnyValue { is_marked: *text != *json };
        let value = any.deserialize(&mut from).and_then(|value| from.end().map(|()| value));
        value.map_err(|error| error.to_string())
    }
}

impl From<&serde_json::Value> for Value {
    fn from(json: &serde_json::Value) -> Value {
        match json {
            serde_json::Value::Null => Value::None,
            serde_json::Value::Bool(truth) => Value::Bool(*truth),
            serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(whole), _) => Value::Int(i128::from(whole)),
                (_, Some(whole)) => Value::Int(i128::from(whole)),
                _ => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(text) => Value::from(text.as_str()),
            serde_json::Value::Array(items) => {
                items.iter().map(Value::from).collect::<Vec<_>>().into()
            }
            serde_json::Value::Object(fields) => {
                fields.iter().map(|(key, value)| (key.clone(), Value::from(value))).collect()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
        AnyValue { is_marked: false }.deserialize(from)
    }
}

#[derive(Clone, Copy)]
struct AnyValue {
    /// Whether a text that begins with [`MARK`] stands for a number.
    is_marked: bool,
}

impl<'de> DeserializeSeed<'de> for AnyValue {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::None)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Int(i128::from(number)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Int(i128::from(number)))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Value, E> {
        // Python keeps a whole number of any size; here it would lose digits.
        if number.fract() == 0.0 && number.abs() >= 9e18 && number.abs() < 1e40 {
            return Err(E::custom(format!("the number {number} has more than 64 bits")));
        }
        Ok(Value::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        let word = text.strip_prefix(MARK).filter(|_| self.is_marked);
        let word = word.filter(|word| WORDS.contains(word));
        Ok(match word {
            Some("NaN") => Value::Float(f64::NAN),
            Some("Infinity") => Value::Float(f64::INFINITY),
            Some(_) => Value::Float(f64::NEG_INFINITY),
            None => Value::from(text),
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(self)? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = crate::entries::Entries::default();
        while let Some(key) = map.next_key::<String>()? {
            fields.insert(Value::from(key), map.next_value_seed(self)?);
        }
        Ok(fields.into_map())
    }
}

/// How `json.dumps` writes.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    pub(crate) ascii: bool,
    pub(crate) indent: Option<String>,
    /// Between items, and after a key.
    pub(crate) separators: (String, String),
    pub(crate) sorts_keys: bool,
}

/// Python's `json.dumps`.
pub(crate) fn dumps(value: &Value, style: &Style) -> Result<String, String> {
    let mut out = String::new();
    write(value, style, 0, &mut out)?;
    Ok(out)
}

/// Deepest nesting.
const DEPTH: usize = 256;

fn write(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), String> {
    let indent = style.indent.as_ref().map_or(0, |indent| indent.len() * (depth + 1));
    if out.len() + indent > crate::entries::LARGEST {
        return Err("tojson writes more than it may".to_owned());
    }
    if depth > DEPTH {
        return Err("the value is nested too deeply for tojson".to_owned());
    }
    let mut parts = |open: char, close: char, items: &[(Option<String>, &Value)]| {
        out.push(open);
        for (at, (key, item)) in items.iter().enumerate() {
            if at > 0 {
                out.push_str(&style.separators.0);
            }
            if let Some(indent) = &style.indent {
                out.push('\n');
                out.push_str(&indent.repeat(depth + 1));
            }
            if let Some(key) = key {
                string(key, style.ascii, out);
                out.push_str(&style.separators.1);
            }
            write(item, style, depth + 1, out)?;
        }
        if let Some(indent) = style.indent.as_ref().filter(|_| !items.is_empty()) {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
        out.push(close);
        Ok(())
    };
    match value {
        Value::List(items) | Value::Tuple(items) => {
            parts('[', ']', &items.iter().map(|item| (None, item)).collect::<Vec<_>>())
        }
        Value::Map(entries) => {
            let mut fields = Vec::new();
            for (key, value) in entries.iter() {
                fields.push((Some(key_text(key)?), value));
            }
            if style.sorts_keys {
                if entries.iter().any(|(key, _)| key.as_str().is_none()) {
                    return Err("keys that are not all texts have no order in tojson".to_owned());
                }
                fields.sort_by(|(a, _), (b, _)| a.cmp(b));
            }
            parts('{', '}', &fields)
        }
        Value::Str(text) | Value::Markup(text) => {
            string(text, style.ascii, out);
            Ok(())
        }
        Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            *out += &scalar(value);
            Ok(())
        }
        other => Err(format!("Object of type {} is not JSON serializable", other.type_name())),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Bool(truth) => truth.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) if number.is_nan() => "NaN".to_owned(),
        Value::Float(number) if number.is_infinite() => {
            if *number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
        }
        Value::Float(number) => text::float(*number),
        _ => "null".to_owned(),
    }
}

fn key_text(key: &Value) -> Result<String, String> {
    match key {
        Value::Str(text) | Value::Markup(text) => Ok(text.to_string()),
        Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) => Ok(scalar(key)),
        other => {
            Err(format!("keys must be str, int, float, bool or None, not {}", other.type_name()))
        }
    }
}

fn string(text: &str, ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || (ascii && !(' '..='~').contains(&c)) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The style of `tojson` in `transformers`.
pub(crate) fn style(
    ascii: bool,
    indent: &Value,
    separators: Option<(String, String)>,
    sorts_keys: bool,
) -> Result<Style, String> {
    let indent = match indent {
        Value::None => None,
        Value::Str(text) if text.len() > 1 << 10 => {
            return Err("tojson: the indent is too long".to_owned());
        }
        Value::Str(text) => Some(text.to_string()),
        other => match other.as_int() {
            Some(width) => Some(" ".repeat(usize::try_from(width.clamp(0, 1 << 10)).unwrap_or(0))),
            None => return Err(format!("indent is a number or a text, not {}", other.type_name())),
        },
    };
    let between = if indent.is_some() { "," } else { ", " };
    let separators = separators.unwrap_or_else(|| (between.to_owned(), ": ".to_owned()));
    Ok(Style { ascii, indent, separators, sorts_keys })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_numbers_and_words_are_kept() {
        let value =
            Value::from_json(r#"{"b": NaN, "a": [1, 1.0, -Infinity, "NaN"], "b": 2}"#).unwrap();
        assert_eq!(value.repr().unwrap(), "{'b': 2, 'a': [1, 1.0, -inf, 'NaN']}");
        assert!(Value::from_json("123456789012345678901234567890").is_err());
        assert!(Value::from_json("{\"a\": ").is_err());
        // Our own mark in somebody's text.
        let text = Value::from_json(r#"{"a": "\u0000number NaN"}"#).unwrap();
        assert_eq!(text.repr().unwrap(), r"{'a': '\x00number NaN'}");
    }
}
