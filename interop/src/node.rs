//! What JSON and YAML have in common: a tree of values, each with its line.
//!
//! In: a reader's events. Out: a tree; the flat list of its keys and values; a map whose keys are taken one by one.
//! Must stay true: numbers keep the digits they were written with; a key stands once; what nobody took is known.

use std::collections::BTreeSet;

/// The deepest nesting that is read.
pub const MAX_DEPTH: usize = 64;
/// The largest text.
pub const MAX_BYTES: usize = 64 << 20;

/// A value and the line it stands on, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub value: Value,
    pub line: usize,
}

/// A value of either format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Null,
    Bool(bool),
    /// As written; `Infinity`, `-Infinity` and `NaN` too, where the format lets them in.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// One leaf: `model.dim`, `2048`, 12.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flat {
    pub key: String,
    pub value: String,
    pub line: usize,
}

impl Value {
    /// In one line, for messages.
    pub fn shown(&self) -> String {
        match self {
            Value::Null => "null".to_owned(),
            Value::Bool(b) => b.to_string(),
            Value::Number(digits) => digits.clone(),
            Value::Text(text) => format!("{text:?}"),
            Value::List(items) => {
                let items: Vec<String> = items.iter().take(8).map(|n| n.value.shown()).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Map(entries) => {
                let entries: Vec<String> = entries
                    .iter()
                    .take(8)
                    .map(|(key, node)| format!("{key}: {}", node.value.shown()))
                    .collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }

    /// Without quotation marks: what a table's cell holds.
    pub fn plain(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            Value::List(items) => {
                items.iter().map(|n| n.value.plain()).collect::<Vec<_>>().join(",")
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Map(_) => self.shown(),
        }
    }
}

impl Node {
    /// The value under a dotted key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        key.split('.').try_fold(self, |node, part| match &node.value {
            Value::Map(entries) => entries.iter().find(|(k, _)| k == part).map(|(_, node)| node),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => {
                None
            }
        })
    }

    /// Every leaf under its dotted key, in the file's order. A list is one leaf, and so is an empty map.
    pub fn flat(&self) -> Vec<Flat> {
        let mut found = Vec::new();
        for (key, node) in self.leaves() {
            found.push(Flat { key, value: node.value.plain(), line: node.line });
        }
        found
    }

    /// The same with their nodes.
    pub fn leaves(&self) -> Vec<(String, &Node)> {
        fn walk<'a>(prefix: &str, node: &'a Node, found: &mut Vec<(String, &'a Node)>) {
            match &node.value {
                Value::Map(entries) if !entries.is_empty() => {
                    for (key, node) in entries {
                        let dot = if prefix.is_empty() { "" } else { "." };
                        walk(&format!("{prefix}{dot}{key}"), node, found);
                    }
                }
                Value::Map(_)
                | Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Text(_)
                | Value::List(_) => found.push((prefix.to_owned(), node)),
            }
        }
        let mut found = Vec::new();
        walk("", self, &mut found);
        found
    }
}

/// Names that stand twice.
#[derive(Debug, Default)]
pub(crate) struct Once(BTreeSet<String>);

impl Once {
    /// Whether the name is new.
    pub(crate) fn new_name(&mut self, name: &str) -> bool {
        self.0.insert(name.to_owned())
    }
}
