//! Loads a `.canon` file and all its imports into a program; or loads a lock.
//!
//! In: a path a person typed. Out: the program, and every diagnostic so far; a file that could not
//! be read is reported at the import that names it. Must stay true: reads at most
//! `MAX_FILES` files of at most `MAX_SOURCE_BYTES`, whatever they hold; names are the paths as
//! typed, with `/`; the compiler only receives text.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use compiler::plan::{Loss, TrainOptions};
use compiler::program::{Compiled, Program, Std};
use compiler::resolve::import_target;
use dsl::limits::MAX_SOURCE_BYTES;
use dsl::{Ast, Diagnostic, Diagnostics, FileId, Label, Span};
use lab::experiment::{DataSource, Experiment};
use lab::lock::Lock;

use crate::fail::{Exit, Failure, reason, shown};
use crate::files::{missing, nearest};
use crate::{locks, named, output};

/// Most files of one program: the given file and all its direct and indirect imports.
const MAX_FILES: usize = 256;
/// Most missing files for which a similar name is searched.
const MAX_SUGGESTIONS: usize = 20;

/// A program, and the diagnostics of loading it.
pub struct Loaded {
    pub program: Program,
    /// The program's name for the given file.
    pub name: String,
    /// Diagnostics of reading, syntax and names.
    pub diagnostics: Diagnostics,
}

/// The contents of a file.
pub enum Content {
    Text(String),
    Not(Trouble),
}

/// Why bytes are not a source.
pub enum Trouble {
    /// The bytes are not UTF-8.
    NotText(Vec<u8>),
    /// The file is larger than the language allows. The size is `None` for a pipe, which is not read to its end.
    TooLarge(Option<u64>),
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

/// Loads a file and its imports. Fails only if the file itself cannot be read.
pub fn load(path: &Path) -> Result<Loaded, Failure> {
    let name = name(path);
    let content = read(path).map_err(|error| match path.is_dir() {
        true => folder_given(path),
        false => missing(path, &error),
    })?;
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
        match read(Path::new(&target)) {
            Ok(content) => take(&target, content, &mut texts, &mut left, &mut imports),
            // The compiler reports a missing file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                left.insert(target, Left::Unreadable(reason(&error)));
            }
        }
    }
    let mut program = Program::new(texts, Std::Embedded);
    let diagnostics = explain(&mut program, &left, &imports);
    Ok(Loaded { program, name, diagnostics })
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
) -> Diagnostics {
    let mut out = Diagnostics::new();
    for (name, why) in left {
        match why {
            Left::Not(Trouble::NotText(bytes)) => {
                // Show the part that is text; offsets before the first bad byte do not change.
                let file = program.sources.add(name.clone(), String::from_utf8_lossy(bytes));
                out.extend(dsl::parse_bytes(file, bytes).1);
            }
            Left::Not(Trouble::TooLarge(bytes)) => {
                let file = program.sources.add(name.clone(), "");
                out.push(source_too_large(file, *bytes));
            }
            Left::Unreadable(why) => {
                let message = format!("`{name}` cannot be read: {why}");
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
    let stopped = left.values().any(|why| matches!(why, Left::TooMany));
    let by_place: BTreeMap<(&str, u32), &Wanted> =
        imports.iter().map(|w| ((w.importer.as_str(), w.span.start), w)).collect();
    let mut suggested = 0;
    for diagnostic in &program.diagnostics {
        let at = diagnostic.labels.first().map(|label| label.span);
        let place = at.map(|span| (program.sources.name(span.file), span.start));
        let wanted = place.and_then(|place| by_place.get(&place));
        match wanted.filter(|_| diagnostic.code == "unknown-import") {
            Some(wanted) if stopped || left.contains_key(&wanted.target) => {}
            // Each suggestion searches a folder.
            Some(wanted) if suggested < MAX_SUGGESTIONS => {
                suggested += 1;
                out.push(suggest_file(diagnostic.clone(), wanted));
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

/// Suggests a similar file name. The compiler knows only the files it was given; the other files are known here.
fn suggest_file(mut diagnostic: Diagnostic, wanted: &Wanted) -> Diagnostic {
    let target = Path::new(&wanted.target);
    let near = nearest(target).filter(|near| near.extension() == target.extension());
    if let Some(name) = near.as_deref().and_then(Path::file_name).and_then(|n| n.to_str()) {
        let path = match wanted.written.rsplit_once('/') {
            Some((folder, _)) => format!("{folder}/{name}"),
            None => name.to_owned(),
        };
        diagnostic.help = vec![format!("did you mean `{path}`?")];
    }
    diagnostic
}

/// Reads only slightly more than the language allows, so that a file that is too large costs little.
pub fn read(path: &Path) -> io::Result<Content> {
    let file = disk::open(path)?;
    let size = file.metadata()?.len();
    if size > MAX_SOURCE_BYTES as u64 {
        return Ok(Content::Not(Trouble::TooLarge(Some(size))));
    }
    let mut bytes = Vec::new();
    file.take(MAX_SOURCE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Content::from_bytes(bytes))
}

impl Content {
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

fn folder_given(path: &Path) -> Failure {
    if crate::runs::holds_runs(path) {
        return crate::runs::not_a_run(path);
    }
    let failure = Failure::bad_input(format!("`{}` is a folder, not a .canon file", shown(path)));
    let first = crate::files::canon_files(path).ok().and_then(|files| files.into_iter().next());
    match first {
        Some(first) => failure.help(format!("name a file in it, such as `{}`", shown(&first))),
        None => failure.help("it contains no .canon file; `canonc new DIR` writes an example"),
    }
}

/// A path in the form that programs and locks use: relative if possible, with `/` and without `.` parts.
pub fn name(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let relative = here.and_then(|here| path.strip_prefix(here).ok().map(PathBuf::from));
    let text = relative.as_deref().unwrap_or(path).to_string_lossy();
    let text = if cfg!(windows) { text.replace('\\', "/") } else { text.into_owned() };
    let mut parts: Vec<&str> = text.split('/').filter(|part| *part != ".").collect();
    if parts.len() > 1 {
        // `a//b` is `a/b`; the empty part before a leading `/` stays.
        let first = parts.remove(0);
        parts.retain(|part| !part.is_empty());
        parts.insert(0, first);
    }
    parts.join("/")
}

impl Loaded {
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }

    /// Names of the archs that the file defines, in order.
    pub fn archs(&self) -> Vec<String> {
        self.program.archs(&self.name)
    }

    /// Compiles one of the archs.
    pub fn compile(&self, arch: &str) -> (Option<Compiled>, Diagnostics) {
        let (compiled, found) = self.program.compile(&self.name, arch);
        (compiled, self.naming(arch, found))
    }

    /// Diagnostics of one of the archs, and whether it is valid despite them.
    pub fn check(&self, arch: &str) -> (bool, Diagnostics) {
        let (good, found) = self.program.check(&self.name, arch);
        (good, self.naming(arch, found))
    }

    /// Adds the arch's name to diagnostics inside imported definitions.
    fn naming(&self, arch: &str, mut found: Diagnostics) -> Diagnostics {
        if found.is_empty() {
            return found;
        }
        let file = self.program.sources.find(&self.name);
        let known = file.and_then(|file| self.program.library.arch(file, arch));
        let Some(here) = known.map(|(arch, _)| arch.name.span) else { return found };
        for diagnostic in &mut found {
            if diagnostic.labels.iter().all(|label| label.span.file != here.file) {
                let text = "in this arch".to_owned();
                diagnostic.labels.push(Label { span: here, text, around: true });
            }
        }
        found
    }
}

/// Architectures of one file.
pub struct Archs {
    /// The file's name, as programs and locks use it.
    pub name: String,
    pub found: Vec<Found>,
}

/// One architecture, with its training setup if known.
pub struct Found {
    pub compiled: Compiled,
    pub train: Option<Trained>,
    /// The data section of its lock.
    pub data: Option<DataSource>,
}

/// The training section of a lock.
#[derive(Clone)]
pub struct Trained {
    pub loss: Loss,
    pub options: TrainOptions,
    /// Tokens of a training sequence.
    pub seq_len: u64,
}

/// The archs of a `.canon` file or a lock, or the named one. Diagnostics have been shown.
pub fn archs(path: &Path, arch: Option<&str>) -> Result<Archs, Failure> {
    let path = &named::lock(path)?;
    if locks::is_lock(path) {
        return locked(path, arch);
    }
    let (loaded, compiled) = compile(path, arch)?;
    let found = compiled.into_iter().map(|compiled| Found { compiled, train: None, data: None });
    Ok(Archs { name: loaded.name, found: found.collect() })
}

/// The archs of a `.canon` file, or the named one. Diagnostics have been shown.
pub fn compile(path: &Path, arch: Option<&str>) -> Result<(Loaded, Vec<Compiled>), Failure> {
    let loaded = load(path)?;
    output::diagnostics(&loaded.program.sources, &loaded.diagnostics);
    if loaded.has_errors() {
        return Err(Failure::shown(Exit::BadInput));
    }
    let names = match arch {
        Some(name) => vec![name.to_owned()],
        None => loaded.archs(),
    };
    if names.is_empty() {
        return Err(Failure::bad_input("this file defines no arch")
            .at(&loaded.name)
            .help("define one: `arch NAME { … }`; `canonc new DIR` writes a first one"));
    }
    let mut compiled = Vec::new();
    let mut failed = false;
    let mut said = BTreeSet::new();
    for name in names {
        let (result, mut found) = loaded.compile(&name);
        // Archs made from the same definition repeat its diagnostics.
        found.retain(|d| {
            let places: Vec<_> =
                d.labels.iter().map(|label| (label.span.file, label.span.start)).collect();
            said.insert((d.message.clone(), places))
        });
        output::diagnostics(&loaded.program.sources, &found);
        match result {
            Some(result) => compiled.push(result),
            None => failed = true,
        }
    }
    if failed { Err(Failure::shown(Exit::BadInput)) } else { Ok((loaded, compiled)) }
}

/// The archs of a lock: one, or one for each arm.
fn locked(path: &Path, arch: Option<&str>) -> Result<Archs, Failure> {
    let of = |experiment: &Experiment| Found {
        compiled: experiment.arch.compiled.clone(),
        train: Some(Trained {
            loss: experiment.loss,
            options: experiment.train_options(),
            seq_len: experiment.data.seq_len,
        }),
        data: Some(experiment.data.source.clone()),
    };
    let (lock, _) = locks::read(path)?;
    let all: Vec<Found> = match lock {
        Lock::Arch(lock) => {
            vec![Found { compiled: lock.arch.compiled.clone(), train: None, data: None }]
        }
        Lock::Experiment(experiment) => vec![of(&experiment)],
        Lock::Comparison(comparison) => {
            comparison.arms.iter().map(|arm| of(&arm.experiment)).collect()
        }
    };
    let names: Vec<String> = all.iter().map(|found| found.compiled.name.clone()).collect();
    let wanted = |found: &Found| arch.is_none_or(|arch| found.compiled.name == arch);
    let found: Vec<Found> = all.into_iter().filter(wanted).collect();
    match arch {
        Some(arch) if found.is_empty() => {
            Err(Failure::bad_input(format!("this lock has no arch `{arch}`"))
                .at(name(path))
                .help(format!("it has {}", names.join(", "))))
        }
        Some(_) | None => Ok(Archs { name: name(path), found }),
    }
}
