//! `canonc check`: every diagnostic of every file, in one run.
//!
//! An error that several files share is reported once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use dsl::{Diagnostic, Severity, Sources, Span};
use serde::Serialize;

use crate::extensions::models;
use crate::fail::{Exit, Failure, Outcome};
use crate::files::canon_files;
use crate::load::{self, split};
use crate::workspace::{self, ARCHS, Target};
use crate::{archs, output};

/// Check .canon files and report every error: syntax, names, shapes, slots
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc check                                   every .canon file under arch/
  canonc check arch/llama_1B.canon my/archs      these files and folders
  canonc check --json | jq '.diagnostics[].message'

Exit codes: 0 no errors (warnings are possible), 2 errors.

Schema of --json, one object on standard output:
  schema       \"canonc.check.v1\"
  files        number of files that were named
  archs        number of architectures that compiled
  errors, warnings
  diagnostics  in the order in which they were found, each:
    severity   \"error\" or \"warning\"
    code       a stable word such as \"unknown-slot\"; null when a file could not be read
    message    the error or warning
    labels     places in the source, the place of the error first, each:
      file     the path as it was given, with `/`
      start, end   {byte, line, column}; line and column count from 1, columns in characters
      text     a note about the place; may be empty
    help       suggestions, a list of texts")]
pub struct CheckArgs {
    /// .canon files, folders that contain some, locks, runs, or folders of models [default: arch]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print diagnostics as JSON (`--help` shows the schema)
    #[arg(long)]
    pub json: bool,
}

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
    if !Path::new(ARCHS).is_dir() {
        return Err(Failure::bad_input(format!("the folder `{ARCHS}` does not exist here"))
            .help("name what to check: `canonc check FILE…`")
            .help("`canonc new DIR` writes a first architecture"));
    }
    Ok(vec![PathBuf::from(ARCHS)])
}

/// Where a diagnostic points. Files are given by name, since their numbers differ between programs.
type Places = Vec<(String, u32, u32)>;

/// The diagnostics found so far.
struct Report {
    /// Collected for JSON; without it, diagnostics are shown immediately.
    json: Option<Vec<JsonDiagnostic>>,
    /// Messages already reported, and where.
    seen: BTreeSet<(String, Places)>,
    files: usize,
    archs: usize,
    errors: usize,
    warnings: usize,
    exit: Exit,
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
            exit: Exit::Fine,
        }
    }

    /// Reports on a lock, a run, a file, or all in a folder.
    fn argument(&mut self, argument: &Path) -> Result<(), Failure> {
        let (word, arch) = split(argument);
        let (target, arch) = (workspace::resolve(&word)?, arch.as_deref());
        // What canonc wrote has its arch in a file.
        if let Target::Model(folder) = &target
            && models().own_arch(folder)?.is_none()
        {
            let files = canon_files(folder);
            // Another program's configuration may lie beside archs.
            if files.is_err() || models().names_a_model(folder) {
                self.files += 1;
                self.archs += usize::from(models().open(folder, arch)?.is_some());
            }
            files.iter().flatten().for_each(|file| self.file(file, arch));
            return Ok(());
        }
        let path = target.into_lock();
        if workspace::is_lock(&path) {
            self.files += 1;
            self.archs += archs::all(&path, arch)?.archs.len();
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
                Severity::Error => self.error(Exit::BadInput),
                Severity::Warning => self.warnings += 1,
            }
            match &mut self.json {
                Some(all) => all.push(JsonDiagnostic::from_diagnostic(sources, diagnostic)),
                None => output::diagnostics(sources, std::slice::from_ref(diagnostic)),
            }
        }
    }

    fn error(&mut self, exit: Exit) {
        self.errors += 1;
        self.exit = self.exit.max(exit);
    }

    fn failure(&mut self, failure: &Failure) {
        self.error(failure.exit);
        match &mut self.json {
            Some(all) => all.push(JsonDiagnostic::failure(failure)),
            None => output::failure(failure),
        }
    }

    fn end(self) -> Outcome {
        let Report { json, seen: _, files, archs, errors, warnings, exit } = self;
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
        Ok(exit)
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
    diagnostics: Vec<JsonDiagnostic>,
}

#[derive(Serialize)]
struct JsonDiagnostic {
    severity: &'static str,
    code: Option<&'static str>,
    message: String,
    labels: Vec<JsonLabel>,
    help: Vec<String>,
}

#[derive(Serialize)]
struct JsonLabel {
    file: String,
    start: Position,
    end: Position,
    text: String,
}

#[derive(Serialize)]
struct Position {
    byte: usize,
    line: usize,
    column: usize,
}

impl JsonDiagnostic {
    fn from_diagnostic(sources: &Sources, diagnostic: &Diagnostic) -> JsonDiagnostic {
        let Diagnostic { severity, code, message, labels, help, names: _, instead: _ } = diagnostic;
        let severity = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let labels =
            labels.iter().map(|label| JsonLabel::from_span(sources, label.span, &label.text));
        JsonDiagnostic {
            severity,
            code: Some(code),
            message: message.clone(),
            labels: labels.collect(),
            help: help.clone(),
        }
    }

    fn failure(failure: &Failure) -> JsonDiagnostic {
        JsonDiagnostic {
            severity: "error",
            code: None,
            message: failure.message.clone().unwrap_or_default(),
            labels: Vec::new(),
            help: failure.help.clone(),
        }
    }
}

impl JsonLabel {
    fn from_span(sources: &Sources, span: Span, text: &str) -> JsonLabel {
        let source = sources.text(span.file);
        JsonLabel {
            file: sources.name(span.file).to_owned(),
            start: Position::from_byte(source, span.start),
            end: Position::from_byte(source, span.end),
            text: text.to_owned(),
        }
    }
}

impl Position {
    fn from_byte(source: &str, byte: u32) -> Position {
        let byte = byte as usize;
        let before = source.get(..byte).unwrap_or(source);
        let line = 1 + before.matches('\n').count();
        let column = 1 + before.rsplit('\n').next().unwrap_or("").chars().count();
        Position { byte, line, column }
    }
}
