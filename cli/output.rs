//! Everything that is printed: data on standard output, the rest on standard error.
//!
//! A closed pipe ends the command quietly. Colour never carries meaning.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use clap::ValueEnum;
use dsl::{Diagnostic, Sources};
use serde::Serialize;

use crate::fail::{Exit, Failure, reason};
use crate::printable::{clean, escaped, inline};

/// When output is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    Always,
    Never,
}

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
