//! Diagnostics as text with source excerpts, plain or with ANSI colours, which only repeat the words.
//!
//! Never panics, whatever the spans; long lines, long spans and control characters come out short and harmless.

use std::collections::BTreeMap;
use std::ops::Range;

use codespan_reporting::diagnostic as shown;
use codespan_reporting::files::{Error, Files};
use codespan_reporting::term::{self, Chars, Config, Styles, StylesWriter, termcolor};

use crate::diag::{Diagnostic, Severity};
use crate::quote::turns;
use crate::{FileId, Sources, Span};

/// Characters shown of a source line.
const LINE_CHARS: usize = 140;
/// Of those, the characters before the marked place.
const LEAD_CHARS: usize = 60;
/// Characters shown of one message, label or help.
const MESSAGE_CHARS: usize = 1000;

/// All diagnostics as text with source excerpts, in the order given.
pub fn render(sources: &Sources, diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(|diagnostic| render_one(sources, diagnostic, false)).collect()
}

/// The same with ANSI colours, for a terminal.
pub fn render_coloured(sources: &Sources, diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(|diagnostic| render_one(sources, diagnostic, true)).collect()
}

fn render_one(sources: &Sources, diagnostic: &Diagnostic, colour: bool) -> String {
    let excerpts = Excerpts::new(sources, diagnostic.labels.iter().map(|label| label.span));
    let labels = diagnostic.labels.iter().enumerate().map(|(i, label)| {
        let style = match i {
            0 => shown::LabelStyle::Primary,
            _ => shown::LabelStyle::Secondary,
        };
        let range = excerpts.range(sources, label.span);
        shown::Label::new(style, label.span.file, range).with_message(harmless(&label.text))
    });
    let severity = match diagnostic.severity {
        Severity::Error => shown::Severity::Error,
        Severity::Warning => shown::Severity::Warning,
    };
    let report = shown::Diagnostic::new(severity)
        .with_code(diagnostic.code)
        .with_message(harmless(&diagnostic.message))
        .with_labels(labels.collect())
        .with_notes(diagnostic.help.iter().map(|h| format!("help: {}", harmless(h))).collect());
    let config = Config { chars: Chars::ascii(), tab_width: 2, ..Config::default() };
    let text = if colour {
        let styles = Styles::default();
        let mut ansi = termcolor::Ansi::new(Vec::new());
        let mut writer = StylesWriter::new(&mut ansi, &styles);
        let emitted = term::emit_to_write_style(&mut writer, &config, &excerpts, &report);
        emitted.ok().and_then(|()| String::from_utf8(ansi.into_inner()).ok())
    } else {
        term::emit_into_string(&config, &excerpts, &report).ok()
    };
    match text {
        // codespan pads some lines with spaces.
        Some(text) => text.lines().fold(String::new(), |out, line| out + line.trim_end() + "\n"),
        // Even without an excerpt, the message says what is wrong.
        None => format!("{}: {}\n\n", diagnostic.code, diagnostic.message),
    }
}

/// The text without control characters and changes of direction, cut to a bounded length.
fn harmless(text: &str) -> String {
    let mut out: String = text.chars().take(MESSAGE_CHARS).map(visible).collect();
    if text.chars().nth(MESSAGE_CHARS).is_some() {
        out.push('…');
    }
    out
}

fn visible(c: char) -> char {
    if turns(c) || c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c }
}

/// The source lines that a diagnostic shows, each cut to a window around its marks.
struct Excerpts {
    files: BTreeMap<FileId, Excerpt>,
}

struct Excerpt {
    name: String,
    text: String,
    /// Keyed by line index.
    lines: BTreeMap<usize, ShownLine>,
}

struct ShownLine {
    /// Range in the excerpt's text.
    range: Range<usize>,
    /// Offset in the source.
    start: usize,
    /// Characters cut off at the beginning of the source line.
    cut: usize,
    /// For each shown character, its offsets in the source and in the excerpt.
    offsets: Vec<(usize, usize)>,
}

impl Excerpts {
    fn new(sources: &Sources, spans: impl Iterator<Item = Span>) -> Excerpts {
        // file → line index → (the line's range in the source, its first mark)
        let mut wanted: BTreeMap<FileId, BTreeMap<usize, (Range<usize>, usize)>> = BTreeMap::new();
        for span in spans {
            let text = sources.text(span.file);
            let at = boundary(text, span.start as usize);
            let before = text.get(..at).unwrap_or("");
            let index = before.matches('\n').count();
            let lines = wanted.entry(span.file).or_default();
            let start = before.rfind('\n').map_or(0, |newline| newline + 1);
            lines.entry(index).or_insert((line_at(text, start), at));
            // codespan also shows a single line between two marked ones.
            let next = line_at(text, start).end + 1;
            if next <= text.len() {
                lines.entry(index + 1).or_insert((line_at(text, next), next));
            }
        }
        let files = wanted.into_iter().map(|(file, lines)| {
            let mut excerpt = Excerpt {
                name: harmless(sources.name(file)),
                text: String::new(),
                lines: BTreeMap::new(),
            };
            for (index, (range, marked)) in lines {
                excerpt.add(index, sources.text(file), range, marked);
            }
            (file, excerpt)
        });
        Excerpts { files: files.collect() }
    }

    /// Where the first line of a span is in the excerpt.
    fn range(&self, sources: &Sources, span: Span) -> Range<usize> {
        let Some(excerpt) = self.files.get(&span.file) else { return 0..0 };
        let text = sources.text(span.file);
        let start = boundary(text, span.start as usize);
        let end = boundary(text, (span.end as usize).max(start));
        let line = excerpt.lines.values().rev().find(|line| line.start <= start);
        line.map_or(0..0, |line| line.shown_offset(start)..line.shown_offset(end))
    }

    fn excerpt(&self, file: FileId) -> Result<&Excerpt, Error> {
        self.files.get(&file).ok_or(Error::FileMissing)
    }
}

impl Excerpt {
    fn add(&mut self, index: usize, source: &str, range: Range<usize>, marked: usize) {
        let line = source.get(range.clone()).unwrap_or("");
        let column = line.get(..marked.saturating_sub(range.start)).unwrap_or("").chars().count();
        let cut = if line.chars().nth(LINE_CHARS).is_none() {
            0
        } else {
            column.saturating_sub(LEAD_CHARS)
        };
        let start = self.text.len();
        if cut > 0 {
            self.text.push('…');
        }
        let mut offsets = Vec::new();
        for (at, c) in line.char_indices().skip(cut).take(LINE_CHARS) {
            offsets.push((range.start + at, self.text.len()));
            self.text.push(visible(c));
        }
        let more = line.char_indices().nth(cut + LINE_CHARS);
        offsets.push((more.map_or(range.end, |(at, _)| range.start + at), self.text.len()));
        if more.is_some() {
            self.text.push('…');
        }
        self.text.push('\n');
        let line = ShownLine { range: start..self.text.len(), start: range.start, cut, offsets };
        self.lines.insert(index, line);
    }
}

impl ShownLine {
    /// The shown offset nearest to an offset in the source.
    fn shown_offset(&self, source: usize) -> usize {
        let after = self.offsets.partition_point(|(from, _)| *from < source);
        let nearest = self.offsets.get(after).or(self.offsets.last());
        nearest.map_or(self.range.start, |(_, to)| *to)
    }
}

/// The line that begins at `start`, without its line ending.
fn line_at(text: &str, start: usize) -> Range<usize> {
    let rest = text.get(start..).unwrap_or("");
    let length = rest.find('\n').unwrap_or(rest.len());
    start..start + rest.get(..length).unwrap_or("").trim_end_matches('\r').len()
}

/// The character boundary at or before `at`.
fn boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl<'a> Files<'a> for Excerpts {
    type FileId = FileId;
    type Name = &'a str;
    type Source = &'a str;

    fn name(&'a self, id: FileId) -> Result<&'a str, Error> {
        Ok(&self.excerpt(id)?.name)
    }

    fn source(&'a self, id: FileId) -> Result<&'a str, Error> {
        Ok(&self.excerpt(id)?.text)
    }

    fn line_index(&self, id: FileId, byte: usize) -> Result<usize, Error> {
        let mut lines = self.excerpt(id)?.lines.iter();
        let line = lines.find(|(_, line)| line.range.contains(&byte));
        line.map(|(index, _)| *index).ok_or(Error::InvalidCharBoundary { given: byte })
    }

    fn column_number(&self, id: FileId, line: usize, byte: usize) -> Result<usize, Error> {
        let excerpt = self.excerpt(id)?;
        let outside = Error::InvalidCharBoundary { given: byte };
        let line = excerpt.lines.get(&line).ok_or(outside)?;
        let shown = line.offsets.iter().take_while(|(_, to)| *to < byte).count();
        Ok(line.cut + shown + 1)
    }

    fn line_range(&self, id: FileId, line: usize) -> Result<Range<usize>, Error> {
        let excerpt = self.excerpt(id)?;
        let max = excerpt.lines.keys().next_back().copied().unwrap_or(0);
        let range = excerpt.lines.get(&line).map(|line| line.range.clone());
        range.ok_or(Error::LineTooLarge { given: line, max })
    }
}
