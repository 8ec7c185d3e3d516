//! Sections of a lock: a heading and its facts, one line each, as they are written and hashed.

use compiler::digest::Digest;

use crate::field::quote;

/// A path and its value as text.
pub(crate) type Line = (String, String);

/// Facts as they are hashed.
pub(crate) fn lines(facts: &[Line]) -> String {
    facts.iter().map(|(path, value)| format!("{path} = {value}\n")).collect()
}

/// A TOML table of the text.
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) facts: Vec<Line>,
}

impl Section {
    pub(crate) fn new(name: impl Into<String>, facts: Vec<Line>) -> Section {
        Section { name: name.into(), facts }
    }

    /// The facts as hashed.
    pub(crate) fn lines(&self) -> String {
        lines(&self.facts)
    }
}

pub(crate) fn fact(key: &str, value: impl std::fmt::Display) -> Line {
    (key.to_owned(), value.to_string())
}

pub(crate) fn hex(digest: Digest) -> String {
    format!("\"{digest}\"")
}

/// A TOML key, quoted if necessary.
pub(crate) fn key(path: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !path.is_empty() && path.chars().all(bare) { path.to_owned() } else { quote(path) }
}
