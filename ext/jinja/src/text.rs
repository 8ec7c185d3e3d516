//! Python's texts of numbers and strings, and its classes of characters.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex::Regex;

/// `repr` of a float: the shortest digits that read back as the same number.
pub(crate) fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// `repr` of a string.
pub(crate) fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out += "\\\\",
            '\n' => out += "\\n",
            '\r' => out += "\\r",
            '\t' => out += "\\t",
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => match u32::from(c) {
                code @ 0..=0xff => out += &format!("\\x{code:02x}"),
                code @ 0x100..=0xffff => out += &format!("\\u{code:04x}"),
                code => out += &format!("\\U{code:08x}"),
            },
        }
    }
    out.push(quote);
    out
}

fn matches(class: &LazyLock<Option<Regex>>, character: char) -> bool {
    class.as_ref().is_some_and(|class| class.is_match(character.encode_utf8(&mut [0; 4])))
}

/// `str.isprintable` of a character.
pub(crate) fn is_printable(character: char) -> bool {
    static HIDDEN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\p{C}\p{Z}]$").ok());
    character == ' ' || (character.is_ascii() && !character.is_ascii_control()) || {
        !character.is_ascii() && !matches(&HIDDEN, character)
    }
}

/// `str.isalpha` of a character.
pub(crate) fn is_letter(character: char) -> bool {
    static LETTER: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\p{L}$").ok());
    matches(&LETTER, character)
}

/// `str.isdecimal` of a character.
pub(crate) fn is_decimal(character: char) -> bool {
    static DECIMAL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\p{Nd}$").ok());
    matches(&DECIMAL, character)
}

/// Python's `str.isspace` of a character.
pub fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// `str.title` of a word's first character: one of two letters has a form of its own.
pub(crate) fn title(character: char) -> String {
    let digraph = match character {
        '\u{1c4}'..='\u{1c6}' => Some('\u{1c5}'),
        '\u{1c7}'..='\u{1c9}' => Some('\u{1c8}'),
        '\u{1ca}'..='\u{1cc}' => Some('\u{1cb}'),
        '\u{1f1}'..='\u{1f3}' => Some('\u{1f2}'),
        _ => None,
    };
    match digraph {
        Some(digraph) => digraph.to_string(),
        None => {
            // A ligature's letters after the first one are small: ß is Ss.
            let mut out = String::new();
            let mut is_first = true;
            for c in character.to_uppercase() {
                if is_first {
                    out.push(c);
                } else {
                    out.extend(c.to_lowercase());
                }
                is_first &= !c.is_uppercase();
            }
            out
        }
    }
}

/// Whether a character has case.
pub(crate) fn is_cased(character: char) -> bool {
    character.is_lowercase()
        || character.is_uppercase()
        || title(character) != character.to_string()
}

/// Python's `str.strip` of one or both sides; without characters, of white space.
pub(crate) fn strip<'t>(
    text: &'t str,
    characters: Option<&str>,
    left: bool,
    right: bool,
) -> &'t str {
    let characters: Option<HashSet<char>> = characters.map(|all| all.chars().collect());
    let is_stripped =
        |c: char| characters.as_ref().map_or_else(|| is_space(c), |all| all.contains(&c));
    let text = if left { text.trim_start_matches(is_stripped) } else { text };
    if right { text.trim_end_matches(is_stripped) } else { text }
}

/// Python's `str.splitlines`, without line ends or with them.
pub(crate) fn lines(text: &str, keeps_ends: bool) -> Vec<&str> {
    let is_end = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'
                ..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let at = rest.find(is_end).unwrap_or(rest.len());
        let end = rest.get(at..).unwrap_or_default();
        let length = match end.starts_with("\r\n") {
            true => 2,
            false => end.chars().next().map_or(0, char::len_utf8),
        };
        let kept = if keeps_ends { at + length } else { at };
        lines.push(rest.get(..kept).unwrap_or_default());
        rest = rest.get(at + length..).unwrap_or_default();
    }
    lines
}

/// Jinja2's filter `title`: the first character after white space, `-`, `(`, `{`, `[` or `<`.
pub(crate) fn title_words(text: &str) -> String {
    let mut out = String::new();
    let mut is_first = true;
    let mut rest = String::new();
    for c in text.chars() {
        if is_space(c) || "-({[<".contains(c) {
            out += &rest.to_lowercase();
            rest.clear();
            out.extend(c.to_uppercase());
            is_first = true;
        } else if is_first {
            out.extend(c.to_uppercase());
            is_first = false;
        } else {
            rest.push(c);
        }
    }
    out + &rest.to_lowercase()
}
