//! `canonc eval`, the part without tensors: which tasks, which files, what is printed.
//!
//! In: a suite's name, the user's folder of questions. Out: the requests of each task. Must stay true: all questions
//! are read and all requests are made before a model is loaded, so a mistake in a file is found at once.

use std::path::PathBuf;

use lab::experiment::Experiment;
use lab::field::{self, Fields};
use suite::SuiteError;
use suite::asked::{Asked, Opened, open};
use suite::encode::Encoder;
use suite::needle::{NEEDLE, Needles};
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

/// What `--suite` names.
#[derive(Debug)]
pub enum Chosen {
    /// Tasks of a suite, with their questions.
    Suite(Vec<Asked>),
    /// Generated questions.
    Needle(Needles),
    /// The metrics of the lock.
    Own,
}

/// The suite of a lock's own metrics.
const OWN: &str = "task";

impl Chosen {
    /// Reads the suite, and refuses options that it does not use.
    pub fn of(args: &EvalArgs) -> Result<Chosen, Failure> {
        let named = |name: &str| args.suite.as_os_str() == name && !args.suite.exists();
        let (needle, own) = (named(NEEDLE), named(OWN));
        let for_needle = [
            ("--depths", !args.depths.is_empty()),
            ("--count", args.count.is_some()),
            ("--seed", args.seed.is_some()),
        ];
        let for_suites = [
            ("--task", !args.task.is_empty()),
            ("--shots", args.shots.is_some()),
            ("--limit", args.limit.is_some()),
        ];
        let unused = |options: &[(&'static str, bool)]| {
            options.iter().find(|(_, given)| *given).map(|(option, _)| *option)
        };
        let idle = match (needle, own) {
            (true, _) => unused(&for_suites)
                .or(unused(&[("--set", !args.set.is_empty()), ("--data", args.data.is_some())])),
            (_, true) => unused(&for_suites).or(unused(&for_needle)).or(unused(&[
                ("--no-bos", args.no_bos),
                ("--max-length", args.max_length.is_some()),
            ])),
            _ => unused(&for_needle).or(unused(&[("--set", !args.set.is_empty())])),
        };
        if let Some(option) = idle {
            let message = format!("{option} has no effect with --suite {}", args.suite.display());
            return Err(Failure::bad_input(message).help(format!("remove {option}")));
        }
        if own {
            refuse_idle_fields(args)?;
        }
        Ok(match (needle, own) {
            (true, _) => Chosen::Needle(Needles {
                seed: args.seed.unwrap_or(0),
                lengths: Vec::new(),
                depths: match args.depths.is_empty() {
                    true => vec![0, 25, 50, 75, 100],
                    false => args.depths.clone(),
                },
                count: args.count.unwrap_or(10),
            }),
            (_, true) => Chosen::Own,
            _ => Chosen::Suite(asked(args)?),
        })
    }

    /// Each task to ask, with its name in results and the longest input.
    pub fn rounds(
        self,
        args: &EvalArgs,
        lengths: &[usize],
        encoder: &dyn Encoder,
    ) -> Result<Vec<(String, usize, Asked)>, Failure> {
        match self {
            Chosen::Own => Ok(Vec::new()),
            Chosen::Needle(needles) => {
                let needles = Needles { lengths: lengths.to_vec(), ..needles };
                let all = needles.asked(encoder).map_err(failure)?.into_iter();
                Ok(all.map(|(length, asked)| (asked.task.name.clone(), length, asked)).collect())
            }
            Chosen::Suite(all) => {
                let mut rounds = Vec::new();
                for length in lengths {
                    for asked in &all {
                        let name = match args.lengths.is_empty() {
                            true => asked.task.name.clone(),
                            false => format!("{}@{length}", asked.task.name),
                        };
                        rounds.push((name, *length, asked.clone()));
                    }
                }
                Ok(rounds)
            }
        }
    }
}

/// Refuses fields that `--suite task` does not use: suites are asked by their own name.
fn refuse_idle_fields(args: &EvalArgs) -> Result<(), Failure> {
    let of_suites = [
        "evaluation.suites",
        "evaluation.suite_tasks",
        "evaluation.suite_data",
        "evaluation.tokenizer_file",
    ];
    for text in &args.set {
        let path = text.split_once('=').map_or(text.as_str(), |(path, _)| path);
        let (with, help) = match path {
            _ if of_suites.contains(&path) => {
                ("--suite task", "remove it; `--suite FILE` asks the tasks of a suite")
            }
            "data.seq_len" if !args.lengths.is_empty() => ("--lengths", "remove one of the two"),
            _ => continue,
        };
        let message = format!("--set {path} has no effect with {with}");
        return Err(Failure::bad_input(message).help(help));
    }
    Ok(())
}

/// The fields that `--set` gives.
pub fn set(given: &[String]) -> Result<Fields, Failure> {
    let mut fields = Fields::new();
    for text in given {
        let wrong = |why: String, help: &str| {
            Err(Failure::bad_input(format!("--set {text}: {why}")).help(help))
        };
        let Some((path, value)) = text.split_once('=') else {
            return wrong("it has no `=`".to_owned(), "write FIELD=VALUE, such as data.depo.K=8");
        };
        let allowed = |path: &str| {
            path.starts_with("data.") || path.starts_with("evaluation.") || path == "seeds.eval"
        };
        let Some(def) = field::find(path).filter(|def| allowed(def.path) && def.is_writable())
        else {
            let inside = field::find(&format!("data.{path}")).map(|def| def.path);
            let near = inside
                .or_else(|| field::suggest(path))
                .map_or_else(String::new, |near| format!("did you mean {near}? "));
            let help =
                format!("{near}recipes/README.md lists the fields of [data] and [evaluation]");
            return wrong(format!("`{path}` is not a field of the data or the evaluation"), &help);
        };
        match def.kind.parse(value) {
            Ok(value) => drop(fields.insert(path.to_owned(), value)),
            Err(why) => {
                let help = match def.kind.parse(&format!("\"{value}\"")) {
                    Ok(_) => format!("write it as in a recipe: --set '{path}=\"{value}\"'"),
                    Err(_) => "write the value as in a recipe".to_owned(),
                };
                return wrong(why, &help);
            }
        }
    }
    Ok(fields)
}

/// A digest of everything besides the weights that decides a lock's own metrics.
pub fn settings(experiment: &Experiment) -> String {
    let (train, eval) = (experiment.train_text(), experiment.eval_text());
    let data = train.lines().filter(|line| line.starts_with("data."));
    let lines: Vec<&str> =
        data.chain(eval.lines().filter(|line| !line.starts_with("train"))).collect();
    compiler::digest::Digest::of("canonc.eval.task.v1", &lines.join("\n")).to_string()
}

/// All requests of the tasks that are asked for.
fn asked(args: &EvalArgs) -> Result<Vec<Asked>, Failure> {
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
