//! A `.canon` document with the facts of the last evaluation of its archs, in the offsets of today's text.
//!
//! Facts of an older text are shown only where the text around them is unchanged.

use compiler::elaborate::{Field, Seen};
use compiler::graph::Param;
use dsl::{FileId, Span};
use lsp_types::{Location, Url};

use crate::analysis::{ArchFacts, CanonFacts};
use crate::model::Model;
use crate::standard;
use crate::store::Store;
use crate::text::{Encoding, Text, moved};

/// A document, and what is known of it.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// All files.
    pub(crate) store: &'a Store,
    /// The document.
    pub(crate) model: &'a Model,
    /// The last facts.
    pub(crate) facts: Option<&'a CanonFacts>,
    /// What the client counts columns in.
    pub(crate) encoding: Encoding,
}

/// A value, the archs that have it, and its origin in today's texts.
pub(crate) struct Known<'a> {
    /// The value.
    pub(crate) seen: &'a Seen,
    /// Names of archs.
    pub(crate) archs: Vec<&'a str>,
}

impl<'a> View<'a> {
    /// The program's name for the document.
    pub(crate) fn name(&self) -> &'a str {
        &self.model.loaded.name
    }

    /// The place in the text of the last evaluation of a byte of today's text.
    fn old_offset(&self, offset: usize) -> Option<usize> {
        match self.facts?.texts.get(self.name()) {
            Some(old) if **old != *self.model.text => moved(&self.model.text, old, offset),
            Some(_) | None => Some(offset),
        }
    }

    /// The place in today's text of a byte in the text of the last evaluation, which may be another file's.
    fn new_offset(&self, file: &str, offset: usize) -> Option<usize> {
        let Some(old) = self.facts?.texts.get(file) else { return Some(offset) };
        let new = self.model.loaded.program.sources.find(file)?;
        moved(old, self.model.loaded.program.sources.text(new), offset)
    }

    /// The values at a place of this document.
    pub(crate) fn values(&self, start: usize, end: usize) -> Vec<Known<'a>> {
        let (Some(facts), Some(start), Some(end)) =
            (self.facts, self.old_offset(start), self.old_offset(end))
        else {
            return Vec::new();
        };
        let values = facts.values(self.name(), start, end);
        values.into_iter().map(|(seen, archs)| Known { seen, archs }).collect()
    }

    /// The values of the smallest expression around a place, with the text of that expression.
    pub(crate) fn around(&self, offset: usize) -> Option<(usize, usize, Vec<Known<'a>>)> {
        let (facts, at) = (self.facts?, self.old_offset(offset)?);
        let places = facts.archs.iter().flat_map(|arch| arch.observed.values.keys());
        let holds = |span: &&Span| {
            facts.name(**span) == self.name()
                && (span.start as usize) <= at
                && at < span.end as usize
        };
        let span = places.filter(holds).min_by_key(|span| span.end - span.start)?;
        let values = facts.values(self.name(), span.start as usize, span.end as usize);
        let known = values.into_iter().map(|(seen, archs)| Known { seen, archs }).collect();
        let start = self.new_offset(self.name(), span.start as usize)?;
        let end = self.new_offset(self.name(), span.end as usize)?;
        Some((start, end, known))
    }

    /// The fields that an entry around a place sets, by arch.
    pub(crate) fn fields(&self, start: usize, end: usize) -> Vec<(&'a ArchFacts, Vec<&'a Field>)> {
        let (Some(facts), Some(start), Some(end)) =
            (self.facts, self.old_offset(start), self.old_offset(end))
        else {
            return Vec::new();
        };
        let within = |field: &&Field| {
            let span = field.span;
            facts.name(span) == self.name()
                && (span.start as usize) <= start
                && end <= span.end as usize
        };
        let fields_of = |arch: &'a ArchFacts| {
            let mut fields: Vec<&Field> = arch.observed.fields.iter().filter(within).collect();
            // Of entries inside one another, the innermost.
            let shortest = fields.iter().map(|field| field.span.end - field.span.start).min();
            fields.retain(|field| Some(field.span.end - field.span.start) == shortest);
            (arch, fields)
        };
        facts.archs.iter().map(fields_of).filter(|(_, fields)| !fields.is_empty()).collect()
    }

    /// The parameters that a call around a place declares under a name.
    pub(crate) fn params(
        &self,
        start: usize,
        end: usize,
        name: &str,
    ) -> Vec<(&'a ArchFacts, Vec<&'a Param>)> {
        let (Some(facts), Some(start), Some(end)) =
            (self.facts, self.old_offset(start), self.old_offset(end))
        else {
            return Vec::new();
        };
        let params_of = |arch: &'a ArchFacts| {
            let around = arch.observed.declared.iter().filter(|(span, _)| {
                facts.name(**span) == self.name()
                    && (span.start as usize) <= start
                    && end <= span.end as usize
            });
            let ends: Vec<&String> = around
                .flat_map(|(_, paths)| paths)
                .filter(|path| path.split('.').any(|part| part == name))
                .collect();
            let is_one = |param: &&Param| {
                ends.iter().any(|end| {
                    let above = param.path.strip_suffix(end.as_str());
                    above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
                })
            };
            (arch, arch.observed.params.iter().filter(is_one).collect::<Vec<_>>())
        };
        facts.archs.iter().map(params_of).filter(|(_, params)| !params.is_empty()).collect()
    }

    /// The address of a file of the program, and its text.
    pub(crate) fn file(&self, file: FileId) -> Option<(Url, &'a str)> {
        let sources = &self.model.loaded.program.sources;
        let name = sources.name(file);
        let url = match self.model.loaded.program.files().contains(&file) {
            true => self.store.url(name),
            false => standard::url(name, self.store),
        };
        Some((url?, sources.text(file)))
    }

    /// A place of the program, as the client writes it.
    pub(crate) fn location(&self, span: Span) -> Option<Location> {
        let (uri, text) = self.file(span.file)?;
        let text = Text::new(text.to_owned(), self.encoding);
        Some(Location { uri, range: text.range(span.start as usize, span.end as usize) })
    }

    /// A place in the texts of the last evaluation, in today's program.
    pub(crate) fn today(&self, span: Span) -> Option<Span> {
        let name = self.facts?.name(span);
        let file = self.model.loaded.program.sources.find(name)?;
        let start = self.new_offset(name, span.start as usize)?;
        let end = self.new_offset(name, span.end as usize)?;
        Some(Span::new(file, start, end))
    }

    /// `std/attention.canon:5` for a place in the texts of the last evaluation.
    pub(crate) fn described(&self, span: Span) -> Option<String> {
        let today = self.today(span)?;
        let text = self.model.loaded.program.sources.text(today.file);
        let line = 1 + text.get(..today.start as usize)?.matches('\n').count();
        Some(format!("{}:{line}", self.model.name(today.file)))
    }
}
