//! The suite `task`: what a lock's own evaluations measure, by the code that evaluates during training.

use std::path::Path;

use compiler::plan::Precision;
use lab::experiment::Experiment;
use lab::field::{FieldValue, Fields};
use records::job::Job;
use records::run::experiment_from_text;
use report::compare::{Unit, scores_of, unit};
use runtime::evaluate::Measurer;
use runtime::execute::{Machine, Paths};
use runtime::state::State;
use runtime::weights::Weights;

use super::{Done, Metric};
use crate::forward::precision;
use cli::fail::{Failure, shown};
use cli::{documents, workspace};
use commands::eval::{self, EvalArgs};

/// A lock's metrics.
pub(super) struct Measured {
    pub(super) tasks: Vec<Done>,
    pub(super) paths: Paths,
}

pub(super) fn measure(
    args: &EvalArgs,
    word: &Path,
    weights: &Weights,
    machine: Machine,
) -> Result<Measured, Failure> {
    let path = workspace::lock_path(word)?;
    let text = workspace::read_lock_text(&path)?;
    let locked = experiment_from_text(&shown(&path), &text)?;
    let set = eval::set(&args.set)?;
    let lengths: Vec<Option<usize>> = match args.lengths.is_empty() {
        true => vec![None],
        false => args.lengths.iter().copied().map(Some).collect(),
    };
    let mut measured = Measured { tasks: Vec::new(), paths: Paths::default() };
    for length in lengths {
        let mut fields: Fields = set.clone();
        // Suites are asked by their own name.
        for path in ["evaluation.suites", "evaluation.suite_tasks"] {
            if locked.value(path).is_some() {
                fields.insert(path.to_owned(), FieldValue::List(Vec::new()));
            }
        }
        for (path, neutral) in
            [("evaluation.suite_data", "beside"), ("evaluation.tokenizer_file", "none")]
        {
            if locked.value(path).is_some() {
                fields.insert(path.to_owned(), FieldValue::text(neutral));
            }
        }
        if let Some(dtype) = args.machine.dtype {
            let policy = match precision(dtype) {
                Precision::F32 => "f32",
                Precision::Bf16 => "bf16",
            };
            fields.insert("precision.policy".to_owned(), FieldValue::text(policy));
        }
        if let Some(length) = length {
            let length = i64::try_from(length).unwrap_or(i64::MAX);
            fields.insert("data.seq_len".to_owned(), FieldValue::Int(length));
        }
        let experiment = locked.with(locked.name.clone(), &fields).map_err(|problems| {
            let mut problems = problems.into_iter();
            let first = problems.next();
            let message = first.as_ref().map_or_else(String::new, |it| it.message.clone());
            Failure::bad_input(message).help(first.map_or_else(String::new, |it| it.help))
        })?;
        measured.one(args, &experiment, length, weights, machine)?;
    }
    Ok(measured)
}

impl Measured {
    fn one(
        &mut self,
        args: &EvalArgs,
        experiment: &Experiment,
        length: Option<usize>,
        weights: &Weights,
        machine: Machine,
    ) -> Result<(), Failure> {
        let documents = documents::read(experiment, args.data.as_deref())?;
        let mut job = Job::new(experiment, "", documents)?;
        let broken = |error: runtime::execute::ExecuteError| Failure::machine(error.to_string());
        let measurer = Measurer::new(&job, machine).map_err(broken)?;
        let weights = weights.on(machine.device, machine.kind).map_err(broken)?;
        let state = State::to_measure(&job, weights);
        let evaluation = measurer.measure(&mut job, &state)?;
        self.paths.merge(&measurer.paths());
        let task = experiment.value("data.task").map_or_else(String::new, FieldValue::plain);
        let name = length.map_or_else(|| task.clone(), |length| format!("{task}@{length}"));
        let scores = scores_of(&evaluation);
        if scores.is_empty() {
            let most = experiment.data.seq_len;
            let message =
                format!("nothing is measured: no answer of `{task}` ends within {most} tokens");
            return Err(
                Failure::bad_input(message).help("give more tokens, such as `--lengths 512`")
            );
        }
        let asked = evaluation.questions.as_ref().map(|questions| questions.asked.to_string());
        let settings = eval::settings(experiment);
        let count = match evaluation.exact().of {
            0 => experiment.evaluation.windows,
            answers => answers,
        };
        let metric = |(metric, value, each): (String, f64, Vec<f64>)| {
            let is_share = unit(&metric) == Unit::Share;
            let is_exact = is_share && metric.starts_with("exact_match");
            let stderr = if is_exact { tasks::metric::stderr(value, &each) } else { None };
            Metric { metric, value, stderr, each, is_share }
        };
        self.tasks.push(Done {
            name,
            kind: "task",
            questions: asked.unwrap_or_else(|| settings.clone()),
            task: settings,
            examples: None,
            shots: 0,
            count: usize::try_from(count).unwrap_or(usize::MAX),
            metrics: scores.into_iter().map(metric).collect(),
        });
        Ok(())
    }
}
