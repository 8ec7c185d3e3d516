//! `canonc eval`, the part without tensors: which tasks, which files, what is printed.
//!
//! In: a suite's name, the user's folder of questions. Out: the requests of each task. Must stay true: all questions
//! are read and all requests are made before a model is loaded, so a mistake in a file is found at once.

use std::path::{Path, PathBuf};

use suite::SuiteError;
use suite::questions::Questions;
use suite::request::{Request, requests};
use suite::suite::{Suite, Task};

use crate::args::EvalArgs;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::files;
use crate::output;
use crate::tensors::{Tensors, Work};

/// The suite of the 14 tasks that the release reports.
const RELEASE: (&str, &str) = ("release", suite::RELEASE);

/// A task with its questions, ready to be asked.
#[derive(Debug)]
pub struct Asked {
    pub task: Task,
    pub questions: blake3::Hash,
    /// Digest of the file of examples, if the task has examples.
    pub examples: Option<blake3::Hash>,
    pub requests: Vec<Request>,
}

pub fn eval(args: &EvalArgs, tensors: &dyn Tensors) -> Outcome {
    if !args.list {
        return tensors.carry_out(Work::Eval(args));
    }
    let (_, tasks) = chosen(args)?;
    let mut rows =
        vec![["task", "kind", "questions", "examples", "metrics"].map(str::to_owned).to_vec()];
    for task in &tasks {
        let metrics: Vec<&str> = task.metrics.iter().map(|metric| metric.word()).collect();
        let examples = match (task.shots, &task.shots_file) {
            (0, _) => "none".to_owned(),
            (count, Some(file)) => format!("{count} of {file}"),
            (count, None) => format!("{count} of the same file"),
        };
        let kind = task.kind.word().to_owned();
        rows.push(vec![task.name.clone(), kind, task.file.clone(), examples, metrics.join(", ")]);
    }
    output::data(&output::table(&rows, &[], 0))?;
    Ok(Exit::Fine)
}

/// The suite's tasks that are asked for, and the folder of questions.
fn chosen(args: &EvalArgs) -> Result<(PathBuf, Vec<Task>), Failure> {
    let path = &args.suite;
    let built_in = path.as_os_str() == RELEASE.0 && !path.exists();
    let (place, text) = match built_in {
        true => (RELEASE.0.to_owned(), RELEASE.1.to_owned()),
        false => {
            let text = disk::read_text(path, disk::SMALL).map_err(|error| {
                files::missing(path, &error).help("or use the built-in suite `release`")
            })?;
            (shown(path), text)
        }
    };
    let Suite { tasks, .. } = Suite::read(&place, &text).map_err(failure)?;
    let known: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
    if let Some(none) = args.task.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Failure::bad_input(format!("`{place}` has no task `{none}`"))
            .help(format!("it has {}", known.join(", "))));
    }
    let folder = match &args.data {
        Some(folder) => folder.clone(),
        None if built_in => PathBuf::new(),
        None => path.parent().unwrap_or(Path::new("")).to_owned(),
    };
    if built_in && args.data.is_none() && !args.list {
        return Err(Failure::bad_input("the suite `release` needs your own copies of the questions")
            .help("name their folder with --data DIR; `canonc eval --suite release --list` lists the files"));
    }
    let chosen =
        tasks.into_iter().filter(|task| args.task.is_empty() || args.task.contains(&task.name));
    let shots = |mut task: Task| {
        if let Some(shots) = args.shots {
            task.shots = shots;
        }
        task
    };
    Ok((folder, chosen.map(shots).collect()))
}

/// All requests of the tasks that are asked for.
pub fn asked(args: &EvalArgs) -> Result<Vec<Asked>, Failure> {
    let (folder, tasks) = chosen(args)?;
    let mut all = Vec::new();
    for task in tasks {
        if task.shots > 0 && task.kind == suite::suite::Kind::Document {
            return Err(Failure::bad_input(format!(
                "--shots {} is given, but `{}` scores documents, which have no examples",
                task.shots, task.name
            ))
            .help("leave the task out with --task, or remove --shots"));
        }
        let questions = Questions::read(&folder.join(&task.file)).map_err(failure)?;
        let own = match &task.shots_file {
            Some(file) if task.shots > 0 => {
                Some(Questions::read(&folder.join(file)).map_err(failure)?)
            }
            Some(_) | None => None,
        };
        let examples = own.as_ref().unwrap_or(&questions);
        let requests = requests(&task, &questions, examples, args.limit).map_err(failure)?;
        let examples = (task.shots > 0).then_some(examples.digest);
        all.push(Asked { questions: questions.digest, examples, requests, task });
    }
    Ok(all)
}

/// An error of a suite or of questions on the command line.
pub fn failure(error: SuiteError) -> Failure {
    let SuiteError { place, message, help } = error;
    Failure::bad_input(message).at(place).help(help)
}
