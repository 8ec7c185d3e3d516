//! The suites of a recipe: where they are, and their tasks as a lock names them when it is built.

use std::path::Path;
use std::sync::LazyLock;

use cli::extensions::{self, RecipeSuites};
use compiler::resolve::import_target;
use data::text::index::TextIndex;
use dsl::{Diagnostic, Problem, Sources};
use lab::experiment::Experiment;
use lab::field::{self, FieldValue, Fields};
use lab::lock;
use lab::recipe::Recipe;
use records::measure::Measure;
use suite::asked::RELEASE;
use suite::encode::TokenError;
use suite::run::OfRecipe;
use suite::suite::{Suite, Task};

const SUITES: &str = "evaluation.suites";
const DATA: &str = "evaluation.suite_data";
const TASKS: &str = "evaluation.suite_tasks";
const TOKENIZER: &str = "evaluation.tokenizer_file";

fn error(recipe: &Recipe, path: &str, message: String, help: &str) -> Box<Diagnostic> {
    let mut diagnostic = Diagnostic::error("bad-suite", recipe.span_of(path), message);
    diagnostic.help = vec![help.to_owned()];
    Box::new(diagnostic)
}

/// Suites of questions, for the commands of the core.
pub(crate) struct Suites;

impl extensions::Suites for Suites {
    fn resolve(
        &self,
        recipe: &mut Recipe,
        sources: &Sources,
    ) -> Result<Option<Box<dyn RecipeSuites>>, Box<Diagnostic>> {
        let resolved = resolve(recipe, sources)?;
        Ok(resolved.map(|suites| Box::new(Resolved(suites)) as Box<dyn RecipeSuites>))
    }

    fn measure(
        &self,
        experiment: &Experiment,
        documents: Option<&TextIndex>,
    ) -> Result<Option<Box<dyn Measure>>, Problem> {
        suite::run::for_experiment(experiment, documents)
    }

    fn published(&self, task: &str, shots: usize) -> Option<String> {
        let task = PUBLISHED.iter().find(|published| published.name == task)?;
        Some(Task { shots, ..task.clone() }.digest().to_string())
    }
}

/// The tasks of the published suite. A test of the suite reads it, so it always has some.
static PUBLISHED: LazyLock<Vec<Task>> = LazyLock::new(|| {
    Suite::read("release", suite::RELEASE).map_or(Vec::new(), |suite| suite.tasks)
});

struct Resolved(OfRecipe);

impl RecipeSuites for Resolved {
    fn check(&self, recipe: &Recipe, experiments: &[Experiment]) -> Option<Diagnostic> {
        check(&self.0, recipe, experiments)
    }
}

/// Refuses a list of tasks written by hand, and suites that differ between points of a sweep.
fn refuse_generated(recipe: &Recipe) -> Result<(), Box<Diagnostic>> {
    if recipe.written.contains_key(TASKS) {
        let message =
            format!("`{TASKS}` is written by `canonc build`, from the files of the suites");
        return Err(error(recipe, TASKS, message, "remove it"));
    }
    let is_swept = |path: &&&str| {
        recipe.axes.iter().any(|axis| axis.paths.iter().any(|swept| swept == **path))
    };
    match [SUITES, DATA, TASKS, TOKENIZER].iter().find(is_swept) {
        Some(path) => Err(error(
            recipe,
            path,
            format!("`{path}` cannot be swept"),
            "write it under [evaluation]; all points are measured alike",
        )),
        None => Ok(()),
    }
}

/// Keeps a path that a lock can hold: another one could not be read back.
fn held(
    recipe: &Recipe,
    path: &str,
    given: &str,
    value: FieldValue,
) -> Result<FieldValue, Box<Diagnostic>> {
    let reason = match field::find(path).map(|def| lock::holds(def, &value)) {
        Some(Err(reason)) => reason,
        Some(Ok(())) | None => return Ok(value),
    };
    let message = format!(
        "{given} is {value} from the folder that canonc runs in, which a lock cannot hold: {reason}"
    );
    let help = "rename the file or folder, or run canonc in a folder nearer to it";
    Err(error(recipe, path, message, help))
}

/// Resolves the suites of a recipe, or says what is wrong with them; `None` if it has none.
fn resolve(recipe: &mut Recipe, sources: &Sources) -> Result<Option<OfRecipe>, Box<Diagnostic>> {
    let name = sources.name(recipe.file).to_owned();
    refuse_generated(recipe)?;
    let suites = match recipe.written.get(SUITES) {
        Some(FieldValue::List(suites)) if !suites.is_empty() => suites.clone(),
        Some(_) | None => return Ok(None),
    };
    let from = |recipe: &Recipe, path: &str, text: &str| {
        import_target(&name, text).ok_or_else(|| {
            error(
                recipe,
                path,
                format!("`{text}` is not a path from the recipe's folder"),
                "use `/` and `..`",
            )
        })
    };
    let mut paths = Vec::new();
    for suite in suites.iter().map(FieldValue::plain) {
        let path = from(recipe, SUITES, &suite)?;
        paths.push(if suite == RELEASE && !Path::new(&path).exists() { suite } else { path });
    }
    let mut written = Fields::new();
    for (path, neutral) in [(DATA, "beside"), (TOKENIZER, "none")] {
        let Some(given) = recipe.written.get(path).filter(|given| given.plain() != neutral) else {
            continue;
        };
        let target = from(recipe, path, &given.plain())?;
        if target == neutral {
            let message = format!("{given} is `{neutral}` from here, a word with another meaning");
            return Err(error(recipe, path, message, "rename it"));
        }
        let target = held(recipe, path, &given.to_string(), FieldValue::text(target))?;
        written.insert(path.to_owned(), target);
    }
    let data = written.get(DATA).map(FieldValue::plain);
    let read = OfRecipe::read(&paths, data.as_deref())
        .map_err(|problem| error(recipe, SUITES, problem.located(), &problem.help))?;
    let texts =
        |all: Vec<String>| FieldValue::List(all.into_iter().map(FieldValue::text).collect());
    let given = FieldValue::List(suites).to_string();
    written.insert(SUITES.to_owned(), held(recipe, SUITES, &given, texts(paths))?);
    written.insert(TASKS.to_owned(), texts(read.tasks().iter().map(ToString::to_string).collect()));
    recipe.written.extend(written);
    Ok(Some(read))
}

/// What is wrong with suites that an experiment of the recipe cannot be asked, as far as no tokenizer is needed.
fn check(suites: &OfRecipe, recipe: &Recipe, made: &[Experiment]) -> Option<Diagnostic> {
    let (task, TokenError { message, help }) =
        made.iter().find_map(|made| suites.without_room(made.data.seq_len))?;
    let message = format!("task `{task}`: {message}");
    let mut found = Diagnostic::error("bad-suite", recipe.span_of(SUITES), message);
    found.help = vec![help.to_owned()];
    Some(found)
}
