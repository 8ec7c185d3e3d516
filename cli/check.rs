//! `canonc check`: every diagnostic of every file, in one run.
//!
//! In: files, locks, runs and folders, those of other programs too. Out: diagnostics, as text on standard error or as JSON on
//! standard output; exit 0 without errors, 2 with. Must stay true: each file is judged with its own imports, so a
//! broken file does not hide errors in another; an error that several files share is reported once; the JSON follows
//! the schema of `canonc check --help`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use dsl::{Diagnostic, Severity, Sources, Span};
use serde::Serialize;

use crate::args::CheckArgs;
use crate::fail::{Exit, Failure, Outcome};
use crate::files::{canon_files, is_foreign};
use crate::load::split;
use crate::{archs, foreign, load, locks, named, output};

/// The default folder of architectures.
const DEFAULT_FOLDER: &str = "arch";

pub fn check(args: &CheckArgs) -> Outcome {
    let mut report = Report::new(args.json);
    for argument in arguments(&args.files)? {
        if let Err(failure) = report.argument(&argument) {
            report.failure(&failure);
        }
    }
    report.end()
}

fn arguments(files: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    if !files.is_empty() {
        return Ok(files.to_vec());
    }
    if !Path::new(DEFAULT_FOLDER).is_dir() {
        return Err(Failure::bad_input(format!(
            "the folder `{DEFAULT_FOLDER}` does not exist here"
        ))
        .help("name what to check: `canonc check FILE…`")
        .help("`canonc new DIR` writes a first architecture"));
    }
    Ok(vec![PathBuf::from(DEFAULT_FOLDER)])
}

/// Where a diagnostic points. Files are given by name, since their numbers differ between programs.
type Places = Vec<(String, u32, u32)>;

/// The diagnostics found so far.
struct Report {
    /// Collected for JSON; without it, diagnostics are shown immediately.
    json: Option<Vec<Found>>,
    /// Messages already reported, and where.
    seen: BTreeSet<(String, Places)>,
    files: usize,
    archs: usize,
    errors: usize,
    warnings: usize,
}

impl Report {
    fn new(json: bool) -> Report {
        Report {
            json: json.then(Vec::new),
            seen: BTreeSet::new(),
            files: 0,
            archs: 0,
            errors: 0,
            warnings: 0,
        }
    }

    /// Reports on a lock, a run, a file, or all in a folder.
    fn argument(&mut self, argument: &Path) -> Result<(), Failure> {
        let (word, arch) = split(argument);
        let (path, arch) = (named::lock(&word)?, arch.as_deref());
        if locks::is_lock(&path) {
            self.files += 1;
            self.archs += archs::all(&path, arch)?.found.len();
            return Ok(());
        }
        // What canonc wrote has its arch in a file.
        if is_foreign(&path) && foreign::own_arch(&path)?.is_none() {
            let files = canon_files(&path);
            // Another program's configuration may lie beside archs.
            if files.is_err() || foreign::names_a_model(&path) {
                self.files += 1;
                self.archs += usize::from(foreign::open(&path, arch)?.is_some());
            }
            files.iter().flatten().for_each(|file| self.file(file, arch));
            return Ok(());
        }
        canon_files(&path)?.iter().for_each(|file| self.file(file, arch));
        Ok(())
    }

    /// Reports on a file, and on one of its archs or all.
    fn file(&mut self, path: &Path, arch: Option<&str>) {
        self.files += 1;
        let loaded = match load::load(path) {
            Ok(loaded) => loaded,
            Err(failure) => return self.failure(&failure),
        };
        let sources = &loaded.program.sources;
        self.diagnostics(sources, &loaded.diagnostics);
        let archs = arch.map_or_else(|| loaded.archs(), |arch| vec![arch.to_owned()]);
        for arch in archs {
            let (good, found) = loaded.check(&arch);
            self.diagnostics(sources, &found);
            self.archs += usize::from(good);
        }
    }

    fn diagnostics(&mut self, sources: &Sources, found: &[Diagnostic]) {
        for diagnostic in found {
            let places = diagnostic.labels.iter().map(|label| label.span);
            let named = |span: Span| (sources.name(span.file).to_owned(), span.start, span.end);
            let places: Places = places.map(named).collect();
            // A file that is imported several times gives the same diagnostic each time.
            if !self.seen.insert((diagnostic.message.clone(), places)) {
                continue;
            }
            match diagnostic.severity {
                Severity::Error => self.errors += 1,
                Severity::Warning => self.warnings += 1,
            }
            match &mut self.json {
                Some(all) => all.push(Found::from_diagnostic(sources, diagnostic)),
                None => output::diagnostics(sources, std::slice::from_ref(diagnostic)),
            }
        }
    }

    fn failure(&mut self, failure: &Failure) {
        self.errors += 1;
        match &mut self.json {
            Some(all) => all.push(Found::failure(failure)),
            None => output::failure(failure),
        }
    }

    fn end(self) -> Outcome {
        let Report { json, seen: _, files, archs, errors, warnings } = self;
        match json {
            Some(diagnostics) => {
                let schema = "canonc.check.v1";
                output::json(&Checked { schema, files, archs, errors, warnings, diagnostics })?;
            }
            None => {
                let checked = format!(
                    "{}, {}",
                    output::counted(files, "file"),
                    output::counted(archs, "arch")
                );
                let found = match (errors, warnings) {
                    (0, 0) => "no errors".to_owned(),
                    (0, w) => output::counted(w, "warning"),
                    (e, 0) => output::counted(e, "error"),
                    (e, w) => {
                        format!(
                            "{}, {}",
                            output::counted(e, "error"),
                            output::counted(w, "warning")
                        )
                    }
                };
                output::note(&format!("{checked}: {found}"));
            }
        }
        Ok(if errors == 0 { Exit::Fine } else { Exit::BadInput })
    }
}

// The schema of `--json`.

#[derive(Serialize)]
struct Checked {
    schema: &'static str,
    files: usize,
    archs: usize,
    errors: usize,
    warnings: usize,
    diagnostics: Vec<Found>,
}

#[derive(Serialize)]
struct Found {
    severity: &'static str,
    code: Option<&'static str>,
    message: String,
    labels: Vec<Place>,
    help: Vec<String>,
}

#[derive(Serialize)]
struct Place {
    file: String,
    start: At,
    end: At,
    text: String,
}

#[derive(Serialize)]
struct At {
    byte: usize,
    line: usize,
    column: usize,
}

impl Found {
    fn from_diagnostic(sources: &Sources, diagnostic: &Diagnostic) -> Found {
        let Diagnostic { severity, code, message, labels, help, names: _, instead: _ } = diagnostic;
        let severity = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let labels = labels.iter().map(|label| Place::from_span(sources, label.span, &label.text));
        Found {
            severity,
            code: Some(code),
            message: message.clone(),
            labels: labels.collect(),
            help: help.clone(),
        }
    }

    fn failure(failure: &Failure) -> Found {
        Found {
            severity: "error",
            code: None,
            message: failure.message.clone().unwrap_or_default(),
            labels: Vec::new(),
            help: failure.help.clone(),
        }
    }
}

impl Place {
    fn from_span(sources: &Sources, span: Span, text: &str) -> Place {
        let source = sources.text(span.file);
        Place {
            file: sources.name(span.file).to_owned(),
            start: At::from_byte(source, span.start),
            end: At::from_byte(source, span.end),
            text: text.to_owned(),
        }
    }
}

impl At {
    fn from_byte(source: &str, byte: u32) -> At {
        let byte = byte as usize;
        let before = source.get(..byte).unwrap_or(source);
        let line = 1 + before.matches('\n').count();
        let column = 1 + before.rsplit('\n').next().unwrap_or("").chars().count();
        At { byte, line, column }
    }
}
