//! The keys of another program's configuration, read one by one.
//!
//! An absent key and `null` are the same; a value of another type is refused with its line; every key is read or refused,
//! so none is dropped.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use dsl::{Decimal, Problem};

use super::LeftOut;
use super::node::{Node, NodeValue};

/// A key that changes the computation and has only these supported values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyRule {
    pub(crate) values: &'static [&'static str],
    /// The message about another value: the key in backquotes, and `{}` for the value.
    pub(crate) sentence: &'static str,
}

impl KeyRule {
    fn key(&self) -> &'static str {
        key_of(self.sentence)
    }
}

/// The key that a sentence is about: its first word in backquotes.
fn key_of(sentence: &str) -> &str {
    sentence.split('`').nth(1).unwrap_or_default()
}

/// The keys of one file.
#[derive(Debug)]
pub struct Keys<'a> {
    file: &'a str,
    leaves: BTreeMap<String, &'a Node>,
    taken: RefCell<BTreeSet<String>>,
    neutral: RefCell<Vec<LeftOut>>,
}

impl<'a> Keys<'a> {
    /// The keys of a parsed file. Refuses a file that is not a map.
    pub fn new(file: &'a str, root: &'a Node) -> Result<Keys<'a>, Problem> {
        let NodeValue::Map(_) = &root.value else {
            let message = format!("it has {} instead of keys with values", root.value.shown());
            return Err(Problem::in_file(file, message, "give the configuration file itself"));
        };
        let leaves = root.leaves().into_iter().filter(|(key, _)| !key.is_empty()).collect();
        Ok(Keys { file, leaves, taken: RefCell::default(), neutral: RefCell::default() })
    }

    /// Whether any key begins with this prefix.
    pub fn has(&self, key: &str) -> bool {
        let below = format!("{key}.");
        self.leaves.keys().any(|k| k == key || k.starts_with(&below))
    }

    /// Keys below a prefix, without the prefix.
    pub fn below(&self, prefix: &str) -> Vec<String> {
        let keys = self.leaves.keys();
        keys.filter_map(|k| k.strip_prefix(prefix)?.strip_prefix('.').map(str::to_owned)).collect()
    }

    /// The value of a key; `None` if it is absent or null.
    pub fn node(&self, key: &str) -> Option<&'a Node> {
        let node = self.leaves.get(key)?;
        self.taken.borrow_mut().insert(key.to_owned());
        Some(*node).filter(|node| node.value != NodeValue::Null)
    }

    /// The file and line of a key.
    pub fn location(&self, key: &str) -> String {
        match self.leaves.get(key) {
            Some(node) => format!("{}:{}", self.file, node.line),
            None => self.file.to_owned(),
        }
    }

    /// The value of a key, for a message.
    pub(crate) fn value(&self, key: &str) -> String {
        match self.leaves.get(key) {
            Some(node) => node.value.shown(),
            None if !self.below(key).is_empty() => "a map".to_owned(),
            None => "absent".to_owned(),
        }
    }

    /// An error about a key.
    pub(crate) fn error(&self, key: &str, message: String, help: impl Into<String>) -> Problem {
        Problem::in_file(self.location(key), message, help)
    }

    pub(crate) fn wrong(&self, key: &str, wanted: &str) -> Problem {
        let message = format!("`{key}` is {}, and it should be {wanted}", self.value(key));
        self.error(key, message, "write it as the release does")
    }

    /// A whole number from 0 to 2^48; `None` without the key.
    pub fn int(&self, key: &str) -> Result<Option<i64>, Problem> {
        let Some(node) = self.node(key) else { return Ok(None) };
        let number = number(node).and_then(Decimal::to_int).filter(|n| (0..1 << 48).contains(n));
        number.map(Some).ok_or_else(|| self.wrong(key, "a whole number from 0 to 2^48"))
    }

    /// A whole number from 0 to 2^48, or this default without the key.
    pub fn int_or(&self, key: &str, default: i64) -> Result<i64, Problem> {
        Ok(self.int(key)?.unwrap_or(default))
    }

    /// A whole number above 0; an error without the key.
    pub fn positive(&self, key: &str) -> Result<i64, Problem> {
        match self.int(key)? {
            Some(n) if n > 0 => Ok(n),
            Some(_) | None => Err(self.wrong(key, "a whole number above 0")),
        }
    }

    /// A finite number; `None` without the key.
    pub fn decimal(&self, key: &str) -> Result<Option<Decimal>, Problem> {
        let Some(node) = self.node(key) else { return Ok(None) };
        number(node).map(Some).ok_or_else(|| self.wrong(key, "a finite number"))
    }

    /// A finite number, or this default without the key.
    pub fn decimal_or(&self, key: &str, default: &str) -> Result<Decimal, Problem> {
        Ok(self.decimal(key)?.unwrap_or_else(|| decimal(default)))
    }

    /// True or false, or this default without the key.
    pub fn bool_or(&self, key: &str, default: bool) -> Result<bool, Problem> {
        match self.node(key).map(|node| &node.value) {
            None => Ok(default),
            Some(NodeValue::Bool(b)) => Ok(*b),
            Some(
                NodeValue::Null
                | NodeValue::Number(_)
                | NodeValue::Text(_)
                | NodeValue::List(_)
                | NodeValue::Map(_),
            ) => Err(self.wrong(key, "true or false")),
        }
    }

    /// A text; `None` without the key.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, Problem> {
        match self.node(key).map(|node| &node.value) {
            None => Ok(None),
            Some(NodeValue::Text(text)) => Ok(Some(text)),
            Some(
                NodeValue::Null
                | NodeValue::Number(_)
                | NodeValue::Bool(_)
                | NodeValue::List(_)
                | NodeValue::Map(_),
            ) => Err(self.wrong(key, "a text")),
        }
    }

    /// Reads a key that has only some supported values.
    pub(crate) fn check(&self, rule: &KeyRule) -> Result<(), Problem> {
        self.only(rule.key(), rule.values, rule.sentence)
    }

    /// Reads several keys that have only some supported values.
    pub(crate) fn check_all(&self, rules: &[KeyRule]) -> Result<(), Problem> {
        rules.iter().try_for_each(|rule| self.check(rule))
    }

    /// Like [`Keys::check`], for a key or values that only the caller knows. The sentence has `{}` for another value.
    pub(crate) fn only(&self, key: &str, values: &[&str], sentence: &str) -> Result<(), Problem> {
        let Some(node) = self.node(key) else { return Ok(()) };
        let equal = |text: &&str| match (&node.value, Decimal::parse(text)) {
            (NodeValue::Number(digits), Ok(number)) => Decimal::parse(digits) == Ok(number),
            (value, _) => value.plain() == **text,
        };
        if values.iter().any(equal) {
            return Ok(());
        }
        let help = match values {
            [] => "remove it or write null".to_owned(),
            _ => format!("only {} can be expressed", values.join(" or ")),
        };
        Err(self.error(key, sentence.replacen("{}", &node.value.shown(), 1), help))
    }

    /// Like [`Keys::only`], for a key that the reading class sets to `default` if it is absent. If `default` is not
    /// among the supported values, the key must be present.
    pub(crate) fn needed(
        &self,
        key: &str,
        values: &[&str],
        default: &str,
        sentence: &str,
    ) -> Result<(), Problem> {
        if self.node(key).is_some() || values.contains(&default) {
            return self.only(key, values, sentence);
        }
        let has = format!("{}, which the class takes as {default}", self.value(key));
        let help = format!("write {}", values.join(" or "));
        Err(self.error(key, sentence.replacen("{}", &has, 1), help))
    }

    /// Reads a key with one supported value, which has no effect, and lists it.
    pub(crate) fn neutral(&self, rule: &KeyRule) -> Result<(), Problem> {
        self.only_neutral(rule.key(), rule.values, rule.sentence)
    }

    /// Like [`Keys::neutral`], for a key or values that only the caller knows.
    pub(crate) fn only_neutral(
        &self,
        key: &str,
        values: &[&str],
        sentence: &str,
    ) -> Result<(), Problem> {
        self.only(key, values, sentence)?;
        if let Some(node) = self.node(key) {
            let reason = format!("{}, which has no effect", node.value.shown());
            self.neutral.borrow_mut().push(LeftOut { name: key.to_owned(), reason });
        }
        Ok(())
    }

    /// Lists a key that does not matter for arch, weights or recipe.
    pub fn leave_out(&self, key: &str, reason: &str) {
        let is_set = self.node(key).is_some_and(|node| node.value != NodeValue::Map(Vec::new()));
        if is_set || !self.below(key).is_empty() {
            let left_out = LeftOut { name: key.to_owned(), reason: reason.to_owned() };
            self.neutral.borrow_mut().push(left_out);
        }
        self.idle(&[key]);
    }

    /// The keys that were accepted because they change nothing.
    pub fn neutrals(&self) -> Vec<LeftOut> {
        self.neutral.borrow().clone()
    }

    /// Marks keys as read that do not matter for arch, weights or recipe.
    pub fn idle(&self, keys: &[&str]) {
        for key in keys {
            let below = format!("{key}.");
            let all = self.leaves.keys().filter(|k| k == key || k.starts_with(&below));
            self.taken.borrow_mut().extend(all.cloned());
        }
    }

    /// An error if a key was not read.
    pub fn finish(&self, known: &[&str]) -> Result<(), Problem> {
        let taken = self.taken.borrow();
        let untaken = || self.leaves.iter().filter(|(key, _)| !taken.contains(*key));
        // A key set to null switches nothing on, whatever it means.
        for (key, _) in untaken().filter(|(_, node)| node.value == NodeValue::Null) {
            let reason = "null, which has no effect".to_owned();
            self.neutral.borrow_mut().push(LeftOut { name: key.clone(), reason });
        }
        let left: Vec<&String> = untaken()
            .filter(|(_, node)| node.value != NodeValue::Null)
            .map(|(key, _)| key)
            .collect();
        let Some(first) = left.first() else { return Ok(()) };
        let more = match left.len() - 1 {
            0 => String::new(),
            _ => {
                let rest: Vec<&str> = left.iter().skip(1).take(12).map(|k| k.as_str()).collect();
                format!("; nor are {}", rest.join(", "))
            }
        };
        let words = taken.iter().map(String::as_str).chain(known.iter().copied());
        let help = match dsl::suggest(first, words) {
            Some(similar) => format!("did you mean `{similar}`?"),
            None => "remove it if it does not affect the model or its training".to_owned(),
        };
        let message = format!("`{first}` is {}, and this key is unknown{more}", self.value(first));
        Err(self.error(first, message, help))
    }
}

pub(crate) fn number(node: &Node) -> Option<Decimal> {
    match &node.value {
        NodeValue::Number(digits) => Decimal::parse(digits).ok(),
        NodeValue::Null
        | NodeValue::Bool(_)
        | NodeValue::Text(_)
        | NodeValue::List(_)
        | NodeValue::Map(_) => None,
    }
}

/// Parses a number from our own tables; zero if it is malformed, which does not occur.
pub(crate) fn decimal(text: &str) -> Decimal {
    Decimal::parse(text).unwrap_or(Decimal::ZERO)
}
