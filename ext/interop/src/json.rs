//! Reads JSON as Python writes it, as a tree with lines.
//!
//! Strict, except for `Infinity`, `-Infinity` and `NaN`, which Python writes; each reader decides whether to accept them.
//! A duplicate key is refused with both lines; depth and size are bounded; no input panics.

use disk::content::{Content, START};
use dsl::Problem;

use super::node::{MAX_BYTES, MAX_DEPTH, Node, NodeValue};

/// Reads one value with nothing after it.
pub fn read(name: &str, bytes: &[u8]) -> Result<Node, Problem> {
    let fail = |line: usize, reason: String| {
        Problem::in_file(
            format!("{name}:{line}"),
            format!("it is not JSON: {reason}"),
            "use the original file",
        )
    };
    if bytes.len() > MAX_BYTES {
        return Err(fail(1, format!("it has {}", dsl::over(bytes.len() as u64, MAX_BYTES as u64))));
    }
    let content = Content::of_start(bytes.get(..START).unwrap_or(bytes));
    if let Some(help) = content.help() {
        return Err(Problem::in_file(
            name,
            format!("it is not JSON: it is {}", content.name()),
            help,
        ));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        fail(1 + count_lines(before), "a byte that is not UTF-8".to_owned())
    })?;
    let mut reader = JsonReader { rest: text.trim_start_matches('\u{feff}'), line: 1, values: 0 };
    let node = reader.value(0).map_err(|reason| fail(reader.line, reason))?;
    reader.blanks();
    match reader.rest.chars().next() {
        None => Ok(node),
        Some(c) => Err(fail(reader.line, format!("{c:?} after its end"))),
    }
}

fn count_lines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|b| **b == b'\n').count()
}

/// The maximum number of values in one file: each takes a hundred bytes of memory, but only two of the file.
const MAX_VALUES: usize = 4_000_000;

struct JsonReader<'a> {
    rest: &'a str,
    line: usize,
    values: usize,
}

impl JsonReader<'_> {
    fn blanks(&mut self) {
        let after = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let skipped = self.rest.len() - after.len();
        self.line += count_lines(self.rest.get(..skipped).unwrap_or_default().as_bytes());
        self.rest = after;
    }

    fn take(&mut self, word: &str) -> bool {
        match self.rest.strip_prefix(word) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn require(&mut self, word: &str) -> Result<(), String> {
        self.blanks();
        if self.take(word) {
            Ok(())
        } else {
            Err(format!("{} instead of `{word}`", self.next_shown()))
        }
    }

    fn next_shown(&self) -> String {
        match self.rest.chars().next() {
            Some(c) => format!("{c:?}"),
            None => "the end".to_owned(),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, String> {
        if depth > MAX_DEPTH {
            return Err(format!("it is nested more than {MAX_DEPTH} deep"));
        }
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(format!("it has more than {MAX_VALUES} values"));
        }
        self.blanks();
        let line = self.line;
        let value = if self.take("{") {
            self.map(depth)?
        } else if self.take("[") {
            self.list(depth)?
        } else if self.take("\"") {
            NodeValue::Text(self.text()?)
        } else if self.take("true") {
            NodeValue::Bool(true)
        } else if self.take("false") {
            NodeValue::Bool(false)
        } else if self.take("null") {
            NodeValue::Null
        } else {
            NodeValue::Number(self.number()?)
        };
        Ok(Node { value, line })
    }

    fn map(&mut self, depth: usize) -> Result<NodeValue, String> {
        let mut entries: Vec<(String, Node)> = Vec::new();
        let mut lines = std::collections::BTreeMap::new();
        self.blanks();
        if self.take("}") {
            return Ok(NodeValue::Map(entries));
        }
        loop {
            self.require("\"")?;
            let line = self.line;
            let key = self.text()?;
            if let Some(first) = lines.insert(key.clone(), line) {
                return Err(format!("{key:?} is on line {first} and again on line {line}"));
            }
            self.require(":")?;
            entries.push((key, self.value(depth + 1)?));
            self.blanks();
            if self.take("}") {
                return Ok(NodeValue::Map(entries));
            }
            self.require(",")?;
        }
    }

    fn list(&mut self, depth: usize) -> Result<NodeValue, String> {
        let mut items = Vec::new();
        self.blanks();
        if self.take("]") {
            return Ok(NodeValue::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.blanks();
            if self.take("]") {
                return Ok(NodeValue::List(items));
            }
            self.require(",")?;
        }
    }

    /// The text after a quotation mark, up to the closing one.
    fn text(&mut self) -> Result<String, String> {
        let mut text = String::new();
        loop {
            let mut chars = self.rest.chars();
            match chars.next() {
                None => return Err("an unterminated string".to_owned()),
                Some('"') => {
                    self.rest = chars.as_str();
                    return Ok(text);
                }
                Some('\\') => {
                    let escaped = chars.next();
                    self.rest = chars.as_str();
                    text.push(match escaped {
                        Some(c @ ('"' | '\\' | '/')) => c,
                        Some('b') => '\u{8}',
                        Some('f') => '\u{c}',
                        Some('n') => '\n',
                        Some('r') => '\r',
                        Some('t') => '\t',
                        Some('u') => self.escaped()?,
                        Some(c) => return Err(format!("the escape \\{c}")),
                        None => return Err("an unterminated string".to_owned()),
                    });
                }
                Some(c) if c < ' ' => return Err(format!("{c:?} inside a string")),
                Some(c) => {
                    text.push(c);
                    self.rest = chars.as_str();
                }
            }
        }
    }

    /// The character of `\uXXXX`, or of a surrogate pair.
    fn escaped(&mut self) -> Result<char, String> {
        let first = self.hex()?;
        let code = if (0xd800..0xdc00).contains(&first) && self.take("\\u") {
            let second = self.hex()?;
            match second.checked_sub(0xdc00) {
                Some(low) if low < 0x400 => 0x10000 + ((first - 0xd800) << 10) + low,
                Some(_) | None => return Err("half a surrogate pair".to_owned()),
            }
        } else {
            first
        };
        char::from_u32(code).ok_or_else(|| "half a surrogate pair".to_owned())
    }

    fn hex(&mut self) -> Result<u32, String> {
        let digits = self.rest.get(..4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let digits = digits.ok_or("a \\u without four hexadecimal digits")?;
        self.rest = self.rest.get(4..).unwrap_or_default();
        u32::from_str_radix(digits, 16).map_err(|error| error.to_string())
    }

    fn number(&mut self) -> Result<String, String> {
        for word in ["Infinity", "-Infinity", "NaN"] {
            if self.take(word) {
                return Ok(word.to_owned());
            }
        }
        let end = self
            .rest
            .find(|c: char| !(c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E')))
            .unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        if !is_number(digits) {
            return Err(format!("{} instead of a value", self.next_shown()));
        }
        self.rest = rest;
        Ok(digits.to_owned())
    }
}

/// Whether the text is a number in JSON's grammar.
pub(crate) fn is_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (integer, fraction) = match mantissa.split_once('.') {
        Some((integer, fraction)) => (integer, Some(fraction)),
        None => (mantissa, None),
    };
    digits(integer)
        && (integer == "0" || !integer.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e)))
}

/// A tree as JSON with two spaces per level, in the format of Python's `json.dumps(indent=2)`.
pub fn write(value: &NodeValue) -> String {
    let mut out = String::new();
    put(value, 0, &mut out);
    out.push('\n');
    out
}

fn put(value: &NodeValue, depth: usize, out: &mut String) {
    let pad = |depth: usize| format!("\n{}", "  ".repeat(depth));
    match value {
        NodeValue::Null => out.push_str("null"),
        NodeValue::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        NodeValue::Number(digits) => out.push_str(digits),
        NodeValue::Text(text) => out.push_str(&quoted(text)),
        NodeValue::List(items) if items.is_empty() => out.push_str("[]"),
        NodeValue::Map(entries) if entries.is_empty() => out.push_str("{}"),
        NodeValue::List(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                out.push_str(&pad(depth + 1));
                put(&item.value, depth + 1, out);
            }
            out.push_str(&pad(depth));
            out.push(']');
        }
        NodeValue::Map(entries) => {
            out.push('{');
            for (i, (key, node)) in entries.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                out.push_str(&pad(depth + 1));
                out.push_str(&quoted(key));
                out.push_str(": ");
                put(&node.value, depth + 1, out);
            }
            out.push_str(&pad(depth));
            out.push('}');
        }
    }
}

pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' || c == '\u{7f}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
