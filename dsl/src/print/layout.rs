//! Documents to lines: a group that fits on one line is printed on one.
//!
//! A comment is written exactly once, in order, and is always followed by the end of its line.

use super::doc::{self, Doc, DocKind, Upto};
use crate::Comment;

pub(super) const WIDTH: usize = 100;
pub(super) const STEP: usize = 2;

pub(super) struct Layout<'a> {
    pub(super) out: String,
    column: usize,
    /// Whether the line ends in a comment, so that nothing can follow on it.
    ended: bool,
    comments: &'a [Comment],
    /// For keeping the author's blank lines.
    source: Option<&'a str>,
}

impl<'a> Layout<'a> {
    pub(super) fn new(comments: &'a [Comment], source: Option<&'a str>) -> Layout<'a> {
        Layout { out: String::new(), column: 0, ended: false, comments, source }
    }

    /// `tail` is the width of the text that must follow on the same line; `flat` is whether the
    /// innermost group is on one line.
    pub(super) fn doc(&mut self, doc: &Doc, level: usize, flat: bool, tail: usize) {
        match &doc.kind {
            DocKind::Text(text) => self.text(text, level),
            DocKind::IfFlat(text) if flat => self.text(text, level),
            DocKind::IfBroken(text) if !flat => self.text(text, level),
            DocKind::IfFlat(_) | DocKind::IfBroken(_) => {}
            DocKind::Soft { flat: text } => match flat {
                true => self.text(text, level),
                false => self.newline(),
            },
            DocKind::Break { flat: text, at, first } => match flat {
                true => self.text(text, level),
                false => {
                    let first = self.comments_before(Upto::all(*at), *first, level);
                    self.newline();
                    self.blank(*at, first);
                }
            },
            DocKind::Close { flat: text, upto } => match flat {
                true => self.text(text, level),
                false => {
                    self.comments_before(*upto, false, level + 1);
                    self.newline();
                }
            },
            DocKind::Trail { upto } => {
                if !flat {
                    self.trailing_comment(*upto);
                }
            }
            DocKind::Concat(docs) => self.sequence(docs, level, flat, tail),
            DocKind::Indent(docs) => self.sequence(docs, level + 1, flat, tail),
            DocKind::Group(docs) => {
                let column = if self.column == 0 { level * STEP } else { self.column };
                let fits = doc.flat.is_some_and(|width| column + width + tail <= WIDTH);
                self.sequence(docs, level, flat || fits, tail);
            }
        }
    }

    fn sequence(&mut self, docs: &[Doc], level: usize, flat: bool, tail: usize) {
        let mut rest = docs;
        while let Some((doc, after)) = rest.split_first() {
            let (width, breaks) = doc::head(after);
            self.doc(doc, level, flat, if breaks { width } else { width + tail });
            rest = after;
        }
    }

    pub(super) fn text(&mut self, text: &str, level: usize) {
        if text.is_empty() {
            return;
        }
        if self.ended {
            self.newline();
        }
        if self.column == 0 {
            self.column = level * STEP;
            self.out.extend(std::iter::repeat_n(' ', self.column));
        }
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    /// Ends the current line, if it is not empty.
    pub(super) fn newline(&mut self) {
        if self.column > 0 {
            self.out.push('\n');
            self.column = 0;
        }
        self.ended = false;
    }

    /// Keeps a blank line before `at` in the source.
    pub(super) fn blank(&mut self, at: u32, first: bool) {
        if !first && self.column == 0 && self.blank_before(at) && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    fn blank_before(&self, at: u32) -> bool {
        let Some(before) = self.source.and_then(|source| source.get(..at as usize)) else {
            return false;
        };
        let gap = before.len() - before.trim_end().len();
        before.get(before.len() - gap..).is_some_and(|gap| gap.matches('\n').count() > 1)
    }

    /// Writes the comments up to a place on their own lines; returns whether the next item is still
    /// the first in its brackets.
    pub(super) fn comments_before(&mut self, upto: Upto, first: bool, level: usize) -> bool {
        let mut first = first;
        while let Some(comment) = self.next(upto) {
            self.newline();
            self.blank(comment.span.start, first);
            self.text(&format!("//{}", comment.text), level);
            self.ended = true;
            first = false;
        }
        first
    }

    /// Appends a comment to this line, if it followed other text in the source.
    pub(super) fn trailing_comment(&mut self, upto: Upto) {
        if self.column > 0
            && !self.ended
            && self.comments.first().is_some_and(|comment| comment.trailing)
            && let Some(comment) = self.next(upto)
        {
            self.text(&format!("  //{}", comment.text), 0);
            self.ended = true;
        }
    }

    fn next(&mut self, upto: Upto) -> Option<&'a Comment> {
        let (comment, rest) = self.comments.split_first()?;
        let belongs = comment.span.start < upto.at && (comment.before_close || !upto.closing_only);
        belongs.then(|| {
            self.comments = rest;
            comment
        })
    }
}
