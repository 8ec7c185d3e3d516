//! The findings of a document, and the facts that hover and completion show.
//!
//! Each document is judged with its own imports, as `canonc check` and `canonc build` judge it. A result is plain data that
//! can leave the thread, and depends on the texts alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use compiler::elaborate::{Observed, Seen};
use compiler::load::{self, Content, Loaded};
use compiler::program::Compiled;
use dsl::{Diagnostic, Diagnostics, FileId, Sources, Span};
use lab::experiment::{Experiment, LockedArch, check_name};
use lab::field::TABLE;
use lab::lock;
use lab::recipe::choose::{self, NoChoice};
use lab::recipe::comparison::ArmFile;
use lab::recipe::{self, ArchRef, FileKind};

use crate::finding::{Finding, import_places, of_file};
use crate::store::{DocumentKind, FileReader, Store};

/// A document to judge.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Its number: a later job has a larger one.
    pub(crate) number: u64,
    /// Its name.
    pub(crate) name: String,
    /// Its kind.
    pub(crate) kind: DocumentKind,
    /// Its text.
    pub(crate) text: Arc<str>,
    /// Whether its own text is new, rather than that of a file that it reads.
    pub(crate) is_edited: bool,
    /// The other files.
    pub(crate) store: Arc<Store>,
}

/// A part of the result for one document.
#[derive(Clone, Debug)]
pub(crate) struct DocumentResult {
    /// Its name.
    pub(crate) name: String,
    /// The number of the job.
    pub(crate) job: u64,
    /// The part.
    pub(crate) part: Part,
}

/// Findings come first: they are shown at once, facts when somebody asks.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// What is wrong.
    Findings(Findings),
    /// What is known in addition; it ends the result.
    Facts(Facts),
}

/// What is wrong with a document.
#[derive(Clone, Debug)]
pub(crate) struct Findings {
    /// The diagnostics to show, in order.
    pub(crate) shown: Vec<Finding>,
    /// The names of the other files that they depend on, missing ones included; `None` if these are not known.
    pub(crate) files: Option<BTreeSet<String>>,
}

/// A document whose findings are known and whose facts are not yet.
pub(crate) enum Judged {
    /// A `.canon` file, and whether all its archs are valid.
    Canon(Loaded, bool),
    /// Another one, with its facts.
    Other(Facts),
}

/// What is known of a document in addition to its findings.
#[derive(Clone, Debug)]
pub(crate) enum Facts {
    /// Of a `.canon` file.
    Canon(CanonFacts),
    /// Of a recipe: the experiments that it makes.
    Recipe(Vec<ExperimentFacts>),
    /// Of a lock or a comparison, nothing.
    Nothing,
}

/// What the archs of a file evaluate to.
#[derive(Clone, Debug, Default)]
pub(crate) struct CanonFacts {
    /// The names of the files of the program, by number.
    pub(crate) names: Vec<String>,
    /// The texts that were evaluated, without those of std.
    pub(crate) texts: BTreeMap<String, Arc<str>>,
    /// The archs, in order.
    pub(crate) archs: Vec<ArchFacts>,
    /// Whether all of them are valid.
    pub(crate) is_whole: bool,
}

/// What one arch evaluates to.
#[derive(Clone, Debug)]
pub(crate) struct ArchFacts {
    /// Its name.
    pub(crate) name: String,
    /// Values, parameters and fields by place.
    pub(crate) observed: Observed,
}

/// One experiment of a recipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExperimentFacts {
    /// The name of its lock.
    pub(crate) name: String,
    /// Its id.
    pub(crate) id: String,
    /// Every field with its value, defaults and derived ones included.
    pub(crate) values: BTreeMap<&'static str, String>,
}

impl CanonFacts {
    /// The number of a file.
    fn file(&self, name: &str) -> Option<FileId> {
        self.names.iter().rposition(|known| known == name).map(|at| FileId(at as u32))
    }

    /// The name of the file of a place.
    pub(crate) fn name(&self, span: Span) -> &str {
        self.names.get(span.file.0 as usize).map_or("", String::as_str)
    }

    /// The values at a place of a file, each with the archs that have it.
    pub(crate) fn values(&self, file: &str, start: usize, end: usize) -> Vec<(&Seen, Vec<&str>)> {
        let Some(file) = self.file(file) else { return Vec::new() };
        let span = Span::new(file, start, end);
        let mut values: Vec<(&Seen, Vec<&str>)> = Vec::new();
        for arch in &self.archs {
            for seen in arch.observed.values.get(&span).into_iter().flatten() {
                match values.iter_mut().find(|(known, _)| *known == seen) {
                    Some((_, archs)) => archs.push(&arch.name),
                    None => values.push((seen, vec![&arch.name])),
                }
            }
        }
        values
    }

    /// An arch by name.
    pub(crate) fn arch(&self, name: &str) -> Option<&ArchFacts> {
        self.archs.iter().find(|arch| arch.name == name)
    }
}

/// Judges documents, and remembers compiled archs.
#[derive(Default)]
pub(crate) struct Analyst {
    archs: BTreeMap<ArchRef, (Vec<String>, Option<Rc<LockedArch>>)>,
    /// The archs of a document without any finding, each with the texts that it depends on.
    clean: BTreeMap<String, BTreeMap<String, String>>,
}

impl Analyst {
    /// The findings of one document.
    pub(crate) fn findings(&mut self, job: &Job) -> (Findings, Judged) {
        let mut files = FileReader::new(&job.store);
        let (shown, judged) = match job.kind {
            DocumentKind::Canon => self.canon(job, &mut files),
            DocumentKind::Recipe => {
                let (findings, facts) = self.toml(job, &mut files);
                (findings, Judged::Other(facts))
            }
            DocumentKind::Lock => (locked(job), Judged::Other(Facts::Nothing)),
        };
        (Findings { shown, files: Some(files.names) }, judged)
    }

    /// Only the archs whose texts have changed are judged again.
    fn canon(&mut self, job: &Job, files: &mut FileReader<'_>) -> (Vec<Finding>, Judged) {
        let loaded = loaded(&job.name, &job.text, files);
        let sources = &loaded.program.sources;
        let Some(file) = sources.find(&loaded.name) else {
            return (Vec::new(), Judged::Other(Facts::Nothing));
        };
        let mut diagnostics = loaded.diagnostics.clone();
        let before = self.clean.remove(&job.name).unwrap_or_default();
        let mut clean = BTreeMap::new();
        for name in loaded.archs() {
            let texts = loaded.program.texts_of(&loaded.name, &name);
            if texts.is_none() || before.get(&name) != texts.as_ref() {
                let (_, more) = loaded.check(&name);
                if !more.is_empty() {
                    diagnostics.extend(more);
                    continue;
                }
            }
            clean.extend(texts.map(|texts| (name, texts)));
        }
        self.clean.insert(job.name.clone(), clean);
        let is_whole = !diagnostics.iter().any(Diagnostic::is_error);
        let findings = of_file(sources, file, &import_places(sources, file), &diagnostics);
        (findings, Judged::Canon(loaded, is_whole))
    }

    fn toml(&mut self, job: &Job, files: &mut FileReader<'_>) -> (Vec<Finding>, Facts) {
        let mut sources = Sources::new();
        let file = sources.add(job.name.clone(), job.text.to_string());
        let (diagnostics, facts) = match recipe::file_kind(&job.text) {
            FileKind::Recipe => {
                let (experiments, diagnostics) = self.recipe(&sources, file, None, files);
                (diagnostics, Facts::Recipe(experiments.iter().map(ExperimentFacts::new).collect()))
            }
            FileKind::Comparison => (self.comparison(&sources, file, files), Facts::Nothing),
        };
        (of_file(&sources, file, &BTreeMap::new(), &diagnostics), facts)
    }

    /// The experiments of a recipe; `arch` replaces the recipe's own.
    fn recipe(
        &mut self,
        sources: &Sources,
        file: FileId,
        arch: Option<&ArchRef>,
        files: &mut FileReader<'_>,
    ) -> (Vec<Experiment>, Diagnostics) {
        let (read, mut diagnostics) = recipe::read(sources, file);
        let Some(mut read) = read else { return (Vec::new(), diagnostics) };
        if let Some(arch) = arch {
            read.use_arch(arch);
        }
        for (named, span) in &read.archs {
            if let Err(error) = self.arch(named, files) {
                diagnostics
                    .push(Diagnostic::error("bad-arch", *span, error.message).help(error.help));
            }
        }
        if diagnostics.iter().any(Diagnostic::is_error) {
            return (Vec::new(), diagnostics);
        }
        let source = sources.name(file);
        let stem = stem(source);
        let arch = |named: &ArchRef| self.archs.get(named).and_then(|(_, locked)| locked.clone());
        let (experiments, more) = read.experiments(&stem, source, &arch);
        diagnostics.extend(more);
        (experiments, diagnostics)
    }

    /// Compiles the arch that a recipe names, unless its texts are those of the last time.
    fn arch(&mut self, named: &ArchRef, files: &mut FileReader<'_>) -> Result<(), NoChoice> {
        if !files.has(&named.path) {
            let nearest = load::Files::nearest(files, &named.path);
            return Err(NoChoice {
                message: format!("`{}` does not exist", named.path),
                help: match nearest {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None => "write a path relative to this file".to_owned(),
                },
            });
        }
        let Some(text) = files.text(&named.path) else {
            return Err(broken(named, "it is not a text of the language"));
        };
        let content = Content::Text(text.to_string());
        let loaded = load::load(named.path.clone(), content, files);
        let files_read = loaded.program.files().iter();
        let texts: Vec<String> =
            files_read.map(|file| loaded.program.sources.text(*file).to_owned()).collect();
        if let Some((known, Some(_))) = self.archs.get(named)
            && *known == texts
        {
            return Ok(());
        }
        self.archs.insert(named.clone(), (texts.clone(), None));
        let first = |diagnostics: &[Diagnostic]| {
            let error = diagnostics.iter().find(|d| d.is_error()).map(|d| d.message.clone());
            broken(named, &error.unwrap_or_else(|| "it has errors".to_owned()))
        };
        if loaded.has_errors() {
            return Err(first(&loaded.diagnostics));
        }
        let names = named.name.clone().map_or_else(|| loaded.archs(), |name| vec![name]);
        let mut all: Vec<Compiled> = Vec::new();
        for name in names {
            let (compiled, diagnostics) = loaded.compile(&name);
            all.push(compiled.ok_or_else(|| first(&diagnostics))?);
        }
        let compiled = choose::arch(named, &all)?;
        let locked = LockedArch::new(compiled)
            .map_err(|error| NoChoice { message: error.message, help: error.help })?;
        self.archs.insert(named.clone(), (texts, Some(Rc::new(locked))));
        Ok(())
    }

    fn comparison(
        &mut self,
        sources: &Sources,
        file: FileId,
        files: &mut FileReader<'_>,
    ) -> Diagnostics {
        let (read, mut diagnostics) = recipe::comparison::read(sources, file);
        let Some(read) = read else { return diagnostics };
        let source = sources.name(file);
        let stem = stem(source);
        for row in &read.rows {
            let prefix = row.name.as_ref().map_or_else(String::new, |row| format!("`{row}`: "));
            let mut arms = Vec::new();
            let before = diagnostics.len();
            for arm in &row.arms {
                let at = match &row.name {
                    Some(row) => read.span_of(&format!("sweep.{row}")),
                    None => read.span_of(&format!("arms.{}", arm.name)),
                };
                match self.arm(arm, files) {
                    Ok(experiment) => arms.push((arm.name.clone(), experiment)),
                    Err(NoChoice { message, help }) => {
                        let error = Diagnostic::error("bad-arm", at, format!("{prefix}{message}"));
                        diagnostics.push(error.help(help));
                    }
                }
            }
            if diagnostics.len() > before {
                continue;
            }
            let name = row.name.as_deref().unwrap_or(&stem);
            if let Err(error) = read.comparison(name, source, arms) {
                for mut diagnostic in read.explain(&error) {
                    diagnostic.message.insert_str(0, &prefix);
                    diagnostics.push(diagnostic);
                }
            }
        }
        diagnostics
    }

    /// The experiment that an arm names.
    fn arm(&mut self, arm: &ArmFile, files: &mut FileReader<'_>) -> Result<Experiment, NoChoice> {
        let text = files.text(&arm.recipe).ok_or_else(|| choose::no_recipe(arm))?;
        let mut sources = Sources::new();
        let file = sources.add(arm.recipe.clone(), text.to_string());
        let (experiments, diagnostics) = self.recipe(&sources, file, arm.arch.as_ref(), files);
        if let Some(error) = diagnostics.iter().find(|d| d.is_error()) {
            let message = format!("arm `{}`: in {}: {}", arm.name, arm.recipe, error.message);
            return Err(NoChoice { message, help: error.help.join("; ") });
        }
        choose::experiment(arm, &experiments).cloned()
    }
}

fn broken(named: &ArchRef, reason: &str) -> NoChoice {
    NoChoice {
        message: format!("`{}` does not compile: {reason}", named.path),
        help: format!("`canonc check {}` shows every error", named.path),
    }
}

/// The name of the locks that a file makes.
fn stem(name: &str) -> String {
    let stem = Path::new(name).file_stem().and_then(|stem| stem.to_str()).unwrap_or("");
    if check_name(stem).is_ok() { stem.to_owned() } else { "unnamed".to_owned() }
}

/// A document as a program with its imports.
pub(crate) fn loaded(name: &str, text: &str, files: &mut FileReader<'_>) -> Loaded {
    load::load(name.to_owned(), Content::from_bytes(text.as_bytes().to_vec()), files)
}

impl Judged {
    /// The facts of the document; `None` if they are no longer wanted, which is asked before each arch.
    pub(crate) fn facts(self, is_wanted: &mut dyn FnMut() -> bool) -> Option<Facts> {
        let (loaded, is_whole) = match self {
            Judged::Canon(loaded, is_whole) => (loaded, is_whole),
            Judged::Other(facts) => return Some(facts),
        };
        let sources = &loaded.program.sources;
        let text = |id: &FileId| (sources.name(*id).to_owned(), Arc::from(sources.text(*id)));
        let mut archs = Vec::new();
        for name in loaded.archs() {
            if !is_wanted() {
                return None;
            }
            archs.push(ArchFacts { observed: loaded.observe(&name).0, name });
        }
        Some(Facts::Canon(CanonFacts {
            names: sources.ids().map(|id| sources.name(id).to_owned()).collect(),
            texts: loaded.program.files().iter().map(text).collect(),
            archs,
            is_whole,
        }))
    }
}

fn locked(job: &Job) -> Vec<Finding> {
    let Err(error) = lock::read(&job.name, &job.text) else { return Vec::new() };
    let line = error.line.unwrap_or(1).saturating_sub(1);
    let start: usize = job.text.split_inclusive('\n').take(line).map(str::len).sum();
    let line_text = job.text.get(start..).unwrap_or("").lines().next().unwrap_or("");
    let mut finding = Finding::error(error.code, (start, start + line_text.len()), error.message);
    finding.help.push(error.help);
    vec![finding]
}

impl ExperimentFacts {
    fn new(experiment: &Experiment) -> ExperimentFacts {
        let value = |path: &'static str| Some((path, experiment.value(path)?.to_string()));
        ExperimentFacts {
            name: experiment.name.clone(),
            id: experiment.id().to_string(),
            values: TABLE.iter().filter_map(|def| value(def.path)).collect(),
        }
    }
}
