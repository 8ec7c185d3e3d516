//! Text with more than one possible layout, before it is known how much fits on a line.
//!
//! The width of each piece is computed once, when it is built, so that layout is linear.

use std::borrow::Cow;

#[derive(Debug)]
pub(super) struct Doc {
    pub(super) kind: DocKind,
    /// Width on one line; `None` if it cannot be on one line.
    pub(super) flat: Option<usize>,
    /// Width up to the first possible line end, and whether there is one.
    pub(super) head: usize,
    pub(super) breaks: bool,
}

#[derive(Debug)]
pub(super) enum DocKind {
    Text(Cow<'static, str>),
    /// Printed only if the group is on one line, or only if it is not.
    IfFlat(&'static str),
    IfBroken(String),
    /// A line end, or `flat` if the group is on one line.
    Soft {
        flat: &'static str,
    },
    /// The same before an item that begins at `at` in the source: comments up to `at` get their own
    /// lines before it. The `first` item in its brackets has no blank line before it.
    Break {
        flat: &'static str,
        at: u32,
        first: bool,
    },
    /// The same before a closing bracket at or before `at`.
    Close {
        flat: &'static str,
        upto: Upto,
    },
    /// A comment at the end of the line, if it begins before `upto`.
    Trail {
        upto: Upto,
    },
    Concat(Vec<Doc>),
    Indent(Vec<Doc>),
    /// On one line if it fits.
    Group(Vec<Doc>),
}

/// Which comments belong here: those before a place in the source or, if another block follows,
/// only those that end their block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upto {
    pub(super) at: u32,
    pub(super) closing_only: bool,
}

impl Upto {
    pub(super) fn all(at: u32) -> Upto {
        Upto { at, closing_only: false }
    }
}

pub(super) fn text(text: impl Into<Cow<'static, str>>) -> Doc {
    let text = text.into();
    let width = text.chars().count();
    Doc { flat: Some(width), head: width, breaks: false, kind: DocKind::Text(text) }
}

pub(super) fn if_flat(text: &'static str) -> Doc {
    Doc { flat: Some(text.len()), head: 0, breaks: false, kind: DocKind::IfFlat(text) }
}

pub(super) fn if_broken(text: impl Into<String>) -> Doc {
    let text = text.into();
    Doc { flat: Some(0), head: text.len(), breaks: false, kind: DocKind::IfBroken(text) }
}

fn line(flat: &'static str, kind: DocKind) -> Doc {
    Doc { flat: Some(flat.len()), head: 0, breaks: true, kind }
}

pub(super) fn soft(flat: &'static str) -> Doc {
    line(flat, DocKind::Soft { flat })
}

pub(super) fn brk(flat: &'static str, at: u32, first: bool) -> Doc {
    line(flat, DocKind::Break { flat, at, first })
}

pub(super) fn close(flat: &'static str, upto: Upto) -> Doc {
    line(flat, DocKind::Close { flat, upto })
}

pub(super) fn trail(upto: Upto) -> Doc {
    Doc { flat: Some(0), head: 0, breaks: false, kind: DocKind::Trail { upto } }
}

fn sequence(docs: Vec<Doc>, kind: fn(Vec<Doc>) -> DocKind) -> Doc {
    let flat = docs.iter().map(|doc| doc.flat).sum();
    let (head, breaks) = head(&docs);
    Doc { flat, head, breaks, kind: kind(docs) }
}

pub(super) fn concat(docs: Vec<Doc>) -> Doc {
    sequence(docs, DocKind::Concat)
}

pub(super) fn indent(docs: Vec<Doc>) -> Doc {
    sequence(docs, DocKind::Indent)
}

pub(super) fn group(docs: Vec<Doc>) -> Doc {
    sequence(docs, DocKind::Group)
}

/// A group that is never on one line if `broken`.
pub(super) fn group_if(broken: bool, docs: Vec<Doc>) -> Doc {
    let mut doc = group(docs);
    if broken {
        doc.flat = None;
    }
    doc
}

/// Width up to the first place where the sequence may end a line.
pub(super) fn head(docs: &[Doc]) -> (usize, bool) {
    let mut width = 0;
    for doc in docs {
        width += doc.head;
        if doc.breaks {
            return (width, true);
        }
    }
    (width, false)
}

impl Doc {
    /// The first words it prints.
    pub(super) fn first_text(&self) -> &str {
        match &self.kind {
            DocKind::Text(text) => text,
            DocKind::IfFlat(_)
            | DocKind::IfBroken(_)
            | DocKind::Soft { .. }
            | DocKind::Break { .. }
            | DocKind::Close { .. }
            | DocKind::Trail { .. } => "",
            DocKind::Concat(docs) | DocKind::Indent(docs) | DocKind::Group(docs) => {
                docs.iter().map(Doc::first_text).find(|text| !text.is_empty()).unwrap_or("")
            }
        }
    }
}
