//! An open document, its last results, and its tree.
//!
//! While a text is half typed, the last good facts and the last tree without errors still answer.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use lsp_types::{TextDocumentContentChangeEvent, TextDocumentItem, Url};

use crate::analysis::{CanonFacts, DocumentResult, ExperimentFacts, Facts, Part};
use crate::finding::Finding;
use crate::model::Model;
use crate::standard;
use crate::store::{DocumentKind, Store};
use crate::text::{Encoding, Text, moved};

/// The name of the language in editors.
const LANGUAGE: &str = "canon";

/// An open document.
pub(crate) struct OpenDocument {
    /// The client's address of it.
    pub(crate) url: Url,
    /// Its text.
    pub(crate) text: Text,
    /// The same, for other threads.
    pub(crate) shared: Arc<str>,
    /// The client's number of this text.
    pub(crate) version: i32,
    /// Its kind; `None` for files of other programs.
    pub(crate) kind: Option<DocumentKind>,
    /// Whether the client says that a document without a file is of this language.
    is_canon: bool,
    /// Whether its text, or a file that it reads, changed since it was judged last.
    pub(crate) is_stale: bool,
    /// The first job with this text, if there is one.
    first_job: Option<u64>,
    /// The newest job, while its facts are due.
    pending: Option<u64>,
    /// The other files that the newest findings depend on; `None` if these are not known.
    files: Option<BTreeSet<String>>,
    /// The findings of the last result.
    pub(crate) findings: Vec<Finding>,
    /// The experiments of the last result without errors.
    pub(crate) experiments: Vec<ExperimentFacts>,
    facts: Option<CanonFacts>,
    /// The last facts of a text without errors.
    good: Option<CanonFacts>,
    model: Option<Rc<Model>>,
    /// The last tree of a text that parses.
    parsed: Option<Rc<Model>>,
}

impl OpenDocument {
    /// A document as the client opened it.
    pub(crate) fn new(name: &str, open: TextDocumentItem, encoding: Encoding) -> OpenDocument {
        let TextDocumentItem { uri: url, language_id, version, text } = open;
        let shared = Arc::from(text.as_str());
        let is_canon = language_id == LANGUAGE && url.scheme() != "file";
        let kind =
            if is_canon { Some(DocumentKind::Canon) } else { DocumentKind::find(name, &text) };
        OpenDocument {
            url,
            text: Text::new(text, encoding),
            shared,
            version,
            kind,
            is_canon,
            is_stale: true,
            first_job: None,
            pending: None,
            files: None,
            findings: Vec::new(),
            experiments: Vec::new(),
            facts: None,
            good: None,
            model: None,
            parsed: None,
        }
    }

    /// Applies the client's edits.
    pub(crate) fn change(
        &mut self,
        name: &str,
        changes: &[TextDocumentContentChangeEvent],
        version: i32,
    ) {
        for change in changes {
            self.text.apply(change);
        }
        self.shared = Arc::from(self.text.as_str());
        self.version = version;
        if !self.is_canon {
            self.kind = DocumentKind::find(name, self.text.as_str());
        }
        self.is_stale = true;
        self.first_job = None;
        self.pending = None;
    }

    /// Whether no job has this text yet.
    pub(crate) fn is_edited(&self) -> bool {
        self.first_job.is_none()
    }

    /// Whether facts on it are due.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Expects the results of a job with this text.
    pub(crate) fn expect_result(&mut self, job: u64) {
        self.first_job.get_or_insert(job);
        self.pending = Some(job);
        self.files = None;
    }

    /// Whether the document is judged: one of the standard files is not.
    pub(crate) fn is_judged(&self, store: &Store) -> bool {
        let path = self.url.to_file_path();
        self.kind.is_some() && !path.is_ok_and(|path| standard::is_written(store, &path))
    }

    /// Notes a result for today's text; tells whether there are findings to show.
    ///
    /// A job that began before an import changed is better than an older one, but the newest job is still due.
    pub(crate) fn note_result(&mut self, result: DocumentResult) -> bool {
        if self.first_job.is_none_or(|first| result.job < first) {
            return false;
        }
        let is_newest = self.pending == Some(result.job);
        match result.part {
            Part::Findings(findings) => {
                self.findings = findings.shown;
                if is_newest {
                    self.files = findings.files;
                }
                return true;
            }
            Part::Facts(Facts::Canon(facts)) => {
                if facts.is_whole {
                    self.good = Some(facts.clone());
                }
                self.facts = Some(facts);
            }
            Part::Facts(Facts::Recipe(experiments)) if !experiments.is_empty() => {
                self.experiments = experiments;
            }
            Part::Facts(Facts::Recipe(_) | Facts::Nothing) => {}
        }
        if is_newest {
            self.pending = None;
        }
        false
    }

    /// The facts to show: the last ones without errors, if today's text has some.
    pub(crate) fn facts(&self) -> Option<&CanonFacts> {
        match &self.facts {
            Some(facts) if facts.is_whole => Some(facts),
            Some(_) | None => self.good.as_ref().or(self.facts.as_ref()),
        }
    }

    /// Whether there are facts of a text without errors.
    pub(crate) fn was_good(&self) -> bool {
        self.good.is_some()
    }

    /// Forgets the tree: its text, or a file that it reads, changed.
    pub(crate) fn forget(&mut self) {
        self.model = None;
    }

    /// Whether the findings may depend on another file.
    pub(crate) fn may_read(&self, name: &str) -> bool {
        self.files.as_ref().is_none_or(|files| files.contains(name))
    }

    /// Today's tree.
    pub(crate) fn model(&mut self, name: &str, store: &Store) -> Option<Rc<Model>> {
        if self.kind != Some(DocumentKind::Canon) {
            return None;
        }
        if self.model.is_none() {
            let model = Rc::new(Model::new(name, self.shared.clone(), store)?);
            if model.parses {
                self.parsed = Some(model.clone());
            }
            self.model = Some(model);
        }
        self.model.clone()
    }

    /// The tree that knows the name at a byte of today's text, and that byte in its text.
    pub(crate) fn model_at(
        &mut self,
        name: &str,
        store: &Store,
        offset: usize,
    ) -> Option<(Rc<Model>, usize)> {
        let model = self.model(name, store)?;
        if model.parses || model.at(offset).is_some() {
            return Some((model, offset));
        }
        let parsed = self.parsed.clone();
        let old_offset = parsed.and_then(|old| {
            let old_offset = moved(self.text.as_str(), &old.text, offset)?;
            old.at(old_offset).is_some().then_some((old, old_offset))
        });
        Some(old_offset.unwrap_or((model, offset)))
    }
}
