//! The only place that writes to the terminal.
//!
//! In: text. Out: data on standard output, everything else on standard error. Must stay true: text from files never
//! controls a terminal; a closed pipe ends the command quietly; colour follows `--color`, NO_COLOR and
//! whether the stream is a terminal, and never carries meaning.

use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use dsl::{Diagnostic, Sources};
use serde::Serialize;

use crate::args::When;
use crate::fail::{Exit, Failure, reason};

static COLOUR: OnceLock<When> = OnceLock::new();

thread_local! {
    static MUTED: Cell<bool> = const { Cell::new(false) };
}

/// Does work whose output is of no interest here.
pub fn silently<T>(work: impl FnOnce() -> T) -> T {
    let before = MUTED.replace(true);
    let result = work();
    MUTED.set(before);
    result
}

/// Sets the colour mode. Called once, before any output.
pub fn set_colour(when: When) {
    // A second call changes nothing: there is one command line.
    let _ = COLOUR.set(when);
}

/// Whether standard error is coloured.
pub fn coloured() -> bool {
    colour_on(&io::stderr())
}

/// Whether standard output is coloured.
pub fn coloured_data() -> bool {
    colour_on(&io::stdout())
}

fn colour_on(stream: &impl IsTerminal) -> bool {
    match COLOUR.get().copied().unwrap_or_default() {
        When::Always => true,
        When::Never => false,
        When::Auto => {
            let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
            let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
            !set("NO_COLOR") && !dumb && stream.is_terminal()
        }
    }
}

/// Whether a character controls a terminal or changes the direction of text, rather than being text. Line feeds and
/// tabs do not.
pub fn disturbs(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control() && !matches!(c, '\n' | '\t')
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
fn escaped(json: &str) -> Cow<'_, str> {
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

/// Prints text for people and scripts to standard output.
pub fn data(text: &str) -> Result<(), Failure> {
    write_out(&clean(text))
}

/// Prints text byte for byte for another program: a source, or text that a model wrote. A terminal gets it cleaned.
pub fn exact(text: &str) -> Result<(), Failure> {
    match io::stdout().is_terminal() {
        true => data(text),
        false => write_out(text),
    }
}

/// Prints JSON lines.
pub fn json_lines(lines: &str) -> Result<(), Failure> {
    write_out(&escaped(lines))
}

/// Prints our own text with our own colours.
pub fn styled(text: &str) -> Result<(), Failure> {
    write_out(text)
}

/// Writes what is still in standard output's buffer.
pub fn flush() -> Result<(), Failure> {
    write_out("")
}

fn write_out(text: &str) -> Result<(), Failure> {
    if MUTED.get() {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        // The reader closed the pipe because it has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::shown(Exit::Fine)),
        Err(error) => {
            Err(Failure::machine(format!("standard output cannot be written: {}", reason(&error))))
        }
    }
}

/// Prints a value as one JSON object and a newline.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    match serde_json::to_string_pretty(value) {
        Ok(text) => write_out(&escaped(&(text + "\n"))),
        Err(error) => Err(Failure::machine(format!("the JSON cannot be written: {error}"))),
    }
}

/// How much standard error shows in addition to errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Loudness {
    Quiet,
    #[default]
    Usual,
    Verbose,
}

static LOUDNESS: OnceLock<Loudness> = OnceLock::new();

/// Sets the loudness. Called once, when argv has been parsed.
pub fn set_loudness(quiet: bool, verbose: bool) {
    let loudness = match (quiet, verbose) {
        (true, _) => Loudness::Quiet,
        (false, true) => Loudness::Verbose,
        (false, false) => Loudness::Usual,
    };
    // A second call changes nothing: there is one command line.
    let _ = LOUDNESS.set(loudness);
}

fn loudness() -> Loudness {
    LOUDNESS.get().copied().unwrap_or_default()
}

/// Whether only errors and results are wanted.
pub fn quiet() -> bool {
    loudness() == Loudness::Quiet || MUTED.get()
}

/// Prints a line that only `--verbose` shows: a file or setting in use.
pub fn detail(text: impl FnOnce() -> String) {
    if loudness() == Loudness::Verbose {
        note(&text());
    }
}

/// Prints a line for the person, on standard error.
pub fn note(text: &str) {
    if quiet() {
        return;
    }
    // Standard error may be closed; then nobody reads this.
    let _ = writeln!(io::stderr().lock(), "{}", inline(text));
}

/// Prints several lines of our own for the person, on standard error.
pub fn notes(text: &str) {
    if !quiet() {
        let _ = writeln!(io::stderr().lock(), "{}", clean(text));
    }
}

/// Prints text on standard error unchanged: a line to be redrawn.
pub fn draw(text: &str) {
    if quiet() {
        return;
    }
    // Standard error may be closed; then nobody reads this.
    let mut stream = io::stderr().lock();
    let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
}

/// Shows diagnostics with excerpts of their sources.
pub fn diagnostics(sources: &Sources, found: &[Diagnostic]) {
    if MUTED.get() {
        return;
    }
    let text = match coloured() {
        true => dsl::render_coloured(sources, found),
        false => dsl::render(sources, found),
    };
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

pub fn failure(failure: &Failure) {
    if MUTED.get() {
        return;
    }
    let _ = io::stderr().lock().write_all(failure.render(coloured()).as_bytes());
}

pub use dsl::{counted, grouped};

/// Three figures and a decimal prefix: `1.37 G`.
pub fn rounded(n: impl Into<i128>) -> String {
    let n = n.into();
    let mut value = n as f64;
    let mut prefix = "";
    for next in ["k", "M", "G", "T", "P", "E"] {
        // A number that would round to four figures takes the next prefix.
        if value.abs() < 999.5 {
            break;
        }
        value /= 1000.0;
        prefix = next;
    }
    if prefix.is_empty() {
        return format!("{n} ");
    }
    let digits = if value.abs() < 9.995 { 2 } else { usize::from(value.abs() < 99.95) };
    format!("{value:.digits$} {prefix}")
}

/// A table with two spaces between columns, indented by `indent`; `right` marks the columns of numbers.
pub fn table(rows: &[Vec<String>], right: &[bool], indent: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| {
        rows.iter().filter_map(|row| row.get(c)).map(|s| s.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = " ".repeat(indent);
        for ((cell, width), c) in row.iter().zip(&widths).zip(0..) {
            let pad = " ".repeat(width - cell.chars().count().min(*width));
            match right.get(c) {
                Some(true) => line += &format!("{pad}{cell}  "),
                Some(false) | None => line += &format!("{cell}{pad}  "),
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_file_says_commands_a_terminal() {
        let hostile = "a\u{1b}]0;title\u{7}\u{9b}2J\r\u{8}\u{7f}\u{202e}b\n\tc";
        let cleaned = clean(hostile);
        assert!(!cleaned.contains(disturbs), "{cleaned:?}");
        assert!(cleaned.starts_with('a') && cleaned.ends_with("b\n\tc"));
        assert_eq!(clean("as it is: é 漢 ✓\n"), "as it is: é 漢 ✓\n");
        assert_eq!(inline("a\nerror: b\u{1b}"), "a\n    error: b\u{fffd}");
        let json = serde_json::to_string(hostile).unwrap();
        let written = escaped(&json);
        assert!(!written.contains(disturbs), "{written:?}");
        assert_eq!(serde_json::from_str::<String>(&written).unwrap(), hostile);
    }

    #[test]
    fn numbers_for_people() {
        let cases: [(i128, &str, &str); 8] = [
            (0, "0", "0 "),
            (999, "999", "999 "),
            (1000, "1,000", "1.00 k"),
            (9_995_000, "9,995,000", "10.0 M"),
            (99_949_999, "99,949,999", "99.9 M"),
            (999_499_999, "999,499,999", "999 M"),
            (999_500_000, "999,500,000", "1.00 G"),
            (-1_366_460_416, "-1,366,460,416", "-1.37 G"),
        ];
        for (n, exact, short) in cases {
            assert_eq!((grouped(n).as_str(), rounded(n).as_str()), (exact, short), "{n}");
        }
    }

    #[test]
    fn a_table_lines_up_and_has_no_trailing_blanks() {
        let rows = [vec!["a".to_owned(), "10".to_owned()], vec!["bcd".to_owned(), "9".to_owned()]];
        assert_eq!(table(&rows, &[false, true], 2), "  a    10\n  bcd   9\n");
    }
}
