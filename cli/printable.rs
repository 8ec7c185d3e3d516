//! Text from files and arguments, made safe to print: no part of it controls a terminal.

use std::borrow::Cow;

use dsl::quote::turns;

/// Whether a character controls a terminal or changes the direction of text, rather than being text. Line feeds and
/// tabs do not.
pub fn disturbs(c: char) -> bool {
    turns(c) || c.is_control() && !matches!(c, '\n' | '\t')
}

/// Text without characters that disturb a terminal.
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(disturbs) {
        return Cow::Borrowed(text);
    }
    text.chars().map(|c| if disturbs(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Like [`clean`], with every line after the first indented: text from a file or an argument never looks like a line of
/// canonc's own.
pub fn inline(text: &str) -> Cow<'_, str> {
    match text.contains('\n') {
        false => clean(text),
        true => Cow::Owned(clean(text).replace('\n', "\n    ")),
    }
}

/// JSON with such characters escaped by number.
pub fn escaped(json: &str) -> Cow<'_, str> {
    if !json.contains(disturbs) {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match disturbs(c) {
            true => text += &format!("\\u{:04x}", u32::from(c)),
            false => text.push(c),
        }
    }
    Cow::Owned(text)
}
