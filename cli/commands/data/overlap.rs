//! `canonc data overlap`: how much of an experiment's evaluation data also occurs in its training data.

use std::path::{Path, PathBuf};

use clap::Args;
use lab::experiment::Experiment;
use lab::lock::Lock;
use records::overlap::{self, Overlap, Share, windows_of};
use records::progress::rounded;
use serde::Serialize;

use super::screen::Screen;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::{build, output, workspace};

/// Count the evaluation questions of a recipe that also occur in its training data
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data overlap recipes/cpu_mano.toml
  canonc data overlap lockfiles/demo_llama.lock --json

A question is the whole text before an answer in its sample, token by token: Depo's edges and questions so far,
Brevo's graph, Mano's expression. It counts as shown if a training window contains it with its whole answer. The
held-out questions are those of one evaluation. Every training window is generated once, so a published recipe takes
minutes to hours. For a sweep, points with the same windows are inspected once.

Schema of --json, one object on standard output:
  schema       \"canonc.data.overlap.v1\"
  experiments  each:
    name, task
    training   {windows, questions}
    held_out   {questions, shown}; `distinct` is the same with equal questions counted once
    levels     each {level, questions, shown}; the meaning of a level depends on the task (hops, depth, operations)
    in_windows {questions, shown} in the evaluation windows, used for eval_loss and token_accuracy; the same as
               held_out except for Brevo, where the model writes answers to other questions")]
pub(super) struct OverlapArgs {
    /// A recipe, or the lock of an experiment
    #[arg(value_name = "RECIPE|LOCK")]
    pub file: PathBuf,
    /// Print JSON (`--help` shows the schema)
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    experiments: Vec<Of>,
}

/// The overlap of one experiment.
#[derive(Serialize)]
struct Of {
    name: String,
    task: String,
    training: Training,
    held_out: Shares,
    distinct: Shares,
    levels: Vec<Level>,
    /// Questions in the evaluation windows, which losses and token accuracy are measured on.
    in_windows: Shares,
}

#[derive(Serialize)]
struct Training {
    windows: u64,
    questions: u64,
}

#[derive(PartialEq, Serialize)]
struct Shares {
    questions: u64,
    shown: u64,
}

#[derive(Serialize)]
struct Level {
    level: u32,
    questions: u64,
    shown: u64,
}

pub(super) fn overlap(args: &OverlapArgs) -> Outcome {
    let experiments = experiments(&args.file)?;
    let mut all = Vec::new();
    for experiment in &experiments {
        let of = count_overlap(experiment)?;
        if !args.json {
            output::data(&describe(&of))?;
        }
        all.push(of);
    }
    if args.json {
        output::json(&Document { schema: "canonc.data.overlap.v1", experiments: all })?;
    }
    Ok(Exit::Fine)
}

/// The experiments of a recipe or a lock; those with the same windows are kept once.
fn experiments(file: &Path) -> Result<Vec<Experiment>, Failure> {
    let path = workspace::lock_path(file)?;
    let locks = match workspace::is_lock(&path) {
        true => vec![workspace::read_lock(&path)?.0],
        false => build::built(&mut build::Known::default(), file)?,
    };
    let mut experiments: Vec<Experiment> = Vec::new();
    for lock in locks {
        match lock {
            Lock::Experiment(experiment) => {
                if !experiments.iter().any(|other| windows_of(other) == windows_of(&experiment)) {
                    experiments.push(experiment);
                }
            }
            Lock::Arch(_) => {
                return Err(Failure::bad_input(format!("`{}` trains nothing", shown(file)))
                    .help("name a recipe or its lock, such as recipes/cpu_mano.toml"));
            }
            Lock::Comparison(_) => {
                return Err(Failure::bad_input(format!("`{}` is a comparison", shown(file)))
                    .help("name the recipe of one of its arms"));
            }
        }
    }
    Ok(experiments)
}

fn count_overlap(experiment: &Experiment) -> Result<Of, Failure> {
    let mut screen: Option<Screen> = None;
    let found = overlap::overlap(experiment, |done, total| {
        screen.get_or_insert_with(|| Screen::new(total)).show(done, |seconds| {
            let rate = rounded(done as f64 / seconds.max(1e-9));
            format!("{} windows  {rate} windows/s", output::grouped(done))
        });
    });
    if let Some(screen) = &mut screen {
        screen.clear();
    }
    let Overlap { windows, trained, of_windows: _, all, distinct, levels, in_windows } = found?;
    let shares = |Share { questions, shown }| Shares { questions, shown };
    Ok(Of {
        name: experiment.name.clone(),
        task: experiment.value("data.task").map(|task| task.plain()).unwrap_or_default(),
        training: Training { windows, questions: trained },
        held_out: shares(all),
        distinct: shares(distinct),
        levels: levels
            .into_iter()
            .map(|(level, Share { questions, shown })| Level { level, questions, shown })
            .collect(),
        in_windows: shares(in_windows),
    })
}

fn describe(of: &Of) -> String {
    let Of { name, task, training, held_out, distinct, levels, in_windows } = of;
    let share = |shown: u64, questions: u64| match questions {
        0 => "none".to_owned(),
        _ => format!("{:.1}%", 100.0 * shown as f64 / questions as f64),
    };
    let mut text = format!(
        "{name}\ntask       {task}\ntraining   {} in {}\nheld out   {}, {} shown in training word for word ({})\n\
         distinct   {}, {} shown ({})\n",
        output::counted(training.questions, "question"),
        output::counted(training.windows, "window"),
        output::counted(held_out.questions, "question"),
        output::grouped(held_out.shown),
        share(held_out.shown, held_out.questions),
        output::counted(distinct.questions, "question"),
        output::grouped(distinct.shown),
        share(distinct.shown, distinct.questions),
    );
    for Level { level, questions, shown } in levels {
        text += &format!(
            "level {level:<4} {}, {} shown ({})\n",
            output::counted(*questions, "question"),
            output::grouped(*shown),
            share(*shown, *questions)
        );
    }
    if in_windows != held_out {
        text += &format!(
            "windows    {}, {} shown ({}): for eval_loss and token_accuracy\n",
            output::counted(in_windows.questions, "question"),
            output::grouped(in_windows.shown),
            share(in_windows.shown, in_windows.questions)
        );
    }
    text
}
