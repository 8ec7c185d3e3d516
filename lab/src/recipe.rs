//! Reads recipes: a user's experiments in TOML, checked field by field. All independent errors are reported. A key that
//! is not in the field table is an error, numbers keep the digits as written, a recipe names archs and never edits one,
//! and missing fields are filled in only from the table.

pub mod choose;
pub mod comparison;
mod diag;
mod keys;
mod sweep;

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use dsl::limits::MAX_SOURCE_BYTES;
use dsl::{Diagnostics, FileId, Sources, Span};
use tasks::task;
use toml::de::{DeTable, DeValue};

use crate::error::FieldProblem;
use crate::experiment::{Experiment, LockedArch};
use crate::field::{self, FieldValue, Fields, shown};
use compiler::resolve::import_target;

use crate::facts;
pub use crate::grid::{MAX_POINTS, Point};
pub use comparison::ComparisonFile;
pub use keys::{KeyPlace, keys};
pub use sweep::{Axis, AxisEntry};

/// The kind of a TOML file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A recipe of one or more experiments.
    Recipe,
    /// A comparison of recipes.
    Comparison,
}

/// A reference to an arch in a recipe.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArchRef {
    /// The file's path, relative to the same directory as the recipe's.
    pub path: String,
    /// The arch's name; `None` if the file has only one.
    pub name: Option<String>,
}

/// A parsed recipe.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The file it was read from.
    pub file: FileId,
    /// The arch, or the archs that are swept.
    pub archs: Vec<(ArchRef, Span)>,
    /// Fields as written, without those of the sweep.
    pub written: Fields,
    /// Axes of the sweep; the points are their product.
    pub axes: Vec<Axis>,
    spans: BTreeMap<String, Span>,
}

/// The kind of a text: a comparison has arms, or lists them in its sweep and has a treatment.
pub fn file_kind(text: &str) -> FileKind {
    let tells = |key: &str| ["arms", "treatment"].contains(&key);
    let comparison = match facts::parse(text) {
        Ok(table) => table.keys().any(|key| tells(key.get_ref())),
        // For invalid TOML, guess the kind from the lines.
        Err(_) => text.lines().any(|line| {
            let line = line.trim();
            line == "[arms]" || line.split('=').next().is_some_and(|key| tells(key.trim()))
        }),
    };
    if comparison { FileKind::Comparison } else { FileKind::Recipe }
}

/// The TOML of a file of at most [`MAX_SOURCE_BYTES`], or what is wrong with it.
fn table(sources: &Sources, file: FileId) -> Result<DeTable<'_>, Diagnostics> {
    let text = sources.text(file);
    let span = |at: &Range<usize>| Span::new(file, at.start, at.end);
    if text.len() > MAX_SOURCE_BYTES {
        let too_large = diag::too_large(span(&(0..0)), text.len(), MAX_SOURCE_BYTES);
        return Err(vec![too_large]);
    }
    let not_toml = |errors: Vec<facts::NotToml>| {
        errors.iter().map(|error| diag::not_toml(span(&error.at), &error.message)).collect()
    };
    facts::parse(text).map_err(not_toml)
}

/// Reads a recipe. None if there are errors; all of them are reported, each at its line.
pub fn read(sources: &Sources, file: FileId) -> (Option<Recipe>, Diagnostics) {
    let span = |at: &Range<usize>| Span::new(file, at.start, at.end);
    let (table, mut diagnostics) = match table(sources, file) {
        Ok(table) => (table, Diagnostics::new()),
        Err(diagnostics) => return (None, diagnostics),
    };
    let (leaves, tables) = facts::leaves(&table);
    let mut recipe = Recipe {
        file,
        archs: Vec::new(),
        written: Fields::new(),
        axes: Vec::new(),
        spans: tables.iter().map(|(path, at)| (path.clone(), span(at))).collect(),
    };
    let unknown = unknown_sections(&tables);
    for (section, at) in &unknown {
        let inside = |fact: &&facts::Fact<'_, '_>| within(&fact.path, section);
        let keys = leaves.iter().filter(inside).map(|fact| fact.path.as_str());
        diagnostics.push(diag::unknown_section(span(at), section, keys));
    }
    for fact in &leaves {
        let (key, at) = (span(&fact.key), span(&fact.at));
        if unknown.iter().any(|(section, _)| within(&fact.path, section)) {
            continue;
        }
        if fact.path == "arch" {
            match arch_ref(sources.name(file), fact.value) {
                Some(arch) => recipe.archs.push((arch, at)),
                None => diagnostics.push(diag::bad_arch(at, &shown(fact.value))),
            }
            recipe.spans.insert("arch".to_owned(), at);
        } else if let Some(path) = fact.path.strip_prefix("sweep.") {
            recipe.axis(sources.name(file), path, key, fact.value, at, &mut diagnostics);
        } else {
            match field::find(&fact.path) {
                Some(def) if !def.is_writable() => {
                    diagnostics.push(diag::derived_key(key, def));
                }
                Some(def) => {
                    match def.kind.read(fact.value) {
                        Ok(value) => {
                            let value = field::canonical(def, value);
                            recipe.written.insert(fact.path.clone(), value);
                        }
                        Err(reason) => diagnostics.push(diag::bad_value(at, &fact.path, &reason)),
                    }
                    recipe.spans.insert(fact.path.clone(), at);
                }
                None => diagnostics.push(diag::unknown_key(key, &fact.path, &["arch", "sweep"])),
            }
        }
    }
    name_task(&mut recipe, &tables);
    recipe.check_axes(&mut diagnostics);
    if recipe.archs.is_empty() && !recipe.spans.contains_key("arch") {
        diagnostics.push(diag::missing_arch(span(&(0..0))));
    }
    if diagnostics.is_empty() { (Some(recipe), diagnostics) } else { (None, diagnostics) }
}

/// A task's table names the task, even if it sets no parameter.
fn name_task(recipe: &mut Recipe, tables: &[(String, Range<usize>)]) {
    const TASK: &str = "data.task";
    let is_swept = recipe.axes.iter().any(|axis| axis.paths.iter().any(|path| path == TASK));
    if is_swept || recipe.spans.contains_key(TASK) {
        return;
    }
    let named: Vec<&str> = task::names()
        .into_iter()
        .filter(|task| tables.iter().any(|(path, _)| path.strip_prefix("data.") == Some(*task)))
        .collect();
    if let [task] = named[..] {
        recipe.written.insert(TASK.to_owned(), FieldValue::text(task));
    }
}

/// The outermost tables that hold no field. Each is reported once, however many keys it has.
fn unknown_sections(tables: &[(String, Range<usize>)]) -> Vec<(String, Range<usize>)> {
    let is_known = |path: &str| {
        within(path, "sweep")
            || path == "arch"
            || field::TABLE.iter().any(|def| within(def.path, path))
    };
    let mut unknown: Vec<(String, Range<usize>)> =
        tables.iter().filter(|(path, _)| !is_known(path)).cloned().collect();
    unknown.sort_by(|(one, _), (two, _)| one.cmp(two));
    // A table sorts before the tables in it.
    let mut outermost: Vec<(String, Range<usize>)> = Vec::new();
    for (path, at) in unknown {
        if !outermost.iter().any(|(above, _)| within(&path, above)) {
            outermost.push((path, at));
        }
    }
    outermost
}

/// Whether a path is a section, or a key or section in it.
pub(crate) fn within(path: &str, section: &str) -> bool {
    path.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Parses `"../arch/family.canon#llama_1B"`, relative to the importing file.
fn arch_ref(importer: &str, value: &DeValue<'_>) -> Option<ArchRef> {
    let DeValue::String(text) = value else { return None };
    let (path, name) = match text.split_once('#') {
        Some((path, name)) => (path, Some(name)),
        None => (text.as_ref(), None),
    };
    if name.is_some_and(str::is_empty) || !path.ends_with(".canon") {
        return None;
    }
    if text.chars().any(char::is_control) {
        return None;
    }
    let path = import_target(importer, path)?;
    Some(ArchRef { path, name: name.map(str::to_owned) })
}

impl Recipe {
    /// The span of a field, or the nearest one.
    pub fn span_of(&self, path: &str) -> Span {
        let section = path.split('.').next().unwrap_or(path);
        let known = self.spans.get(path).or_else(|| self.spans.get(section));
        known.copied().unwrap_or(Span::new(self.file, 0, 0))
    }

    /// Replaces the recipe's arch; in a sweep over archs, replaces it at every point.
    pub fn use_arch(&mut self, arch: &ArchRef) {
        for (named, _) in &mut self.archs {
            named.clone_from(arch);
        }
    }

    /// Every point of the sweep, in order; a single one without a sweep.
    pub fn points(&self) -> Vec<Point> {
        sweep::points(self)
    }

    /// One experiment per point. `stem` starts each name; `arch` returns the compiled arch of a reference
    /// (`None` if that failed and was reported).
    pub fn experiments(
        &self,
        stem: &str,
        source: &str,
        arch: &dyn Fn(&ArchRef) -> Option<Rc<LockedArch>>,
    ) -> (Vec<Experiment>, Diagnostics) {
        let mut diagnostics = Diagnostics::new();
        let mut experiments = Vec::new();
        let points = self.points();
        for (name, point) in sweep::names(self, stem, &points).into_iter().zip(points) {
            let Some(arch) = self.archs.get(point.arch).and_then(|(a, _)| arch(a)) else {
                continue;
            };
            match Experiment::new(name, source.to_owned(), arch, point.fields) {
                Ok(experiment) => experiments.push(experiment),
                Err(problems) => {
                    for problem in problems {
                        self.report(&problem, &mut diagnostics);
                    }
                }
            }
        }
        (experiments, diagnostics)
    }

    /// Adds a problem once, even if several points have it.
    fn report(&self, problem: &FieldProblem, diagnostics: &mut Diagnostics) {
        let FieldProblem { path, code, message, help } = problem;
        let diagnostic = diag::problem(self.span_of(path), code, message, help);
        if !diagnostics.iter().any(|d| d.message == diagnostic.message) {
            diagnostics.push(diagnostic);
        }
    }
}
