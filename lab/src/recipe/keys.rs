//! The places of the keys and values in a TOML file, for editors. A text with errors lists what can be read of it.

use std::ops::Range;

use toml::de::DeTable;

use crate::facts;

/// A key of a TOML text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPlace {
    /// The keys from the top of the file, joined by dots.
    pub path: String,
    /// The last key, in bytes.
    pub key: Range<usize>,
    /// The value; `None` for a table.
    pub value: Option<Range<usize>>,
}

/// The keys of a text, in the order in which they are written.
pub fn keys(text: &str) -> Vec<KeyPlace> {
    let (table, _) = DeTable::parse_recoverable(text);
    let (leaves, tables) = facts::leaves(table.get_ref());
    let leaves = leaves.into_iter().map(|fact| KeyPlace {
        path: fact.path,
        key: fact.key,
        value: Some(fact.at),
    });
    let tables = tables.into_iter().map(|(path, key)| KeyPlace { path, key, value: None });
    let mut keys: Vec<KeyPlace> = leaves.chain(tables).collect();
    keys.sort_by_key(|location| location.key.start);
    keys
}
