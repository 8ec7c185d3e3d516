//! YAML in the form that Lingua's recipes use, as a tree with lines.
//!
//! One document of maps, lists and scalars. Anchors, aliases, tags, merge keys, interpolation and duplicate keys are
//! refused with their line; so is a word that YAML 1.1 and 1.2 read differently. Depth and size are bounded.

use dsl::Problem;
use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::json::is_number;
use super::node::{Flat, MAX_DEPTH, Node, NodeValue, Once};

/// The maximum size of a recipe.
pub const MAX_YAML: usize = 1 << 20;

/// Every leaf of a YAML file: key, value, line.
pub fn flat(name: &str, bytes: &[u8]) -> Result<Vec<Flat>, Problem> {
    Ok(read(name, bytes)?.flat())
}

/// The comments of a file, each with its line, without the `#`.
pub fn comments(text: &str) -> Vec<(usize, String)> {
    // A `#` between quotation marks, or in a block scalar, does not begin a comment.
    let chars: Vec<char> = text.chars().collect();
    let mut texts = Vec::new();
    for (event, span) in Parser::new_from_str(text).map_while(Result::ok) {
        if let Event::Scalar(_, style, _, _) = event
            && style != ScalarStyle::Plain
        {
            let start = span.start.index();
            // The span of a quoted scalar may reach to the next token, past a comment.
            let end = match style {
                ScalarStyle::DoubleQuoted => closing(&chars, start, '"'),
                ScalarStyle::SingleQuoted => closing(&chars, start, '\''),
                ScalarStyle::Plain | ScalarStyle::Literal | ScalarStyle::Folded => None,
            };
            texts.push(start..end.unwrap_or(span.end.index()));
        }
    }
    let mut comments = Vec::new();
    let mut at = 0;
    for (line, number) in text.split('\n').zip(1..) {
        let mut before = ' ';
        for (column, (byte, c)) in line.char_indices().enumerate() {
            let open = c == '#' && before.is_whitespace();
            if open && !texts.iter().any(|text| text.contains(&(at + column))) {
                let comment = line.get(byte + 1..).unwrap_or_default();
                comments.push((number, comment.trim_end().to_owned()));
                break;
            }
            before = c;
        }
        at += line.chars().count() + 1;
    }
    comments
}

/// The position after the mark that closes the quoted scalar at `start`.
fn closing(chars: &[char], start: usize, mark: char) -> Option<usize> {
    let mut at = start + chars.get(start..)?.iter().position(|c| *c == mark)? + 1;
    loop {
        match (chars.get(at)?, chars.get(at + 1)) {
            ('\\', Some(_)) if mark == '"' => at += 2,
            ('\'', Some('\'')) if mark == '\'' => at += 2,
            (c, _) if *c == mark => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// Reads one document.
pub fn read(name: &str, bytes: &[u8]) -> Result<Node, Problem> {
    document(name, bytes, false)
}

/// Reads one document of another program, to compare it with others of its kind: interpolation, and words that two
/// versions of YAML read differently, are texts as they are written.
pub fn read_as_written(name: &str, bytes: &[u8]) -> Result<Node, Problem> {
    document(name, bytes, true)
}

fn document(name: &str, bytes: &[u8], as_written: bool) -> Result<Node, Problem> {
    let fail = |line: usize, reason: &str| {
        Problem::in_file(
            format!("{name}:{line}"),
            reason.to_owned(),
            "use plain keys and values, each key once, without anchors, aliases or tags",
        )
    };
    if bytes.len() > MAX_YAML {
        return Err(fail(1, &format!("it has {}", dsl::over(bytes.len() as u64, MAX_YAML as u64))));
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err(fail(1, "it is not UTF-8"));
    };
    let mut builder = Builder { stack: Vec::new(), root: None, documents: 0, as_written };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            fail(error.marker().line(), &format!("it is not YAML: {}", error.info()))
        })?;
        builder.take(event, span).map_err(|(line, reason)| fail(line, &reason))?;
    }
    builder.root.ok_or_else(|| fail(1, "it is empty"))
}

type Refused = (usize, String);

/// A tree in block style, with two spaces per level.
pub fn write(value: &NodeValue) -> String {
    let mut out = String::new();
    if let NodeValue::Map(entries) = value {
        map(entries, 0, &mut out);
    }
    out
}

fn map(entries: &[(String, Node)], depth: usize, out: &mut String) {
    for (key, node) in entries {
        out.push_str(&"  ".repeat(depth));
        out.push_str(&scalar(&NodeValue::Text(key.clone())));
        out.push(':');
        below(&node.value, depth, out);
    }
}

/// The text after a key, or after the dash of an entry.
fn below(value: &NodeValue, depth: usize, out: &mut String) {
    match value {
        NodeValue::Map(entries) if !entries.is_empty() => {
            out.push('\n');
            map(entries, depth + 1, out);
        }
        NodeValue::List(items) if !items.is_empty() => {
            out.push('\n');
            for item in items {
                out.push_str(&"  ".repeat(depth));
                out.push('-');
                if let NodeValue::Map(entries) = &item.value
                    && !entries.is_empty()
                {
                    let mut inner = String::new();
                    map(entries, depth + 1, &mut inner);
                    out.push(' ');
                    out.push_str(inner.trim_start());
                } else {
                    below(&item.value, depth + 1, out);
                }
            }
        }
        NodeValue::Map(_) => out.push_str(" {}\n"),
        NodeValue::List(_) => out.push_str(" []\n"),
        NodeValue::Null | NodeValue::Bool(_) | NodeValue::Number(_) | NodeValue::Text(_) => {
            out.push(' ');
            out.push_str(&scalar(value));
            out.push('\n');
        }
    }
}

/// A scalar that YAML 1.1 and 1.2 read the same way.
fn scalar(value: &NodeValue) -> String {
    match value {
        NodeValue::Number(digits) if digits == "Infinity" => ".inf".to_owned(),
        NodeValue::Number(digits) => match digits.split_once('e') {
            // YAML 1.1 recognises an exponent only with a point before it and a sign.
            Some((mantissa, exponent)) => {
                let point = if mantissa.contains('.') { "" } else { ".0" };
                let sign = if exponent.starts_with(['-', '+']) { "" } else { "+" };
                format!("{mantissa}{point}e{sign}{exponent}")
            }
            None => digits.clone(),
        },
        NodeValue::Text(text) => {
            let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
            let begins =
                text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '_');
            let bare = begins && text.chars().all(letters) && plain(text) == Ok(value.clone());
            if bare { text.clone() } else { super::json::quoted(text) }
        }
        NodeValue::Null | NodeValue::Bool(_) | NodeValue::List(_) | NodeValue::Map(_) => {
            value.shown()
        }
    }
}

/// A collection that is not closed yet.
enum Open {
    List(usize, Vec<Node>),
    /// With the keys so far, and the key of the next value.
    Map(usize, Vec<(String, Node)>, Once, Option<String>),
}

struct Builder {
    stack: Vec<Open>,
    root: Option<Node>,
    documents: usize,
    as_written: bool,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Refused> {
        let line = span.start.line();
        let plain = |anchor: usize, tagged: bool| match (anchor, tagged) {
            (0, false) => Ok(()),
            (0, true) => Err((line, "a tag (`!…`), which could name code".to_owned())),
            (_, _) => Err((line, "an anchor (`&…`)".to_owned())),
        };
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents == 1 {
                    Ok(())
                } else {
                    Err((line, "a second document".to_owned()))
                }
            }
            Event::Alias(_) => Err((line, "an alias (`*…`)".to_owned())),
            Event::Scalar(text, style, anchor, tag) => {
                plain(anchor, tag.is_some())?;
                self.scalar(&text, style, line)
            }
            Event::SequenceStart(anchor, tag) => {
                plain(anchor, tag.is_some())?;
                self.open(Open::List(line, Vec::new()), line)
            }
            Event::MappingStart(anchor, tag) => {
                plain(anchor, tag.is_some())?;
                self.open(Open::Map(line, Vec::new(), Once::default(), None), line)
            }
            Event::SequenceEnd | Event::MappingEnd => match self.stack.pop() {
                Some(Open::List(line, items)) => {
                    self.put(Node { value: NodeValue::List(items), line })
                }
                Some(Open::Map(line, entries, _, None)) => {
                    self.put(Node { value: NodeValue::Map(entries), line })
                }
                Some(Open::Map(..)) | None => Err((line, "a key without a value".to_owned())),
            },
        }
    }

    fn open(&mut self, open: Open, line: usize) -> Result<(), Refused> {
        if let Some(Open::Map(_, _, _, None)) = self.stack.last() {
            return Err((line, "a key that is not a plain string".to_owned()));
        }
        if self.stack.len() >= MAX_DEPTH {
            return Err((line, format!("it is nested more than {MAX_DEPTH} deep")));
        }
        self.stack.push(open);
        Ok(())
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, line: usize) -> Result<(), Refused> {
        if let Some(Open::Map(_, entries, once, key @ None)) = self.stack.last_mut() {
            if text == "<<" && style == ScalarStyle::Plain {
                return Err((line, "a merge key (`<<`)".to_owned()));
            }
            if text.is_empty() || (text.contains('.') && !self.as_written) {
                return Err((line, format!("{text:?} as a key")));
            }
            if !once.new_name(text) {
                let first = entries.iter().find(|(k, _)| k == text).map_or(0, |(_, n)| n.line);
                return Err((
                    line,
                    format!("`{text}` is on line {first} and again on line {line}"),
                ));
            }
            *key = Some(text.to_owned());
            return Ok(());
        }
        let value = if self.as_written {
            let read = (style == ScalarStyle::Plain).then(|| plain(text).ok()).flatten();
            read.unwrap_or_else(|| NodeValue::Text(text.to_owned()))
        } else if style == ScalarStyle::Plain {
            plain(text).map_err(|reason| (line, reason))?
        } else {
            interpolated(text).map_err(|reason| (line, reason))?;
            NodeValue::Text(text.to_owned())
        };
        self.put(Node { value, line })
    }

    fn put(&mut self, node: Node) -> Result<(), Refused> {
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some(Open::List(_, items)) => items.push(node),
            Some(Open::Map(_, entries, _, key)) => match key.take() {
                Some(key) => entries.push((key, node)),
                None => return Err((node.line, "a key that is not a plain string".to_owned())),
            },
        }
        Ok(())
    }
}

fn interpolated(text: &str) -> Result<(), String> {
    match text.contains("${") {
        true => Err(format!("{text:?}, which OmegaConf would replace: write the value itself")),
        false => Ok(()),
    }
}

/// The value of an unquoted word.
fn plain(text: &str) -> Result<NodeValue, String> {
    interpolated(text)?;
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => NodeValue::Null,
        "true" | "True" | "TRUE" => NodeValue::Bool(true),
        "false" | "False" | "FALSE" => NodeValue::Bool(false),
        ".inf" | "+.inf" => NodeValue::Number("Infinity".to_owned()),
        "-.inf" => NodeValue::Number("-Infinity".to_owned()),
        ".nan" => NodeValue::Number("NaN".to_owned()),
        _ => {
            let word = text.to_ascii_lowercase();
            if ["yes", "no", "on", "off", "y", "n"].contains(&word.as_str()) {
                return Err(format!("`{text}`, a boolean in YAML 1.1 but a string in YAML 1.2"));
            }
            let unsigned = text.strip_prefix('+').unwrap_or(text);
            if is_number(unsigned) {
                NodeValue::Number(unsigned.to_owned())
            } else if looks_numeric(unsigned) {
                return Err(format!(
                    "`{text}`, a number in one version of YAML but a string in another"
                ));
            } else {
                NodeValue::Text(text.to_owned())
            }
        }
    })
}

/// `010`, `1_000`, `0x10`, `.5`, `1.`, `1:30`: looks like a number, but is not one in JSON.
fn looks_numeric(text: &str) -> bool {
    let body = text.strip_prefix('-').unwrap_or(text);
    let joins =
        |c: char| c.is_ascii_digit() || matches!(c, '_' | '.' | ':' | 'e' | 'E' | '+' | '-');
    let hexadecimal = body.strip_prefix("0x").or_else(|| body.strip_prefix("0o"));
    let digits = body.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    hexadecimal.is_some_and(|h| !h.is_empty() && h.bytes().all(|b| b.is_ascii_hexdigit()))
        || (digits && body.chars().all(joins) && body.contains(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::comments;

    #[test]
    fn comments_are_read_outside_of_quoted_and_block_texts() {
        let text = "# one\na: 1 # two\nb: \"x # no\" # three\nc: d#no\nd: |\n  # no\n  x\n  #four\ne: 'y\n  # no'\n# \u{e9} five\n";
        let read = comments(text);
        let read: Vec<(usize, &str)> = read.iter().map(|(at, text)| (*at, text.trim())).collect();
        assert_eq!(read, [(1, "one"), (2, "two"), (3, "three"), (11, "\u{e9} five")]);
        assert_eq!(comments("a: 1\r\n# 8 GPUs\r\n"), [(2, " 8 GPUs".to_owned())]);
    }
}
