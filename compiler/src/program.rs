//! The front end in one place: texts in, one compiled architecture out. The canonical text alone, without std, compiles
//! to the same identity.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use dsl::limits::MAX_ERRORS;
use dsl::{Ast, Diagnostic, Diagnostics, FileId, Severity, Sources, Span};

use crate::arch;
use crate::canonical::{Identity, identify};
use crate::diag;
use crate::elaborate::{
    Elaborated, Field, Observed, elaborate, elaborate_observed, elaborate_open, join,
};
use crate::graph::Graph;
use crate::inline;
use crate::recover;
use crate::resolve::{Library, import_target, resolve};
use crate::tree::ArchTree;
use crate::undefined::undefined;

pub use standard::FILES as STD;

/// The standard definitions that a program may use in addition to its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Std {
    /// The definitions in `std/`, which are part of this crate.
    Embedded,
    /// None: a lock's text is self-contained, and later changes to std must not affect it.
    None,
}

/// Error codes for undefined names.
const UNKNOWN: [&str; 2] = ["unknown-name", "unknown-init-table"];

/// A set of parsed and resolved files.
#[derive(Clone, Debug)]
pub struct Program {
    /// The texts, for rendering diagnostics.
    pub sources: Sources,
    /// Definitions and names by file.
    pub library: Library,
    /// Everything found while parsing and resolving.
    pub diagnostics: Diagnostics,
    files: Vec<FileId>,
}

/// One architecture, compiled.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Name of the arch.
    pub name: String,
    /// Its `///` lines.
    pub docs: Vec<String>,
    /// Its fields and layers, with every edit applied.
    pub tree: ArchTree,
    /// Its graph, in canonical order.
    pub graph: Graph,
    /// All configuration values, defaults included.
    pub fields: Vec<Field>,
    /// Digests of graph and manifest, with the hashed texts.
    pub identity: Identity,
    /// Canonical text: every definition it uses, then the arch without `with`.
    pub text: String,
}

/// The targets of a file's imports, for the code that reads files.
pub fn imports(name: &str, text: &str) -> Vec<String> {
    let mut sources = Sources::new();
    let file = sources.add(name, text);
    let (ast, _) = dsl::parse(file, text);
    ast.imports.iter().filter_map(|i| import_target(name, &i.path)).collect()
}

/// The standard definitions, parsed once in a process: they come first in every program that has them, so that their
/// files have the same numbers in each.
struct ParsedStd {
    sources: Sources,
    files: Vec<(FileId, Ast)>,
    diagnostics: Diagnostics,
}

static PARSED_STD: LazyLock<ParsedStd> = LazyLock::new(|| {
    let (mut sources, mut diagnostics) = (Sources::new(), Diagnostics::new());
    let files = STD.iter().map(|(name, text)| parse(&mut sources, name, text, &mut diagnostics));
    let files = files.collect();
    ParsedStd { sources, files, diagnostics }
});

fn parse(
    sources: &mut Sources,
    name: &str,
    text: &str,
    diagnostics: &mut Diagnostics,
) -> (FileId, Ast) {
    let file = sources.add(name, text);
    let (ast, errors) = dsl::parse(file, text);
    diagnostics.extend(errors);
    (file, ast)
}

impl Program {
    /// Parses and resolves. The result holds the diagnostics so far.
    pub fn new(files: impl IntoIterator<Item = (String, String)>, std: Std) -> Program {
        let (mut sources, standard, mut diagnostics) = match std {
            Std::Embedded => {
                let ParsedStd { sources, files, diagnostics } = &*PARSED_STD;
                (sources.clone(), files.as_slice(), diagnostics.clone())
            }
            Std::None => (Sources::new(), [].as_slice(), Diagnostics::new()),
        };
        let asts: Vec<(FileId, Ast)> = files
            .into_iter()
            .map(|(name, text)| parse(&mut sources, &name, &text, &mut diagnostics))
            .collect();
        let files = asts.iter().map(|(file, _)| *file).collect();
        let (library, mut errors) = resolve(&sources, &asts, standard);
        for (file, ast) in asts.iter().chain(standard) {
            undefined(&library, *file, ast, &mut errors);
        }
        diagnostics.extend(errors);
        Program { sources, library, diagnostics, files }
    }

    /// Whether parsing or resolving found errors; then nothing compiles.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }

    /// Names of the archs a file defines.
    pub fn archs(&self, file: &str) -> Vec<String> {
        match self.sources.find(file) {
            Some(id) => self.library.archs(id).iter().map(|a| a.name.text.clone()).collect(),
            None => Vec::new(),
        }
    }

    /// Files given, in order.
    pub fn files(&self) -> &[FileId] {
        &self.files
    }

    /// Compiles the arch called `name` in `file`. On success there may be warnings, on failure there are errors.
    pub fn compile(&self, file: &str, name: &str) -> (Option<Compiled>, Diagnostics) {
        if self.has_errors() {
            return (None, Diagnostics::new());
        }
        self.build(file, name, compile_tree, |compiled| &compiled.fields)
    }

    /// Finds the errors of an arch without computing its identity and text, which take time and find
    /// few further errors. An arch that uses an item with an error is skipped, since its errors would follow
    /// from that one.
    pub fn check(&self, file: &str, name: &str) -> (bool, Diagnostics) {
        if self.has_errors() && !self.sound(file, name) {
            return (false, self.besides_names(file, name));
        }
        let (elaborated, diagnostics) =
            self.build(file, name, checked_tree, |elaborated| &elaborated.fields);
        (elaborated.is_some(), diagnostics)
    }

    /// The texts of all items that an arch uses, its own included, with their files. While they are the same, an arch
    /// without diagnostics has none. `None` if an item is missing or has an error.
    pub fn texts_of(&self, file: &str, name: &str) -> Option<String> {
        let id = self.sources.find(file)?;
        if self.has_errors() && !self.sound(file, name) {
            return None;
        }
        let mut texts = String::new();
        for span in self.library.used_by(id, name)? {
            let item = self.sources.text(span.file).get(span.start as usize..span.end as usize)?;
            for part in [self.sources.name(span.file), "\n", item, "\0"] {
                texts += part;
            }
        }
        Some(texts)
    }

    /// The diagnostics of an arch, with what each expression of it evaluated to, as far as that is known.
    pub fn observe(&self, file: &str, name: &str) -> (Observed, Diagnostics) {
        let mut observed = Observed::default();
        if self.has_errors() && !self.sound(file, name) {
            return (observed, self.besides_names(file, name));
        }
        let finish = |library: &Library, tree: &ArchTree, diagnostics: &mut Diagnostics| {
            let elaborated = elaborate_observed(library, tree, diagnostics, &mut observed)?;
            inline::text(library, tree, diagnostics)?;
            Some(elaborated)
        };
        let (elaborated, diagnostics) =
            self.build(file, name, finish, |elaborated| &elaborated.fields);
        observed.fields = elaborated.map(|elaborated| elaborated.fields).unwrap_or_default();
        (observed, diagnostics)
    }

    /// Errors of an arch other than undefined names: leaves out the entries with such names. If its text or
    /// its base has other errors, returns nothing.
    fn besides_names(&self, file: &str, name: &str) -> Diagnostics {
        let mut diagnostics = Diagnostics::new();
        let Some(id) = self.sources.find(file) else { return diagnostics };
        let Some((arch, home)) = self.library.arch(id, name).filter(|(_, home)| *home == id) else {
            return diagnostics;
        };
        let Some((used, _)) = self.library.used(id, name) else { return diagnostics };
        let mut names = Vec::new();
        for error in self.diagnostics.iter().filter(|d| d.is_error()) {
            let Some(at) = error.labels.first().map(|label| label.span) else { continue };
            if !used.iter().any(|item| at.is_in(*item)) {
                continue;
            }
            if !at.is_in(arch.span) || !UNKNOWN.contains(&error.code) {
                return diagnostics;
            }
            names.push(error.clone());
        }
        let unknown = names.iter().filter_map(|d| d.labels.first()).map(|label| label.span);
        let unknown: Vec<Span> = unknown.collect();
        diagnostics.extend(names);
        let before = diagnostics.len();
        let built = arch::without(&self.library, home, &arch, &unknown, &mut diagnostics);
        if let Some(built) = built {
            recover::further(&self.library, built.tree, 0, false, &mut diagnostics);
        }
        diagnostics.split_off(before)
    }

    /// The graph of an arch with every declared slot; `None` if it does not compile.
    pub fn open(&self, file: &str, name: &str) -> Option<Graph> {
        let id = self.sources.find(file).filter(|_| !self.has_errors())?;
        let (arch, home) = self.library.arch(id, name).filter(|(_, home)| *home == id)?;
        let built = arch::build(&self.library, home, &arch, &mut Diagnostics::new())?;
        elaborate_open(&self.library, &built.tree)
    }

    /// Whether the text of an arch, and of everything it uses, has no error.
    fn sound(&self, file: &str, name: &str) -> bool {
        let Some(id) = self.sources.find(file) else { return false };
        let errors = self.diagnostics.iter().filter(|d| d.is_error());
        let places: Vec<Span> =
            errors.filter_map(|d| d.labels.first()).map(|label| label.span).collect();
        self.library.used_by(id, name).is_some_and(|used| {
            !used.iter().any(|item| {
                places.iter().any(|at| {
                    at.file == item.file && item.start <= at.start && at.start <= item.end
                })
            })
        })
    }

    fn build<T>(
        &self,
        file: &str,
        name: &str,
        finish: impl FnOnce(&Library, &ArchTree, &mut Diagnostics) -> Option<T>,
        fields: fn(&T) -> &Vec<Field>,
    ) -> (Option<T>, Diagnostics) {
        let mut diagnostics = Diagnostics::new();
        let Some(id) = self.sources.find(file) else { return (None, diagnostics) };
        let Some((arch, home)) = self.library.arch(id, name).filter(|(_, home)| *home == id) else {
            let names = self.archs(file);
            let span = Span::new(id, 0, 0);
            diagnostics.push(diag::no_such_arch(span, name, &names));
            return (None, diagnostics);
        };
        let Some(built) = arch::attempt(&self.library, home, &arch, &mut diagnostics) else {
            return (None, diagnostics);
        };
        if built.broken {
            recover::further(&self.library, built.tree, 0, false, &mut diagnostics);
            return (None, diagnostics);
        }
        // Elaborate the base first and keep only the edited fields: two graphs would use too much memory.
        let before = built.base.as_ref().and_then(|base| {
            let fields = elaborate(&self.library, base, &mut Diagnostics::new())?.fields;
            Some(edited_fields(&fields, &built.edits))
        });
        let from = diagnostics.len();
        let finished = finish(&self.library, &built.tree, &mut diagnostics);
        if finished.is_none() {
            recover::further(&self.library, built.tree, from, true, &mut diagnostics);
            return (None, diagnostics);
        }
        if let (Some(finished), Some(before)) = (&finished, before) {
            let after = edited_fields(fields(finished), &built.edits);
            idle_edits(&before, &after, &built.edits, &mut diagnostics);
        }
        (finished, diagnostics)
    }

    /// All diagnostics as text.
    pub fn render(&self, diagnostics: &[Diagnostic]) -> String {
        dsl::render(&self.sources, diagnostics)
    }
}

/// Elaborates a tree and computes its identity.
pub fn compile_tree(
    library: &Library,
    tree: &ArchTree,
    diagnostics: &mut Diagnostics,
) -> Option<Compiled> {
    let mut elaborated = elaborate(library, tree, diagnostics)?;
    let text = inline::text(library, tree, diagnostics)?;
    let fields = std::mem::take(&mut elaborated.fields);
    let graph = elaborated.graph();
    let identity = identify(&graph);
    Some(Compiled {
        name: tree.name.clone(),
        docs: tree.docs.clone(),
        text,
        tree: tree.clone(),
        graph,
        fields,
        identity,
    })
}

/// Elaborates a tree, and checks that its canonical text can be written.
fn checked_tree(
    library: &Library,
    tree: &ArchTree,
    diagnostics: &mut Diagnostics,
) -> Option<Elaborated> {
    let elaborated = elaborate(library, tree, diagnostics)?;
    inline::text(library, tree, diagnostics)?;
    Some(elaborated)
}

/// The fields that an edit sets, once for each layer it reached.
fn landings(edit: &arch::Edit) -> Vec<String> {
    match &edit.layers {
        None => vec![edit.path.clone()],
        Some(layers) => layers.iter().map(|n| join(&format!("layers.{n}"), &edit.path)).collect(),
    }
}

/// The fields at and below a path.
fn under<'a>(
    fields: &'a BTreeMap<&str, &str>,
    path: &'a str,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    fields
        .range(path..)
        .map(|(field, value)| (*field, *value))
        .take_while(move |(field, _)| field.starts_with(path))
        .filter(move |(field, _)| matches!(field.as_bytes().get(path.len()), None | Some(b'.')))
}

/// The fields that some edit may have reached: a few of those of ten thousand layers.
fn edited_fields(fields: &[Field], edits: &[arch::Edit]) -> Vec<Field> {
    let layers: BTreeSet<usize> =
        edits.iter().flat_map(|e| e.layers.iter().flatten()).copied().collect();
    let paths: BTreeSet<&str> = edits.iter().map(|e| e.path.as_str()).collect();
    let reached = |path: &str| {
        let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
        ends.filter_map(|end| path.get(..end)).any(|start| paths.contains(start))
    };
    let in_layer = |path: &str| {
        let Some(rest) = path.strip_prefix("layers.") else { return false };
        let (number, below) = rest.split_once('.').unwrap_or((rest, ""));
        number.parse().is_ok_and(|n: usize| layers.contains(&n))
            && (reached(below) || paths.contains(""))
    };
    fields.iter().filter(|f| reached(&f.path) || in_layer(&f.path)).cloned().collect()
}

/// Warns about edits that leave every field they name unchanged.
fn idle_edits(
    before: &[Field],
    after: &[Field],
    edits: &[arch::Edit],
    diagnostics: &mut Diagnostics,
) {
    let before: BTreeMap<&str, &str> =
        before.iter().map(|f| (f.path.as_str(), f.value.as_str())).collect();
    let after: BTreeMap<&str, &str> =
        after.iter().map(|f| (f.path.as_str(), f.value.as_str())).collect();
    let mut warnings = 0;
    for edit in edits {
        if warnings == MAX_ERRORS {
            break;
        }
        let paths = landings(edit);
        let same = paths.iter().all(|path| under(&before, path).eq(under(&after, path)));
        let any = paths.iter().any(|path| under(&after, path).next().is_some());
        if same && any {
            let value = paths.first().and_then(|path| after.get(path.as_str())).copied();
            diagnostics.push(diag::edit_changes_nothing(&edit.path, value, edit.span));
            warnings += 1;
        }
    }
    diagnostics.sort_by_key(|d| match d.severity {
        Severity::Error => 0,
        Severity::Warning => 1,
    });
}
