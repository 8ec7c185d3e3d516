//! Diagnostics of one document as plain data, in the offsets of its text.
//!
//! An error in an imported file is shown at the import or the arch that it breaks.

use std::collections::BTreeMap;

use compiler::resolve::import_target;
use dsl::{Diagnostic, FileId, Severity, Sources, Span};
use lsp_types::{
    DiagnosticRelatedInformation, DiagnosticSeverity, Location, NumberOrString, Range, Url,
};

use crate::store::Store;
use crate::text::Text;

/// A diagnostic of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Whether it refuses the document.
    pub(crate) is_error: bool,
    /// A stable word.
    pub(crate) code: &'static str,
    /// What is wrong.
    pub(crate) message: String,
    /// What to type instead, a line each.
    pub(crate) help: Vec<String>,
    /// The bytes that it is about.
    pub(crate) start: usize,
    /// Their end.
    pub(crate) end: usize,
    /// Other places, each with a message.
    pub(crate) related: Vec<Related>,
    /// A word to write in place of these bytes.
    pub(crate) instead: Option<String>,
}

/// Another place of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Related {
    /// The name of its file.
    pub(crate) file: String,
    /// The first byte.
    pub(crate) start: usize,
    /// The end.
    pub(crate) end: usize,
    /// What is there.
    pub(crate) text: String,
}

/// The findings of one file of a program. `imports` are the places of its imports, by the name of the file.
pub(crate) fn of_file(
    sources: &Sources,
    file: FileId,
    imports: &BTreeMap<String, Span>,
    diagnostics: &[Diagnostic],
) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for diagnostic in diagnostics {
        let Some(finding) = of_diagnostic(sources, file, imports, diagnostic) else { continue };
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    findings.sort_by_key(|finding| finding.start);
    findings
}

fn of_diagnostic(
    sources: &Sources,
    file: FileId,
    imports: &BTreeMap<String, Span>,
    diagnostic: &Diagnostic,
) -> Option<Finding> {
    let first = diagnostic.labels.first()?;
    let label = diagnostic.labels.iter().find(|label| label.span.file == file);
    // An error of an imported file, where this one imports it.
    let import =
        imports.get(sources.name(first.span.file)).or_else(|| imports.values().next()).copied();
    let at = label.map(|label| label.span).or(import)?;
    let mut message = diagnostic.message.clone();
    if first.span.file != file {
        message = format!("in {}: {message}", sources.name(first.span.file));
    }
    let is_own = first.span == at;
    if is_own && !first.text.is_empty() {
        message = format!("{message}: {}", first.text);
    }
    let labels = diagnostic.labels.iter().filter(|label| label.span != at);
    let related = labels.map(|label| Related {
        file: sources.name(label.span.file).to_owned(),
        start: label.span.start as usize,
        end: label.span.end as usize,
        text: if label.text.is_empty() { diagnostic.message.clone() } else { label.text.clone() },
    });
    let text = sources.text(file);
    let (start, end) = shown(text, at.start as usize, at.end as usize);
    Some(Finding {
        is_error: diagnostic.severity == Severity::Error,
        code: diagnostic.code,
        message,
        help: diagnostic.help.clone(),
        start,
        end,
        related: related.collect(),
        instead: diagnostic.instead.clone().filter(|_| is_own),
    })
}

/// The places of a file's imports by the name of the imported file; those of the imports of imports as well.
pub(crate) fn import_places(sources: &Sources, file: FileId) -> BTreeMap<String, Span> {
    let mut places = BTreeMap::new();
    let mut next = vec![(file, None)];
    let mut seen = Vec::new();
    while let Some((importer, at)) = next.pop() {
        if seen.contains(&importer) {
            continue;
        }
        seen.push(importer);
        let (ast, _) = dsl::parse(importer, sources.text(importer));
        for import in &ast.imports {
            let Some(target) = import_target(sources.name(importer), &import.path) else {
                continue;
            };
            let at: Span = at.unwrap_or(import.path_span);
            if let Some(id) = sources.find(&target) {
                next.push((id, Some(at)));
            }
            places.entry(target).or_insert(at);
        }
    }
    places
}

/// The part of a place that an editor should underline: its first line if it has many.
fn shown(text: &str, start: usize, end: usize) -> (usize, usize) {
    let marked = text.get(start..end).unwrap_or("");
    match marked.find('\n') {
        Some(line) if marked.lines().count() > 2 => {
            (start, start + marked[..line].trim_end().len())
        }
        Some(_) | None => (start, end),
    }
}

impl Finding {
    /// A finding at these bytes without other places.
    pub(crate) fn error(
        code: &'static str,
        (start, end): (usize, usize),
        message: String,
    ) -> Finding {
        Finding {
            is_error: true,
            code,
            message,
            help: Vec::new(),
            start,
            end,
            related: Vec::new(),
            instead: None,
        }
    }

    /// The protocol's form, for a document with this text.
    pub(crate) fn shown(&self, text: &Text, store: &Store) -> lsp_types::Diagnostic {
        let mut message = self.message.clone();
        for help in &self.help {
            message += &format!("\nhelp: {help}");
        }
        let related: Vec<DiagnosticRelatedInformation> =
            self.related.iter().filter_map(|related| related.shown(text, store)).collect();
        lsp_types::Diagnostic {
            range: text.range(self.start, self.end),
            severity: Some(match self.is_error {
                true => DiagnosticSeverity::ERROR,
                false => DiagnosticSeverity::WARNING,
            }),
            code: Some(NumberOrString::String(self.code.to_owned())),
            code_description: None,
            source: Some("canonc".to_owned()),
            message,
            related_information: (!related.is_empty()).then_some(related),
            tags: None,
            data: None,
        }
    }
}

impl Related {
    fn shown(&self, text: &Text, store: &Store) -> Option<DiagnosticRelatedInformation> {
        let location = location(store, text, &self.file, self.start, self.end)?;
        Some(DiagnosticRelatedInformation { location, message: self.text.clone() })
    }
}

/// A place in a file, in the client's positions; `text` is any open document, for the encoding.
fn location(store: &Store, text: &Text, file: &str, start: usize, end: usize) -> Option<Location> {
    let other = crate::standard::text(file).map(str::to_owned);
    let other = other.or_else(|| store.text(file).map(|text| text.to_string()))?;
    let range: Range = Text::new(other, text.encoding()).range(start, end);
    let uri: Url = crate::standard::url(file, store).or_else(|| store.url(file))?;
    Some(Location { uri, range })
}
