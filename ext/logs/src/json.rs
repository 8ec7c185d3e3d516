//! Logs in JSON: the `trainer_state.json` of transformers, and files with an object a line.
//!
//! Rows go straight into series, so that memory follows the number of values, not the words between them.

use std::collections::BTreeMap;
use std::fmt;

use disk::json::replace_words;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

use crate::series::{Cell, Series};

/// Most cells of one row.
const MOST_CELLS: usize = 10_000;
/// The member that makes an object a `trainer_state.json`.
pub(crate) const HISTORY: &str = "log_history";

/// What a `trainer_state.json` has.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) series: Series,
    /// The other members that are numbers.
    pub(crate) numbers: BTreeMap<String, f64>,
    /// Whether `log_history` is there.
    pub(crate) has_history: bool,
}

/// Reads one object with `log_history`. Errors are sentences.
pub(crate) fn state(text: &str, steps: &[&str]) -> Result<State, String> {
    let text = numbers(text);
    let mut state = State::default();
    let mut reader = serde_json::Deserializer::from_str(&text);
    let read = StateSeed { state: &mut state, steps }.deserialize(&mut reader);
    read.and_then(|()| reader.end()).map_err(not_json)?;
    Ok(state)
}

/// Reads an object a line. Returns whether the last line is torn; errors have the line.
pub(crate) fn lines(text: &str, steps: &[&str]) -> Result<(Series, bool), (usize, String)> {
    let mut series = Series::default();
    let count = text.lines().count();
    for (line, content) in (1..).zip(text.lines()).filter(|(_, content)| !content.trim().is_empty())
    {
        match serde_json::from_str::<Row>(&numbers(content)) {
            Ok(Row(cells)) => {
                series.add_row(cells, steps, line).map_err(|message| (line, message))?;
            }
            // A process that is killed leaves such a line.
            Err(error) if error.is_eof() && line == count && !text.ends_with('\n') && line > 1 => {
                return Ok((series, true));
            }
            Err(error) => {
                // The place within the line; its number is that of the file.
                let words = error.to_string();
                let words = words.split(" at line ").next().unwrap_or(&words);
                return Err((line, format!("this is no JSON object: {words}")));
            }
        }
    }
    Ok((series, false))
}

/// NaN and infinities as texts, which [`Cell`] reads.
fn numbers(text: &str) -> std::borrow::Cow<'_, str> {
    replace_words(text, |word| format!("\"{word}\""))
}

fn not_json(error: serde_json::Error) -> String {
    match error.is_data() {
        true => error.to_string(),
        false => format!("this is not whole JSON: {error}"),
    }
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cell, D::Error> {
        struct OfCell;
        impl<'de> Visitor<'de> for OfCell {
            type Value = Cell;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_f64<E>(self, value: f64) -> Result<Cell, E> {
                Ok(Cell::Number(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Cell, E> {
                Ok(Cell::Number(value as f64))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Cell, E> {
                Ok(Cell::Number(value as f64))
            }
            fn visit_str<E>(self, text: &str) -> Result<Cell, E> {
                Ok(Cell::of_text(text))
            }
            fn visit_bool<E>(self, _: bool) -> Result<Cell, E> {
                Ok(Cell::None)
            }
            fn visit_unit<E>(self) -> Result<Cell, E> {
                Ok(Cell::None)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Cell, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Cell::None)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Cell, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Cell::None)
            }
        }
        deserializer.deserialize_any(OfCell)
    }
}

/// One object: its cells by name.
struct Row(Vec<(String, Cell)>);

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Row, D::Error> {
        struct OfRow;
        impl<'de> Visitor<'de> for OfRow {
            type Value = Row;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Row, A::Error> {
                let mut cells = Vec::new();
                while let Some(cell) = map.next_entry()? {
                    if cells.len() == MOST_CELLS {
                        return Err(A::Error::custom(format!("a row has over {MOST_CELLS} names")));
                    }
                    cells.push(cell);
                }
                Ok(Row(cells))
            }
        }
        deserializer.deserialize_map(OfRow)
    }
}

/// Reads an object into a [`State`].
struct StateSeed<'a> {
    state: &'a mut State,
    steps: &'a [&'a str],
}

impl<'de> DeserializeSeed<'de> for StateSeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for StateSeed<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let State { series, numbers, has_history } = self.state;
        while let Some(key) = map.next_key::<String>()? {
            if key == HISTORY {
                *has_history = true;
                map.next_value_seed(HistorySeed { series, steps: self.steps })?;
            } else if let Cell::Number(number) = map.next_value()?
                && numbers.len() < MOST_CELLS
            {
                numbers.insert(key, number);
            }
        }
        Ok(())
    }
}

/// Reads a list of rows into series.
struct HistorySeed<'a> {
    series: &'a mut Series,
    steps: &'a [&'a str],
}

impl<'de> DeserializeSeed<'de> for HistorySeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for HistorySeed<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of rows")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<(), A::Error> {
        let mut number = 1;
        while let Some(Row(cells)) = rows.next_element()? {
            self.series.add_row(cells, self.steps, number).map_err(de::Error::custom)?;
            number += 1;
        }
        Ok(())
    }
}
