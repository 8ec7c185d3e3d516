//! The command line's description of itself: help at any width. It comes from the definitions that parse argv, so the two
//! cannot disagree.

use std::collections::BTreeMap;

use clap::{Arg, Command};

use crate::command::{Program, Row};

/// The widest line on any terminal; longer lines are hard to read.
const WIDEST: usize = 100;
const NARROWEST: usize = 40;
/// A line of prose at least this long continues on the next line.
const FULL: usize = 60;
/// A line indented at least this far continues the description above it.
const DEEP: usize = 20;

/// The command line, with texts wrapped for the terminal.
pub fn command(program: &Program) -> Command {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| size.ws_col.into());
    let width = size.filter(|width| *width > 0).or(columns).unwrap_or(WIDEST);
    let width = width.clamp(NARROWEST, WIDEST);
    let command = wrapped(program.command_line(), width);
    let listed = listed(program, &command, width);
    command.before_help(listed)
}

/// A heading for each group of commands, and a line for each command.
fn listed(program: &Program, command: &Command, width: usize) -> String {
    let longest = program.rows().map(|row| row.name.len()).max();
    let column = longest.unwrap_or(0) + 4;
    let room = width.saturating_sub(column).max(NARROWEST / 2);
    let line = |row: &Row| {
        let about = command.find_subcommand(row.name).and_then(Command::get_about);
        let about = about.map(ToString::to_string).unwrap_or_default();
        let about = words(&about, room).join(&format!("\n{:column$}", ""));
        format!("  {:<1$}{about}", row.name, column - 2)
    };
    let mut rows: Vec<&Row> = program.rows().collect();
    rows.sort_by_key(|row| row.listed);
    let mut groups: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for row in rows {
        if let Some((heading, _)) = row.listed {
            groups.entry(heading).or_default().push(line(row));
        }
    }
    let groups: Vec<String> = groups
        .into_iter()
        .map(|(heading, lines)| format!("{}:\n{}", heading.text(), lines.join("\n")))
        .collect();
    groups.join("\n\n")
}

/// A text in lines of at most this many letters.
fn words(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines
            .last_mut()
            .filter(|line| line.chars().count() + 1 + word.chars().count() <= width)
        {
            Some(line) => *line = format!("{line} {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

fn wrapped(command: Command, width: usize) -> Command {
    let texts = [command.get_after_help(), command.get_after_long_help()];
    let [short, long] = texts.map(|text| text.map(|text| reflow(&text.to_string(), width)));
    let mut command = command.term_width(width);
    if let Some(short) = short {
        command = command.after_help(short);
    }
    if let Some(long) = long {
        command = command.after_long_help(long);
    }
    let names: Vec<String> = command.get_subcommands().map(|c| c.get_name().to_owned()).collect();
    names
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, |inner| wrapped(inner, width)))
}

/// The command line without hidden options, which only tests use.
pub fn visible(command: &Command) -> Command {
    let shown: Vec<Arg> =
        command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned().collect();
    let inner: Vec<Command> = command.get_subcommands().map(visible).collect();
    let mut made = Command::new(command.get_name().to_owned())
        .args(shown)
        .subcommands(inner)
        .disable_help_subcommand(true);
    if let Some(version) = command.get_version() {
        made = made.version(version.to_owned());
    }
    if let Some(about) = command.get_about() {
        made = made.about(about.clone());
    }
    if let Some(long) = command.get_long_about() {
        made = made.long_about(long.clone());
    }
    if let Some(after) = command.get_after_help() {
        made = made.after_help(after.clone());
    }
    match command.get_after_long_help() {
        Some(after) => made.after_long_help(after.clone()),
        None => made,
    }
}

/// One logical line of a text, however many source lines it takes.
struct Line {
    text: String,
    /// Indentation of its continuation lines.
    hang: usize,
}

/// Joins lines that were wrapped by hand and wraps them for this width. Prose starts at the margin and its lines are
/// full; the continuation of a description is aligned with its start.
pub fn reflow(text: &str, width: usize) -> String {
    let mut lines: Vec<Line> = Vec::new();
    let mut last = 0;
    for raw in text.lines() {
        let indent = raw.len() - raw.trim_start().len();
        let joined = lines.last_mut().filter(|line| {
            let prose = line.hang == 0 && indent == 0 && last >= FULL && !begins_anew(raw);
            // A line with its own description is a new item, wherever it begins.
            let far = indent == line.hang || indent >= DEEP;
            let described = line.hang > 2 && far && gap(raw).is_none();
            !raw.is_empty() && !line.text.is_empty() && (prose || described)
        });
        match joined {
            Some(line) => {
                line.text.push(' ');
                line.text.push_str(raw.trim_start());
            }
            None => lines.push(Line { text: raw.to_owned(), hang: hang(raw, indent) }),
        }
        last = raw.len();
    }
    let mut out = String::new();
    for line in &lines {
        wrap(line, width, &mut out);
    }
    out.trim_end().to_owned()
}

/// Whether a line starts a new item: it has a description, or it is a heading.
fn begins_anew(line: &str) -> bool {
    gap(line).is_some() || ["Exit codes:", "Schema of "].iter().any(|start| line.starts_with(start))
}

/// The position of the two spaces between an item and its description.
fn gap(line: &str) -> Option<usize> {
    let indent = line.len() - line.trim_start().len();
    line.trim_end().get(indent..)?.find("  ").map(|at| indent + at)
}

/// The column where a line's description begins; without a description, a little beyond the line's indentation.
fn hang(line: &str, indent: usize) -> usize {
    let Some(gap) = gap(line) else { return if indent == 0 { 0 } else { indent + 2 } };
    let after = line.get(gap..).unwrap_or("");
    gap + (after.len() - after.trim_start().len())
}

fn wrap(line: &Line, width: usize, out: &mut String) {
    let mut rest = line.text.as_str();
    let (mut margin, mut hang) = (0, line.hang);
    // A command split over several lines can still be pasted.
    let command = rest.trim_start().starts_with("canonc ") && gap(rest).is_none();
    let width = if command && rest.chars().count() > width { width - 2 } else { width };
    if hang * 2 > width && rest.chars().count() > width {
        // The description goes below the item.
        hang = 6;
        if let Some((item, description)) = rest.split_at_checked(line.hang) {
            wrap(&Line { text: item.trim_end().to_owned(), hang: 6 }, width, out);
            (rest, margin) = (description, hang);
        }
    }
    while margin + rest.chars().count() > width {
        let room = width.saturating_sub(margin);
        // Never break inside the spaces before a description.
        let least = rest.len() - rest.trim_start().len();
        let end = rest.char_indices().nth(room + 1).map_or(rest.len(), |(at, _)| at);
        let space = rest.get(..end).unwrap_or(rest).rfind(' ').filter(|at| *at > least);
        let Some(at) = space.or_else(|| rest.get(least..)?.find(' ').map(|at| at + least)) else {
            break;
        };
        out.push_str(&" ".repeat(margin));
        out.push_str(rest.get(..at).unwrap_or("").trim_end());
        out.push_str(if command { " \\\n" } else { "\n" });
        rest = rest.get(at..).unwrap_or("").trim_start();
        margin = hang;
    }
    out.push_str(&" ".repeat(margin));
    out.push_str(rest.trim_end());
    out.push('\n');
}
