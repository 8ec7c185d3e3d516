//! `canonc eval`, the part without tensors: which tasks, which files, what is printed.
//!
//! In: a suite's name, the user's folder of questions. Out: the requests of each task. Must stay true: all questions
//! are read and all requests are made before a model is loaded, so a mistake in a file is found at once.

use std::path::PathBuf;

use suite::SuiteError;
use suite::asked::{Asked, Opened, open};
use suite::suite::Task;

use crate::args::EvalArgs;
use crate::fail::{Exit, Failure, Outcome};
use crate::output;
use crate::tensors::{Tensors, Work};

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
    let Opened { place, tasks, folder } =
        open(&args.suite, args.data.as_deref()).map_err(failure)?;
    let known: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
    if let Some(none) = args.task.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Failure::bad_input(format!("`{place}` has no task `{none}`"))
            .help(format!("it has {}", known.join(", "))));
    }
    let Some(folder) = folder.or_else(|| args.list.then(PathBuf::new)) else {
        return Err(Failure::bad_input("the suite `release` needs your own copies of the questions")
            .help("name their folder with --data DIR; `canonc eval --suite release --list` lists the files"));
    };
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
        all.push(Asked::read(task, &folder, args.limit).map_err(failure)?);
    }
    Ok(all)
}

/// An error of a suite or of questions on the command line.
pub fn failure(error: SuiteError) -> Failure {
    let SuiteError { place, message, help } = error;
    Failure::bad_input(message).at(place).help(help)
}
