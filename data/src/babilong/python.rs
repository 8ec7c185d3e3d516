//! The strings and dictionaries of strings that the text of a Python file assigns to names. No code runs: only assignments
//! of literals are read, in time linear in the text's length.

use std::collections::BTreeMap;

/// The value assigned to a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    Text(String),
    Dict(BTreeMap<String, Literal>),
}

/// Maximum nesting of dictionaries.
const DEPTH: usize = 16;

/// All literal assignments, including single entries (`NAME['key'] = …`). Later ones replace earlier ones.
pub(super) fn assignments(source: &str) -> BTreeMap<String, Literal> {
    let mut values = BTreeMap::new();
    for line in tokens(source).split(|token| *token == Token::Sign(LINE)) {
        let (name, key, from) = match line {
            [Token::Name(name), Token::Sign('='), ..] => (*name, None, 2),
            [
                Token::Name(name),
                Token::Sign('['),
                Token::Text { text, .. },
                Token::Sign(']'),
                Token::Sign('='),
                ..,
            ] => (*name, Some(text.clone()), 5),
            _ => continue,
        };
        let mut parser = Parser { tokens: line, at: from, known: &values };
        let Some(value) = parser.value(0).filter(|_| parser.at == line.len()) else { continue };
        let Some(key) = key else {
            values.insert(name.to_owned(), value);
            continue;
        };
        let dict = values.entry(name.to_owned()).or_insert_with(|| Literal::Dict(BTreeMap::new()));
        if let Literal::Dict(entries) = dict {
            entries.insert(key, value);
        }
    }
    values
}

/// The token for the end of a logical line, that is, a line end outside all brackets.
const LINE: char = '\n';

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token<'a> {
    Name(&'a str),
    Text { text: String, format: bool },
    Sign(char),
}

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    known: &'a BTreeMap<String, Literal>,
}

impl Parser<'_> {
    fn value(&mut self, depth: usize) -> Option<Literal> {
        match self.tokens.get(self.at)? {
            Token::Sign('{') if depth < DEPTH => self.dict(depth),
            Token::Name(_) | Token::Text { .. } | Token::Sign(_) => {
                self.text(depth).map(Literal::Text)
            }
        }
    }

    fn dict(&mut self, depth: usize) -> Option<Literal> {
        let mut entries = BTreeMap::new();
        self.at += 1;
        while !self.take('}') {
            let Token::Text { text: key, format: false } = self.tokens.get(self.at)? else {
                return None;
            };
            let key = key.clone();
            self.at += 1;
            if !self.take(':') {
                return None;
            }
            entries.insert(key, self.value(depth + 1)?);
            if !self.take(',') && self.tokens.get(self.at) != Some(&Token::Sign('}')) {
                return None;
            }
        }
        Some(Literal::Dict(entries))
    }

    /// Adjacent strings or strings joined by `+`, names of strings, and parentheses around them.
    fn text(&mut self, depth: usize) -> Option<String> {
        let mut joined = String::new();
        loop {
            match self.tokens.get(self.at)? {
                Token::Text { text, format } => {
                    self.at += 1;
                    joined.push_str(&if *format { self.formatted(text) } else { text.clone() });
                }
                Token::Name(name) => {
                    let Literal::Text(text) = self.known.get(*name)? else { return None };
                    self.at += 1;
                    joined.push_str(text);
                }
                Token::Sign('(') if depth < DEPTH => {
                    self.at += 1;
                    joined.push_str(&self.text(depth + 1)?);
                    if !self.take(')') {
                        return None;
                    }
                }
                Token::Sign(_) => return None,
            }
            let next_is_text = matches!(self.tokens.get(self.at), Some(Token::Text { .. }));
            if !next_is_text && !self.take('+') {
                return Some(joined);
            }
        }
    }

    /// Fills in the known names of an f-string. Unknown names are left unchanged.
    fn formatted(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            filled.push_str(before);
            let known =
                after.split_once('}').and_then(|(name, after)| match self.known.get(name)? {
                    Literal::Text(text) => Some((text, after)),
                    Literal::Dict(_) => None,
                });
            match known {
                Some((text, after)) => {
                    filled.push_str(text);
                    rest = after;
                }
                None => {
                    filled.push('{');
                    rest = after;
                }
            }
        }
        filled + rest
    }

    fn take(&mut self, sign: char) -> bool {
        let taken = self.tokens.get(self.at) == Some(&Token::Sign(sign));
        self.at += usize::from(taken);
        taken
    }
}

fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut rest, mut brackets) = (source, 0usize);
    while let Some(first) = rest.chars().next() {
        if let Some((token, after)) = string(rest) {
            tokens.push(token);
            rest = after;
        } else if first == '#' {
            rest = rest.find('\n').map_or("", |end| rest.get(end..).unwrap_or(""));
        } else if first.is_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            tokens.push(Token::Name(name));
            rest = after;
        } else {
            match first {
                '(' | '[' | '{' => brackets += 1,
                ')' | ']' | '}' => brackets = brackets.saturating_sub(1),
                _ => {}
            }
            if first == '\\' {
                // A backslash continues the line.
                rest = rest.strip_prefix("\\\n").map_or(rest, |_| rest.get(1..).unwrap_or(""));
            } else if !first.is_whitespace() || first == LINE && brackets == 0 {
                tokens.push(Token::Sign(first));
            }
            rest = rest.get(first.len_utf8()..).unwrap_or("");
        }
    }
    tokens
}

/// The string literal at the start of the text, and the text after it.
fn string(text: &str) -> Option<(Token<'_>, &str)> {
    let quote_at = text.bytes().take(3).position(|byte| matches!(byte, b'\'' | b'"'))?;
    let (prefix, body) = text.split_at_checked(quote_at)?;
    let prefix = prefix.to_ascii_lowercase();
    if !["", "r", "u", "f", "rf", "fr"].contains(&prefix.as_str()) {
        return None;
    }
    let (raw, format) = (prefix.contains('r'), prefix.contains('f'));
    let quote = if body.starts_with("'''") {
        "'''"
    } else if body.starts_with("\"\"\"") {
        "\"\"\""
    } else {
        body.get(..1)?
    };
    let body = body.get(quote.len()..)?;
    let mut out = String::new();
    let mut at = 0;
    loop {
        let rest = body.get(at..)?;
        if let Some(after) = rest.strip_prefix(quote) {
            return Some((Token::Text { text: out, format }, after));
        }
        let mut chars = rest.chars();
        let first = chars.next()?;
        at += first.len_utf8();
        if first == '\n' && quote.len() == 1 {
            return None;
        }
        if first != '\\' {
            out.push(first);
            continue;
        }
        let escaped = chars.next()?;
        at += escaped.len_utf8();
        match escaped {
            _ if raw => out.extend(['\\', escaped]),
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            '\n' => {}
            '\\' | '\'' | '"' => out.push(escaped),
            other => out.extend(['\\', other]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Literal {
        Literal::Text(text.to_owned())
    }

    #[test]
    fn literals_are_read() {
        let values = assignments(
            r#"
# A = 'comment'
import os
A = '{x}\n'  # with a 'comment'
B = f"{A}and {unknown} it's"
C = (
    'one '
    "two" + A
)
def f(context, template=A):
    d = template.format(x=context.strip())
    return d == 'no' if d else None
D = {
    'qa1': {'t': 'a' 'b', "u": '''long
one'''},
    'qa2': {'t': r'\n', 'u': B,},
}
D['qa3'] = {'t': 'ü', 'u': ''}
if True:
    H = 'in a block'
E = [1, 2]
I = A \
    'goes on'
J = A.upper()
K = 'a'
'''a comment in quotes'''
F = os.path.join('a', 'b')
G = 'later'
"#,
        );
        assert_eq!(values["A"], text("{x}\n"));
        assert_eq!(values["B"], text("{x}\nand {unknown} it's"));
        assert_eq!(values["C"], text("one two{x}\n"));
        assert_eq!((&values["G"], &values["H"]), (&text("later"), &text("in a block")));
        assert_eq!((&values["I"], &values["K"]), (&text("{x}\ngoes on"), &text("a")));
        let Literal::Dict(dict) = &values["D"] else { panic!("{values:?}") };
        let entry = |key: &str, name: &str| match &dict[key] {
            Literal::Dict(entry) => entry[name].clone(),
            text => panic!("{text:?}"),
        };
        assert_eq!((entry("qa1", "t"), entry("qa1", "u")), (text("ab"), text("long\none")));
        assert_eq!(
            (entry("qa2", "t"), entry("qa2", "u")),
            (text("\\n"), text("{x}\nand {unknown} it's"))
        );
        assert_eq!((entry("qa3", "t"), entry("qa3", "u")), (text("ü"), text("")));
        assert!(["E", "F", "J", "d", "template"].iter().all(|name| !values.contains_key(*name)));
    }

    #[test]
    fn any_text_is_survived() {
        for source in [
            "",
            "A =",
            "A = '",
            "A = {",
            "A = {'a': {'b': ",
            "'''",
            "A = \"\\",
            "A = (",
            "ü = 'x' +",
            "=[",
        ] {
            assignments(source);
        }
        let deep = format!("A = {}", "{'a': ".repeat(100_000));
        assert!(assignments(&deep).is_empty());
        let brackets = format!("A = {}", "(".repeat(100_000));
        assert!(assignments(&brackets).is_empty());
        // A chain of assignments is read in linear time.
        let chain: String = (0..20_000).map(|i| format!("A{} = A{i}\n", i + 1)).collect();
        assert_eq!(assignments(&format!("A0 = 'x'\n{chain}"))["A20000"], text("x"));
    }
}
