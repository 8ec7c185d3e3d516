//! A file and everything it imports as one program, for a caller that can read files. At most [`MAX_FILES`] files are
//! read, each once; one that could not be read is reported at the import that names it.

use std::collections::BTreeMap;

use dsl::limits::MAX_SOURCE_BYTES;
use dsl::{Ast, Diagnostic, Diagnostics, FileId, Label, Span};

use crate::elaborate::Observed;
use crate::program::{Compiled, Program, Std};
use crate::resolve::import_target;

/// Most files of one program: the given file and all its direct and indirect imports.
pub const MAX_FILES: usize = 256;
/// Most missing files for which a similar name is searched.
const MAX_SUGGESTIONS: usize = 20;

/// The contents of a file.
pub enum Content {
    /// The text of a source.
    Text(String),
    /// Something else.
    Not(Trouble),
}

/// Why bytes are not a source.
pub enum Trouble {
    /// The bytes are not UTF-8.
    NotText(Vec<u8>),
    /// The file is larger than the language allows. The size is `None` for a pipe, which is not read to its end.
    TooLarge(Option<u64>),
}

/// Why a file has no contents.
pub enum Unread {
    /// There is no such file.
    Missing,
    /// It cannot be read, for this reason.
    Refused(String),
}

/// Access to files by the names that the program uses.
pub trait Files {
    /// The contents of a file.
    fn read(&mut self, name: &str) -> Result<Content, Unread>;
    /// The last part of the name of a file that a missing one was probably meant to be.
    fn nearest(&self, name: &str) -> Option<String>;
}

/// A program, and the diagnostics of loading it.
pub struct Loaded {
    /// The file and its imports.
    pub program: Program,
    /// The program's name for the given file.
    pub name: String,
    /// Diagnostics of reading, syntax and names.
    pub diagnostics: Diagnostics,
}

/// Why an existing file is not in the program.
enum Left {
    Not(Trouble),
    Unreadable(String),
    TooMany,
}

/// One import statement: its target, its importer, and the span of its path.
struct Wanted {
    /// The target's name in this program; `written` is the path in the importer's text.
    target: String,
    written: String,
    importer: String,
    span: Span,
}

/// Loads a file and its imports.
pub fn load(name: String, content: Content, files: &mut dyn Files) -> Loaded {
    let mut texts: Vec<(String, String)> = Vec::new();
    let mut left: BTreeMap<String, Left> = BTreeMap::new();
    let mut imports: Vec<Wanted> = Vec::new();
    take(&name, content, &mut texts, &mut left, &mut imports);
    let mut next = 0;
    while let Some(Wanted { target, .. }) = imports.get(next) {
        let target = target.clone();
        next += 1;
        if left.contains_key(&target) || texts.iter().any(|(known, _)| *known == target) {
            continue;
        }
        if texts.len() + left.len() >= MAX_FILES {
            left.insert(target, Left::TooMany);
            break;
        }
        match files.read(&target) {
            Ok(content) => take(&target, content, &mut texts, &mut left, &mut imports),
            // The compiler reports a missing file.
            Err(Unread::Missing) => {}
            Err(Unread::Refused(reason)) => {
                left.insert(target, Left::Unreadable(reason));
            }
        }
    }
    let mut program = Program::new(texts, Std::Embedded);
    let diagnostics = explain(&mut program, &left, &imports, files);
    Loaded { program, name, diagnostics }
}

/// Records a file: its text and imports, or the reason why it cannot be used.
fn take(
    name: &str,
    content: Content,
    texts: &mut Vec<(String, String)>,
    left: &mut BTreeMap<String, Left>,
    imports: &mut Vec<Wanted>,
) {
    let text = match content {
        Content::Text(text) => text,
        Content::Not(trouble) => {
            left.insert(name.to_owned(), Left::Not(trouble));
            return;
        }
    };
    // Most files import nothing, so skip a parse that the program repeats anyway.
    let ast = if text.contains("import") { dsl::parse(FileId(0), &text).0 } else { Ast::default() };
    for import in &ast.imports {
        if let Some(target) = import_target(name, &import.path) {
            let (written, importer) = (import.path.clone(), name.to_owned());
            imports.push(Wanted { target, written, importer, span: import.path_span });
        }
    }
    texts.push((name.to_owned(), text));
}

/// The program's diagnostics, with better ones for files that exist but cannot be used.
fn explain(
    program: &mut Program,
    left: &BTreeMap<String, Left>,
    imports: &[Wanted],
    files: &dyn Files,
) -> Diagnostics {
    let mut out = Diagnostics::new();
    for (name, reason) in left {
        match reason {
            Left::Not(Trouble::NotText(bytes)) => {
                // Show the part that is text; offsets before the first bad byte do not change.
                let file = program.sources.add(name.clone(), String::from_utf8_lossy(bytes));
                out.extend(dsl::parse_bytes(file, bytes).1);
            }
            Left::Not(Trouble::TooLarge(bytes)) => {
                let file = program.sources.add(name.clone(), "");
                out.push(source_too_large(file, *bytes));
            }
            Left::Unreadable(error) => {
                let message = format!("`{name}` cannot be read: {error}");
                let help = "make it readable, or import another file";
                out.extend(at_imports(
                    program,
                    imports,
                    name,
                    "cannot-read-import",
                    &message,
                    help,
                ));
            }
            Left::TooMany => {
                let message = format!("more than {MAX_FILES} files are imported");
                let help = "merge some of them";
                out.extend(at_imports(program, imports, name, "too-many-files", &message, help));
            }
        }
    }
    let stopped = left.values().any(|reason| matches!(reason, Left::TooMany));
    let by_start: BTreeMap<(&str, u32), &Wanted> =
        imports.iter().map(|w| ((w.importer.as_str(), w.span.start), w)).collect();
    let mut suggested = 0;
    for diagnostic in &program.diagnostics {
        let at = diagnostic.labels.first().map(|label| label.span);
        let start = at.map(|span| (program.sources.name(span.file), span.start));
        let wanted = start.and_then(|start| by_start.get(&start));
        match wanted.filter(|_| diagnostic.code == "unknown-import") {
            Some(wanted) if stopped || left.contains_key(&wanted.target) => {}
            // Each suggestion searches a folder.
            Some(wanted) if suggested < MAX_SUGGESTIONS => {
                suggested += 1;
                out.push(suggest_file(diagnostic.clone(), wanted, files));
            }
            Some(_) | None => out.push(diagnostic.clone()),
        }
    }
    out
}

/// One error for each import of a file.
fn at_imports(
    program: &Program,
    imports: &[Wanted],
    target: &str,
    code: &'static str,
    message: &str,
    help: &str,
) -> Diagnostics {
    let wanted = imports.iter().filter(|wanted| wanted.target == target);
    wanted
        .filter_map(|wanted| {
            let file = program.sources.find(&wanted.importer)?;
            let span = Span { file, ..wanted.span };
            Some(Diagnostic::error(code, span, message).here("imported here").help(help))
        })
        .collect()
}

/// Suggests a similar file name. The resolver knows only the files it was given; the caller knows the others.
fn suggest_file(mut diagnostic: Diagnostic, wanted: &Wanted, files: &dyn Files) -> Diagnostic {
    let ending = |name: &str| name.rsplit_once('.').map(|(_, ending)| ending.to_owned());
    let nearest = files.nearest(&wanted.target);
    if let Some(name) = nearest.filter(|name| ending(name) == ending(&wanted.target)) {
        let path = match wanted.written.rsplit_once('/') {
            Some((folder, _)) => format!("{folder}/{name}"),
            None => name,
        };
        diagnostic.help = Vec::new();
        return diagnostic.mean(&path);
    }
    diagnostic
}

impl Content {
    /// The contents of a file, or of as much of it as is read.
    pub fn from_bytes(bytes: Vec<u8>) -> Content {
        if bytes.len() > MAX_SOURCE_BYTES {
            return Content::Not(Trouble::TooLarge(None));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Content::Text(text),
            Err(error) => Content::Not(Trouble::NotText(error.into_bytes())),
        }
    }
}

/// The parser's error for a source that is too large, for a file that was not read.
pub fn source_too_large(file: FileId, bytes: Option<u64>) -> Diagnostic {
    let message = match bytes {
        Some(bytes) => format!("the file has {}", dsl::over(bytes, MAX_SOURCE_BYTES as u64)),
        None => {
            format!(
                "the file has more than the {} that are read",
                dsl::size(MAX_SOURCE_BYTES as u64)
            )
        }
    };
    Diagnostic::error("source-too-large", Span::new(file, 0, 0), message)
        .here("not read")
        .help("split it into several files with `import`")
}

impl Loaded {
    /// Whether reading, parsing or resolving found errors.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }

    /// Names of the archs that the file defines, in order.
    pub fn archs(&self) -> Vec<String> {
        self.program.archs(&self.name)
    }

    /// Compiles one of the archs.
    pub fn compile(&self, arch: &str) -> (Option<Compiled>, Diagnostics) {
        let (compiled, diagnostics) = self.program.compile(&self.name, arch);
        (compiled, self.naming(arch, diagnostics))
    }

    /// Diagnostics of one of the archs, and whether it is valid despite them.
    pub fn check(&self, arch: &str) -> (bool, Diagnostics) {
        let (good, diagnostics) = self.program.check(&self.name, arch);
        (good, self.naming(arch, diagnostics))
    }

    /// The same, with the value of every expression on the way.
    pub fn observe(&self, arch: &str) -> (Observed, Diagnostics) {
        let (observed, diagnostics) = self.program.observe(&self.name, arch);
        (observed, self.naming(arch, diagnostics))
    }

    /// Adds the arch's name to diagnostics inside imported definitions.
    fn naming(&self, arch: &str, mut diagnostics: Diagnostics) -> Diagnostics {
        if diagnostics.is_empty() {
            return diagnostics;
        }
        let file = self.program.sources.find(&self.name);
        let known = file.and_then(|file| self.program.library.arch(file, arch));
        let Some(name) = known.map(|(arch, _)| arch.name.span) else { return diagnostics };
        for diagnostic in &mut diagnostics {
            if diagnostic.labels.iter().all(|label| label.span.file != name.file) {
                let text = "in this arch".to_owned();
                diagnostic.labels.push(Label { span: name, text, around: true });
            }
        }
        diagnostics
    }
}
