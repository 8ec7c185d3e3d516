//! The lines of the locks' files, or of the archs' texts, on which values are written.

use std::collections::BTreeMap;

use dsl::{FileId, Span};

use super::model::{Side, SourceLine};
use crate::experiment::line_of;

/// The source lines of both arms' locks.
pub(super) struct Sources<'a> {
    sides: [&'a Side<'a>; 2],
    files: [FileId; 2],
    /// The line of the lock before the arch text's first; 0 without a file.
    offsets: [usize; 2],
    facts: [BTreeMap<&'a str, usize>; 2],
}

impl<'a> Sources<'a> {
    pub(super) fn new(sides: [&'a Side<'a>; 2], files: [FileId; 2]) -> Sources<'a> {
        let text = |side: &'a Side<'a>| side.file.map_or("", |(_, text)| text);
        Sources {
            sides,
            files,
            offsets: sides.map(|side| arch_offset(text(side))),
            facts: sides.map(|side| fact_lines(text(side))),
        }
    }

    fn name(&self, side: usize) -> String {
        let side = self.sides[side.min(1)];
        side.file.map_or_else(|| format!("{} (arch)", side.label), |(file, _)| file.to_owned())
    }

    /// The place of a span in an arch's text.
    pub(super) fn arch(&self, span: Span) -> SourceLine {
        let side = usize::from(span.file != self.files[0]);
        let text = &self.sides[side].arch.text;
        let line = self.offsets[side] + line_of(text, span.start as usize);
        SourceLine { file: self.name(side), line }
    }

    /// The line of a field of the table.
    pub(super) fn fact(&self, side: usize, path: &str) -> Option<SourceLine> {
        let line = *self.facts.get(side)?.get(path)?;
        Some(SourceLine { file: self.name(side), line })
    }
}

/// The line that opens the block with the arch's text.
pub(super) fn arch_offset(text: &str) -> usize {
    let mut inside = false;
    for (i, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            inside = line == "[arch]";
        } else if inside && line == "text = '''" {
            return i + 1;
        }
    }
    0
}

/// The lines of facts by path, in the sections that hold fields.
fn fact_lines(text: &str) -> BTreeMap<&str, usize> {
    let mut lines = BTreeMap::new();
    let mut holds = false;
    for (i, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            let sections = ["[train]", "[eval]", "[platform]", "[cosmetic]", "[derived]"];
            holds = sections.contains(&line);
        } else if holds && let Some((path, _)) = line.split_once(" = ") {
            lines.entry(path).or_insert(i + 1);
        }
    }
    lines
}
