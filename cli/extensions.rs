//! What extensions add to the commands of the core: models and logs of other programs, suites of questions, signatures.
//!
//! A program names its extensions once, when it starts. Without one, what needs it is refused.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use compiler::program::Compiled;
use data::text::index::TextIndex;
use dsl::{Diagnostic, Problem, Sources};
use lab::experiment::{Experiment, Missing};
use lab::recipe::Recipe;
use records::measure::Measure;
use records::run::Paths;
use records::verify::VerifyReport;
use records::weights::WeightSource;
use report::page::ForeignLog;

use crate::fail::{Failure, shown};

/// The extensions of a program.
#[derive(Clone, Copy)]
pub struct Extensions {
    pub models: &'static dyn ForeignModels,
    pub weights: &'static dyn WeightFiles,
    pub suites: &'static dyn Suites,
    pub signatures: &'static dyn Signatures,
    pub logs: &'static dyn Logs,
}

/// Models in folders of other programs, and in those that `canonc export` or `canonc import` wrote.
pub trait ForeignModels: Sync {
    /// The arch of a model's folder; `None` if it is no such folder. Diagnostics have been shown.
    fn open(&self, folder: &Path, arch: Option<&str>) -> Result<Option<Compiled>, Failure>;
    /// The `.canon` file that an export or an import wrote into a folder.
    fn own_arch(&self, folder: &Path) -> Result<Option<PathBuf>, Failure>;
    /// Whether a folder's configuration says that it is a model's: other programs have a `config.json`, too.
    fn names_a_model(&self, folder: &Path) -> bool;
    /// Whether a folder has weights.
    fn has_weights(&self, folder: &Path) -> bool;
}

/// Files of weights to begin from: of runs, exports, imports and other programs.
pub trait WeightFiles: Sync {
    /// Opens the weights of an arch in a file or a folder; those that it lacks are refused, or left to be drawn.
    fn open(
        &self,
        compiled: &Compiled,
        path: &Path,
        missing: Missing,
    ) -> Result<Box<dyn WeightSource>, Failure>;
    /// A warning for weights of another graph than the arch's: shapes may fit where constants do not.
    fn of_another_graph(&self, compiled: &Compiled, path: &Path)
    -> Result<Option<String>, Failure>;
}

/// Suites of questions for language models.
pub trait Suites: Sync {
    /// Resolves the suites of a recipe and writes their tasks into it; `None` if it has none.
    fn resolve(
        &self,
        recipe: &mut Recipe,
        sources: &Sources,
    ) -> Result<Option<Box<dyn RecipeSuites>>, Box<Diagnostic>>;
    /// What evaluations of an experiment measure with its suites; `None` if it has none.
    fn measure(
        &self,
        experiment: &Experiment,
        documents: Option<&TextIndex>,
    ) -> Result<Option<Box<dyn Measure>>, Problem>;
    /// The digest, in hexadecimal, of a task of the published suite, with this many examples in front of a question.
    fn published(&self, task: &str, shots: usize) -> Option<String>;
}

/// The resolved suites of a recipe.
pub trait RecipeSuites {
    /// A task whose questions an experiment of the recipe has no room for.
    fn check(&self, recipe: &Recipe, experiments: &[Experiment]) -> Option<Diagnostic>;
}

/// Signatures of attestations.
pub trait Signatures: Sync {
    /// Adds to the report what the signature of a run's attestation proves.
    fn report(
        &self,
        run: &Paths,
        trusted: Option<TrustedFile<'_>>,
        report: &mut VerifyReport,
    ) -> Result<(), Failure>;
}

/// Logs of runs that other programs trained.
pub trait Logs: Sync {
    /// Reads a log, and holds it against the lock that its reader says it is of. `metrics` are words `QUANTITY=NAME`.
    fn read(
        &self,
        file: &Path,
        experiment: &Experiment,
        metrics: &[String],
    ) -> Result<ForeignLog, Failure>;
}

/// The signers that the reader trusts.
#[derive(Clone, Copy, Debug)]
pub struct TrustedFile<'a> {
    /// A file of OpenSSH's allowed signers.
    pub signers: &'a Path,
    /// The name that must have signed; `None` for any listed one.
    pub identity: Option<&'a str>,
}

static EXTENSIONS: OnceLock<Extensions> = OnceLock::new();

/// Sets the extensions of this process.
pub(crate) fn set(extensions: Extensions) {
    // The first program of a process keeps its own.
    let _ = EXTENSIONS.set(extensions);
}

/// Models of other programs.
pub fn models() -> &'static dyn ForeignModels {
    EXTENSIONS.get().unwrap_or(&Extensions::NONE).models
}

/// Files of weights.
pub fn weight_files() -> &'static dyn WeightFiles {
    EXTENSIONS.get().unwrap_or(&Extensions::NONE).weights
}

/// Suites of questions.
pub fn suites() -> &'static dyn Suites {
    EXTENSIONS.get().unwrap_or(&Extensions::NONE).suites
}

/// Signatures of attestations.
pub fn signatures() -> &'static dyn Signatures {
    EXTENSIONS.get().unwrap_or(&Extensions::NONE).signatures
}

/// Logs of other programs.
pub fn logs() -> &'static dyn Logs {
    EXTENSIONS.get().unwrap_or(&Extensions::NONE).logs
}

impl Extensions {
    /// A program without extensions.
    pub const NONE: Extensions = Extensions {
        models: &Absent,
        weights: &Absent,
        suites: &Absent,
        signatures: &Absent,
        logs: &Absent,
    };
}

/// In place of an extension that a program was built without.
struct Absent;

const REBUILD: &str = "build canonc with its extensions: the feature `ext`";

impl ForeignModels for Absent {
    fn open(&self, folder: &Path, _: Option<&str>) -> Result<Option<Compiled>, Failure> {
        let message = format!(
            "`{}` is a model's folder, and this canonc is built without what reads models of other programs",
            shown(folder)
        );
        Err(Failure::machine(message).help(REBUILD))
    }

    fn own_arch(&self, _: &Path) -> Result<Option<PathBuf>, Failure> {
        Ok(None)
    }

    fn names_a_model(&self, _: &Path) -> bool {
        false
    }

    fn has_weights(&self, _: &Path) -> bool {
        false
    }
}

impl WeightFiles for Absent {
    fn open(
        &self,
        _: &Compiled,
        path: &Path,
        _: Missing,
    ) -> Result<Box<dyn WeightSource>, Failure> {
        let message = format!(
            "`{}` holds weights to begin from, and this canonc is built without what reads them",
            shown(path)
        );
        Err(Failure::machine(message).help(REBUILD))
    }

    fn of_another_graph(&self, _: &Compiled, _: &Path) -> Result<Option<String>, Failure> {
        Ok(None)
    }
}

const SUITES: &str = "evaluation.suites";

impl Suites for Absent {
    fn resolve(
        &self,
        recipe: &mut Recipe,
        _: &Sources,
    ) -> Result<Option<Box<dyn RecipeSuites>>, Box<Diagnostic>> {
        if !recipe.written.contains_key(SUITES) {
            return Ok(None);
        }
        let message = format!("`{SUITES}` is written, and this canonc is built without suites");
        let diagnostic = Diagnostic::error("bad-suite", recipe.span_of(SUITES), message);
        Err(Box::new(diagnostic.help(REBUILD)))
    }

    fn measure(
        &self,
        experiment: &Experiment,
        _: Option<&TextIndex>,
    ) -> Result<Option<Box<dyn Measure>>, Problem> {
        if experiment.evaluation.suites.is_empty() {
            return Ok(None);
        }
        let message = "the lock has suites, and this canonc is built without them";
        Err(Problem::machine(message, REBUILD))
    }

    fn published(&self, _: &str, _: usize) -> Option<String> {
        None
    }
}

impl Signatures for Absent {
    fn report(
        &self,
        run: &Paths,
        trusted: Option<TrustedFile<'_>>,
        report: &mut VerifyReport,
    ) -> Result<(), Failure> {
        if trusted.is_some() || run.signature().exists() {
            report.undecided("this canonc is built without what checks signatures".to_owned());
        }
        Ok(())
    }
}

impl Logs for Absent {
    fn read(&self, file: &Path, _: &Experiment, _: &[String]) -> Result<ForeignLog, Failure> {
        let message = format!(
            "`{}` is a log, and this canonc is built without what reads logs of other programs",
            shown(file)
        );
        Err(Failure::machine(message).help(REBUILD))
    }
}
