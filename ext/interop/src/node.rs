//! The tree of values that the JSON and YAML readers share, with a line for each value. Numbers keep their digits.

use std::collections::BTreeSet;

/// The maximum nesting depth.
pub const MAX_DEPTH: usize = 64;
/// The maximum size of a text in bytes.
pub const MAX_BYTES: usize = 64 << 20;

/// A value and its line, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The value.
    pub value: NodeValue,
    /// Its line, from 1.
    pub line: usize,
}

/// A value of either format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeValue {
    /// `null`, or nothing in YAML.
    Null,
    /// True or false.
    Bool(bool),
    /// As written; also `Infinity`, `-Infinity` and `NaN` if the format allows them.
    Number(String),
    /// A text.
    Text(String),
    /// Values in order.
    List(Vec<Node>),
    /// Keys and values, in the order of the file.
    Map(Vec<(String, Node)>),
}

/// One leaf: `model.dim`, `2048`, 12.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flat {
    /// Path of the key, its parts joined by dots.
    pub key: String,
    /// The value as text.
    pub value: String,
    /// Its line, from 1.
    pub line: usize,
}

impl NodeValue {
    /// The value on one line, for messages.
    pub fn shown(&self) -> String {
        match self {
            NodeValue::Null => "null".to_owned(),
            NodeValue::Bool(b) => b.to_string(),
            NodeValue::Number(digits) => digits.clone(),
            NodeValue::Text(text) => format!("{text:?}"),
            NodeValue::List(items) => {
                let items: Vec<String> = items.iter().take(8).map(|n| n.value.shown()).collect();
                format!("[{}]", items.join(", "))
            }
            NodeValue::Map(entries) => {
                let entries: Vec<String> = entries
                    .iter()
                    .take(8)
                    .map(|(key, node)| format!("{key}: {}", node.value.shown()))
                    .collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }

    /// The value without quotation marks, as in a table's cell.
    pub fn plain(&self) -> String {
        match self {
            NodeValue::Text(text) => text.clone(),
            NodeValue::List(items) => {
                let item = |node: &Node| match (&node.value, node.value.plain()) {
                    // An item with a comma is not two.
                    (NodeValue::Text(_), text) if text.contains([',', '"']) => format!("{text:?}"),
                    (_, plain) => plain,
                };
                items.iter().map(item).collect::<Vec<_>>().join(",")
            }
            NodeValue::Null | NodeValue::Bool(_) | NodeValue::Number(_) | NodeValue::Map(_) => {
                self.shown()
            }
        }
    }
}

impl Node {
    /// The value under a dotted key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        key.split('.').try_fold(self, |node, part| match &node.value {
            NodeValue::Map(entries) => {
                entries.iter().find(|(k, _)| k == part).map(|(_, node)| node)
            }
            NodeValue::Null
            | NodeValue::Bool(_)
            | NodeValue::Number(_)
            | NodeValue::Text(_)
            | NodeValue::List(_) => None,
        })
    }

    /// Every leaf with its dotted key, in the file's order. A list is one leaf, and so is an empty map.
    pub fn flat(&self) -> Vec<Flat> {
        let mut flat = Vec::new();
        for (key, node) in self.leaves() {
            flat.push(Flat { key, value: node.value.plain(), line: node.line });
        }
        flat
    }

    /// Every leaf as its dotted key and its node.
    pub fn leaves(&self) -> Vec<(String, &Node)> {
        fn walk<'a>(prefix: &str, node: &'a Node, leaves: &mut Vec<(String, &'a Node)>) {
            match &node.value {
                NodeValue::Map(entries) if !entries.is_empty() => {
                    for (key, node) in entries {
                        let dot = if prefix.is_empty() { "" } else { "." };
                        walk(&format!("{prefix}{dot}{key}"), node, leaves);
                    }
                }
                NodeValue::Map(_)
                | NodeValue::Null
                | NodeValue::Bool(_)
                | NodeValue::Number(_)
                | NodeValue::Text(_)
                | NodeValue::List(_) => leaves.push((prefix.to_owned(), node)),
            }
        }
        let mut leaves = Vec::new();
        walk("", self, &mut leaves);
        leaves
    }
}

/// Collects names to find duplicates.
#[derive(Debug, Default)]
pub(crate) struct Once(BTreeSet<String>);

impl Once {
    /// Whether the name is new.
    pub(crate) fn new_name(&mut self, name: &str) -> bool {
        self.0.insert(name.to_owned())
    }
}
