//! The document of a line of JSON, or why it has none. An unusable line is counted and named, never dropped silently. A
//! line with a duplicate field has no document, even if other readers accept it. The other fields may hold any JSON, and
//! what Python writes for numbers without a value: `NaN`, `Infinity`, `-Infinity`.

use std::collections::BTreeMap;
use std::fmt;

use disk::json::replace_words;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Maximum length of a line.
pub const LONGEST_LINE: u64 = 1 << 26;
/// Maximum number of bad lines that are named.
pub const NAMED_LINES: usize = 20;

/// The field of a line, or the column of a table, that holds the document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Field {
    /// `text`, or `content` in its absence.
    #[default]
    Usual,
    /// The field or column of this name.
    Named(String),
}

impl Field {
    /// The field names, in order of preference.
    pub fn names(&self) -> &[&str] {
        match self {
            Field::Usual => &["text", "content"],
            Field::Named(_) => &[],
        }
    }

    fn rank(&self, key: &str) -> Option<usize> {
        match self {
            Field::Usual => self.names().iter().position(|name| *name == key),
            Field::Named(name) => (name == key).then_some(0),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Usual => f.write_str("`text` or `content`"),
            Field::Named(name) => write!(f, "`{name}`"),
        }
    }
}

/// How to treat lines without a usable document. Both policies skip and count empty documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBadLine {
    /// Leave them out and report them.
    Skip,
    /// Read to the end, then fail and name them.
    Refuse,
}

/// Counts of lines, documents and bytes read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Lines of text files, rows of tables.
    pub lines: u64,
    /// Documents read, without empty ones.
    pub documents: u64,
    /// Bytes of the documents in UTF-8.
    pub bytes: u64,
    /// Lines of white space. No policy treats them as errors.
    pub blank: u64,
    /// Lines with malformed JSON or without text.
    pub malformed: u64,
    /// Documents of zero bytes.
    pub empty: u64,
    /// The first malformed lines.
    pub first_bad: Vec<BadLine>,
}

impl LineCounts {
    /// Adds the counts of a later part.
    pub fn add(&mut self, next: LineCounts) {
        let LineCounts { lines, documents, bytes, blank, malformed, empty, first_bad } = next;
        self.lines += lines;
        self.documents += documents;
        self.bytes += bytes;
        self.blank += blank;
        self.malformed += malformed;
        self.empty += empty;
        let left = NAMED_LINES.saturating_sub(self.first_bad.len());
        self.first_bad.extend(first_bad.into_iter().take(left));
    }

    /// The number of malformed lines, then the first of them, one per line.
    pub fn malformed_lines(&self) -> String {
        let mut text = format!(
            "{} of {} {} no document:",
            self.malformed,
            dsl::counted(self.lines, "line"),
            if self.lines == 1 { "holds" } else { "hold" }
        );
        for line in &self.first_bad {
            text += &format!("\n{line}");
        }
        let more = self.malformed - self.first_bad.len() as u64;
        if more > 0 {
            text += &format!("\n... and {more} more");
        }
        text
    }
}

/// A line that gave no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Name of the file.
    pub file: String,
    /// Line number, from 1.
    pub line: u64,
    /// Why the line has no document, in words.
    pub reason: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.reason)
    }
}

/// The document of a line, or why it has none.
pub fn document_of(line: &[u8], field: &Field) -> Result<String, String> {
    // Without this check, serde would read a list as the fields in order.
    match line.trim_ascii_start().first() {
        Some(b'{') => {}
        Some(b'[') => return Err("a JSON list, not one object a line".to_owned()),
        Some(_) | None => return Err("not a JSON object".to_owned()),
    }
    let words = std::str::from_utf8(line).map(|text| replace_words(text, |_| "null".to_owned()));
    let mut reader =
        serde_json::Deserializer::from_slice(words.as_ref().map_or(line, |text| text.as_bytes()));
    let values = Fields(field)
        .deserialize(&mut reader)
        .and_then(|values| reader.end().map(|()| values))
        .map_err(|error| {
            let text = error.to_string();
            match text.strip_prefix(TWICE) {
                Some(name) => format!("{TWICE}{}", name.split(" at line").next().unwrap_or(name)),
                None => format!("not a JSON object: {text}"),
            }
        })?;
    match values.into_iter().flatten().next() {
        Some(Some(text)) => Ok(text),
        Some(None) => Err(format!("{field} is not a string")),
        None => {
            let missing = match field {
                Field::Usual => "no `text` and no `content`".to_owned(),
                Field::Named(name) => format!("no `{name}`"),
            };
            let all = words.as_ref().ok().and_then(|text| serde_json::from_str(text).ok());
            let all: BTreeMap<String, IgnoredAny> = all.unwrap_or_default();
            let names: Vec<String> = all
                .keys()
                .take(NAMED)
                .map(|name| format!("`{}`", name.chars().take(40).collect::<String>()))
                .collect();
            Err(if names.is_empty() {
                missing
            } else {
                format!("{missing}, but {}", names.join(", "))
            })
        }
    }
}

/// Most fields of a line that are named where the document's is missing.
const NAMED: usize = 4;

const TWICE: &str = "a field is given twice: ";

/// The wanted fields of an object, in order of preference: absent, not a string, or a string.
struct Fields<'a>(&'a Field);

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = [Option<Option<String>>; 2];

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = [Option<Option<String>>; 2];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = [None, None];
        while let Some(rank) = map.next_key_seed(Key(self.0))? {
            match rank.and_then(|rank| values.get_mut(rank)) {
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
                Some(Some(_)) => {
                    return Err(serde::de::Error::custom(format!("{TWICE}{}", self.0)));
                }
                Some(value) => *value = Some(map.next_value_seed(Text)?),
            }
        }
        Ok(values)
    }
}

struct Key<'a>(&'a Field);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.rank(key))
    }
}

/// A string; anything else is `None`.
struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Some(text))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_chosen_and_its_value_is_a_string() {
        let named = |name: &str| Field::Named(name.to_owned());
        let usual = Field::Usual;
        for (line, field, want) in [
            (r#"{"text": "a", "content": "b"}"#, &usual, Ok("a")),
            (r#"{"content": "b", "text": "a"}"#, &usual, Ok("a")),
            (r#"{"content": "b"}"#, &usual, Ok("b")),
            (r#"{"content": "b", "id": [1, {"text": 2}]}"#, &named("content"), Ok("b")),
            (r#"{"te\u0078t": "\u00e9\ud83d\ude00"}"#, &usual, Ok("é😀")),
            (r#"{"text": "a", "body": "b"}"#, &named("body"), Ok("b")),
            (r#"{"text": "a"}"#, &named("body"), Err("no `body`, but `text`")),
            (
                r#"{"text": null, "content": "b"}"#,
                &usual,
                Err("`text` or `content` is not a string"),
            ),
            (r#"{"text": [["a"]]}"#, &usual, Err("`text` or `content` is not a string")),
            (r#"{"text": 1e3}"#, &named("text"), Err("`text` is not a string")),
            (
                r#"{"text": "a", "text": "a"}"#,
                &usual,
                Err("a field is given twice: `text` or `content`"),
            ),
            (r#"{"text": "a", "n": 1, "n": 2}"#, &usual, Ok("a")),
            (r#"{"text": "NaN", "n": [NaN, Infinity, -Infinity]}"#, &usual, Ok("NaN")),
            (r#"{"text": NaN}"#, &usual, Err("`text` or `content` is not a string")),
            (
                r#"{"text": "a", "n": Inf}"#,
                &usual,
                Err("not a JSON object: expected value at line 1 column 20"),
            ),
            (
                r#"{"text": "\ud800"}"#,
                &usual,
                Err("not a JSON object: unexpected end of hex escape at line 1 column 17"),
            ),
            (
                r#"{"text": "a"} x"#,
                &usual,
                Err("not a JSON object: trailing characters at line 1 column 15"),
            ),
            (
                r#"{"text": "a""#,
                &usual,
                Err("not a JSON object: EOF while parsing an object at line 1 column 12"),
            ),
            (r#"["a"]"#, &usual, Err("a JSON list, not one object a line")),
        ] {
            let got = document_of(line.as_bytes(), field);
            assert_eq!(got.as_deref().map_err(String::as_str), want, "{line}");
        }
        assert!(document_of(b"{\"text\": \"\xff\"}", &usual).is_err());
        let deep = format!("{{\"text\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(document_of(deep.as_bytes(), &usual).is_err());
    }
}
