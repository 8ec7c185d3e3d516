//! Quoting for generated scripts and documents: a text never ends the line, the word or the comment that it is put into.

/// A word of a POSIX shell. Inside single quotes only a single quote is special.
pub fn sh(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%,:=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    // A shell ends a text at a NUL, also inside quotes.
    format!("'{}'", text.replace('\0', "").replace('\'', "'\\''"))
}

/// Letters, digits, `_`, `-` and `.`; anything else becomes `_`. `sbatch` reads quotes by rules of its own.
pub fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    text.chars().map(|c| if plain(c) { c } else { '_' }).collect()
}

/// One line: a character that would end it becomes a space.
pub fn line(text: &str) -> String {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    text.chars().map(|c| if breaks(c) { ' ' } else { c }).collect()
}

/// Whether a character changes the direction of the text after it (Unicode's bidirectional controls).
pub fn turns(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A line of a Python text in triple quotes. Three double quotes end such a text, and a backslash starts an escape.
pub fn docstring(text: &str) -> String {
    line(text).replace('\\', "\\\\").replace("\"\"\"", "\\\"\\\"\\\"")
}
