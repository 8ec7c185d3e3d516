//! The job that a lock describes, without tensors: plans, windows, rates and cadences, ready to run or check.
//!
//! Every value comes from the experiment, with no defaults here. Documents that differ from the locked ones are refused.

mod estimate;
mod repeated;

use std::sync::Arc;

use compiler::digest::Digest;
use compiler::graph::Graph;
use compiler::plan::{Loss, ParamUpdate, Plan, Stream, TrainPlan};
use compiler::plans;
use dsl::Problem;
use lab::experiment::{DataSource, Device, Digests, Experiment, Schedule};
use lab::field::SuiteTask;

use crate::checkpoint::{self, Kept, Slot};
use crate::initial::NamedWeights;
use crate::measure::Measure;
use crate::run::{KernelNames, digest_of};
use crate::weights::WeightSource;
use crate::{dropout, init, schedule};
use data::batch::Batch;
use data::text::index::TextIndex;
use data::text::{self, TextWindows};
use data::window::{self, Order, TaskWindows};
use data::{Split, Windows};
use tasks::metric;
use tasks::sample::Mode;

pub use estimate::{Estimate, estimate, fits};
pub use repeated::repeated;

/// Tag of a plan text's digest, in attestations.
pub const PLAN_TAG: &str = "canonc.plan.v1";

/// Everything that determines a run, and the cadence of its checkpoints, evaluations and logs.
#[derive(Debug)]
pub struct Job {
    /// The lock's name.
    pub name: String,
    /// The lock's text.
    pub lock_text: String,
    /// Digests of the lock's sections.
    pub digests: Digests,
    /// The graph of the lock's arch.
    pub graph: Graph,
    /// The plans of a training step.
    pub plans: TrainPlan,
    /// By parameter, how it is updated; empty if all have the plain update.
    pub updates: Vec<ParamUpdate>,
    /// The plan that scores evaluation windows.
    pub evaluation: Plan,
    /// The plan that writes answers in evaluations, if the task needs it.
    pub writing: Option<Plan>,
    /// Seed of the initial parameters that are drawn.
    pub init_seed: u64,
    /// The weights to begin from; `None` if all are drawn.
    pub weights: Option<NamedWeights>,
    /// Key of the draws of dropout.
    pub dropout_key: u64,
    /// Number of optimiser steps.
    pub steps: u64,
    /// Micro-batches in one step.
    pub micro_batches: u64,
    /// Micro-batches that are added in sequence, before the tree.
    pub in_sequence: u64,
    /// Number of windows in one micro-batch.
    pub rows: u64,
    /// Inputs in one window.
    pub seq_len: u64,
    /// Base learning rate, which the schedule scales.
    pub lr: f64,
    /// Shape of the learning rate over the run.
    pub schedule: Schedule<f64>,
    /// Training windows.
    pub train: Windows,
    /// Windows of evaluations.
    pub held_out: Windows,
    /// Number of windows in one evaluation.
    pub evaluation_windows: u64,
    /// Number of samples generated in one evaluation, if the task needs it.
    pub evaluation_samples: u64,
    /// Metrics that evaluations report.
    pub metrics: Metrics,
    /// The tasks of the lock's suites.
    pub tasks: Vec<SuiteTask>,
    /// Their questions; a job that only checks a run does not need them.
    pub measure: Option<Box<dyn Measure>>,
    /// The plans that answer the suites, if there are any.
    pub answering: Option<AnsweringPlans>,
    /// When to save, evaluate and log.
    pub cadence: Cadence,
    /// The kind of device that the lock asks for.
    pub device: Device,
}

/// Cadence of everything except training. It does not affect weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cadence {
    /// Steps between checkpoints; 0 for the last step only.
    pub checkpoint: u64,
    /// The checkpoints to keep.
    pub keep: Kept,
    /// Steps between evaluations; 0 for the last step only.
    pub evaluation: u64,
    /// Steps between lines of progress.
    pub log: u64,
    /// Steps between checks of ranks by their neighbours; 0 for never.
    pub check: u64,
}

/// Metrics that evaluations report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Mean loss over counted targets.
    pub loss: bool,
    /// Token accuracy of answers.
    pub tokens: bool,
    /// Exact match of answers.
    pub answers: bool,
    /// Capo's knowledge.
    pub bits: bool,
    /// Lano: KL divergence from the true law of the next token.
    pub kl: bool,
    /// Lano: validity of the sentences that the model writes.
    pub validity: bool,
}

impl Metrics {
    fn from_experiment(experiment: &Experiment) -> Metrics {
        let reports =
            |name: &str| experiment.evaluation.metrics.iter().any(|metric| metric == name);
        Metrics {
            loss: reports(metric::EVAL_LOSS),
            tokens: reports(metric::TOKEN_ACCURACY),
            answers: reports(metric::EXACT_MATCH),
            bits: reports(metric::BITS),
            kl: reports(metric::KL),
            validity: reports(metric::VALIDITY),
        }
    }
}

impl Cadence {
    /// Whether a checkpoint is due after this step. The last step always saves one, whatever this returns.
    pub fn saves_after(&self, step: u64) -> bool {
        self.checkpoint > 0 && step.is_multiple_of(self.checkpoint)
    }

    /// Whether ranks check each other in this step.
    pub fn checks_in(&self, step: u64) -> bool {
        self.check > 0 && step.is_multiple_of(self.check)
    }

    /// Whether an evaluation is due after this step of a run with `last` steps.
    pub fn evaluates_after(&self, step: u64, last: u64) -> bool {
        evaluates_after(self.evaluation, step, last)
    }
}

/// Whether a run with this many steps between evaluations, and `last` steps, has one after this step.
pub fn evaluates_after(every: u64, step: u64, last: u64) -> bool {
    step == last || (every > 0 && step.is_multiple_of(every))
}

/// Number of evaluations of a run with this many steps between them, and `last` steps: the last step has one, too.
pub fn evaluations(every: u64, last: u64) -> u64 {
    let inner = last.saturating_sub(1).checked_div(every).unwrap_or(0);
    inner.saturating_add(1)
}

impl Job {
    /// Prepares a job. `documents` are required for text.
    pub fn new(
        experiment: &Experiment,
        lock_text: &str,
        documents: Option<Arc<TextIndex>>,
    ) -> Result<Job, Problem> {
        let Plans { training, evaluation: evaluation_plan, writing, answering } =
            plans(experiment)?;
        let budget = experiment.budget;
        let schedule = experiment.schedule.to_f64();
        schedule::check(&schedule, budget.steps).map_err(unscheduled)?;
        let (train, held_out) = windows(experiment, documents)?;
        let evaluation = &experiment.evaluation;
        Ok(Job {
            name: experiment.name.clone(),
            lock_text: lock_text.to_owned(),
            digests: experiment.digests,
            graph: experiment.arch.compiled.graph.clone(),
            plans: training,
            updates: experiment.updates.clone(),
            evaluation: evaluation_plan,
            writing,
            init_seed: experiment.seeds.init,
            weights: NamedWeights::of(experiment),
            dropout_key: dropout::key(experiment.dropout.unwrap_or(0), experiment.seeds.data),
            steps: budget.steps,
            micro_batches: experiment.batch.micro_batches,
            in_sequence: experiment.batch.in_sequence,
            rows: experiment.batch.sequences,
            seq_len: experiment.data.seq_len,
            lr: experiment.lr.to_f64(),
            schedule,
            train,
            held_out,
            evaluation_windows: if evaluation.metrics.is_empty() { 0 } else { evaluation.windows },
            evaluation_samples: evaluation.samples,
            metrics: Metrics::from_experiment(experiment),
            tasks: evaluation.tasks.clone(),
            measure: None,
            answering,
            cadence: Cadence {
                checkpoint: experiment.checkpoint.every,
                keep: Kept {
                    count: usize::try_from(experiment.checkpoint.keep).unwrap_or(usize::MAX),
                    every: experiment.checkpoint.every,
                    last: experiment.budget.steps,
                },
                evaluation: evaluation.every,
                log: experiment.log_every,
                check: experiment.check_every,
            },
            device: experiment.platform.device,
        })
    }

    /// The same job with the questions of its suites, which it needs to evaluate.
    pub fn with_measure(self, measure: Option<Box<dyn Measure>>) -> Job {
        Job { measure, ..self }
    }

    /// The same job with the file of the weights that it begins from, which it needs to begin.
    pub fn with_weights(self, source: Option<Box<dyn WeightSource>>) -> Job {
        let weights = self.weights.map(|weights| weights.with_source(source));
        Job { weights, ..self }
    }

    /// The digest of the initial weights.
    pub fn initial(&self) -> Result<Digest, Problem> {
        match &self.weights {
            Some(weights) => weights.initial(&self.graph, self.init_seed),
            None => init::digest(&self.graph, self.init_seed)
                .map_err(|error| Problem::input(error.to_string(), "correct the arch")),
        }
    }

    /// The lock's id.
    pub fn id(&self) -> Digest {
        self.digests.train
    }

    /// The learning rate of the step after `step` updates.
    pub fn rate(&self, step: u64) -> f64 {
        self.lr * schedule::factor(&self.schedule, step, self.steps)
    }

    /// The micro-batches of the step after `step` updates, in order.
    pub fn batches(&mut self, step: u64) -> Result<Vec<Batch>, Problem> {
        (0..self.micro_batches).map(|index| self.batch(step, index)).collect()
    }

    /// One micro-batch of the step after `step` updates.
    pub fn batch(&mut self, step: u64, index: u64) -> Result<Batch, Problem> {
        micro_batch(&mut self.train, (self.micro_batches, self.rows), step, index)
    }

    /// The number of the first window of a micro-batch of the step after `step` updates.
    pub fn first_window(&self, step: u64, index: u64) -> u64 {
        (step * self.micro_batches + index) * self.rows
    }

    /// Another reader of the same training windows, for a thread that reads ahead.
    pub fn reader(&self) -> BatchReader {
        BatchReader { train: self.train.clone(), counts: (self.micro_batches, self.rows) }
    }

    /// Every parameter's path, shape and number of moments, in parameter order.
    pub fn slots(&self) -> Vec<Slot> {
        checkpoint::slots(&self.graph, &self.updates)
    }

    /// The names of all kernels that each step executes, and of all kernels in any plan.
    pub fn kernel_names(&self) -> KernelNames {
        let others = others(&self.evaluation, self.writing.as_ref(), self.answering.as_ref());
        KernelNames::from_plans(&self.plans, others.into_iter().map(|(_, plan)| plan))
    }

    /// The executed plans as text: training, then evaluation, then writing answers, then answering suites.
    pub fn plan_text(&self) -> String {
        let others = others(&self.evaluation, self.writing.as_ref(), self.answering.as_ref());
        text_of(&self.plans, &others)
    }
}

/// A reader of a job's training windows.
#[derive(Clone, Debug)]
pub struct BatchReader {
    train: Windows,
    /// Micro-batches in one step, and windows in one micro-batch.
    counts: (u64, u64),
}

impl BatchReader {
    /// One micro-batch of the step after `step` updates.
    pub fn batch(&mut self, step: u64, index: u64) -> Result<Batch, Problem> {
        micro_batch(&mut self.train, self.counts, step, index)
    }
}

/// The number of a step's first window: steps from 0, of so many micro-batches of so many windows.
pub fn first_window(step: u64, (count, rows): (u64, u64)) -> Result<u64, Problem> {
    let first = step.checked_mul(count).and_then(|micro_batches| micro_batches.checked_mul(rows));
    first
        .filter(|first| first.checked_add(count.saturating_mul(rows)).is_some())
        .ok_or_else(|| input("this run has too many windows"))
}

fn micro_batch(
    train: &mut Windows,
    (count, rows): (u64, u64),
    step: u64,
    index: u64,
) -> Result<Batch, Problem> {
    let start = first_window(step, (count, rows))? + index * rows;
    match train {
        // The published order can only be walked, so a resumed run walks it again.
        Windows::Task(windows) => windows.replay_to(start),
        Windows::Text(_) => {}
    }
    let mut batch = Batch::default();
    train.fill(start..start + rows, &mut batch)?;
    Ok(batch)
}

/// The plan text of an experiment's job. It does not depend on the documents.
pub fn plan_text(experiment: &Experiment) -> Result<String, Problem> {
    let Plans { training, evaluation, writing, answering } = plans(experiment)?;
    Ok(text_of(&training, &others(&evaluation, writing.as_ref(), answering.as_ref())))
}

/// The learning rate as a function of the number of updates done.
pub fn rates(experiment: &Experiment) -> Result<impl Fn(u64) -> f64, Problem> {
    let steps = experiment.budget.steps;
    let lr = experiment.lr.to_f64();
    let schedule = experiment.schedule.to_f64();
    schedule::check(&schedule, steps).map_err(unscheduled)?;
    Ok(move |step| lr * schedule::factor(&schedule, step, steps))
}

/// The names of all kernels that an experiment's training executes, and of all kernels in any plan.
pub fn kernel_names(experiment: &Experiment) -> Result<KernelNames, Problem> {
    let Plans { training, evaluation, writing, answering } = plans(experiment)?;
    let others = others(&evaluation, writing.as_ref(), answering.as_ref());
    Ok(KernelNames::from_plans(&training, others.into_iter().map(|(_, plan)| plan)))
}

/// The plans that a job executes.
struct Plans {
    training: TrainPlan,
    evaluation: Plan,
    writing: Option<Plan>,
    answering: Option<AnsweringPlans>,
}

/// The plans that answer the requests of suites.
#[derive(Clone, Debug)]
pub struct AnsweringPlans {
    /// Measures how likely given tokens are, by cross-entropy.
    pub score: Plan,
    /// Writes answers, if a task needs it.
    pub write: Option<Plan>,
}

/// The plans besides training, each with its name.
fn others<'a>(
    evaluation: &'a Plan,
    writing: Option<&'a Plan>,
    answering: Option<&'a AnsweringPlans>,
) -> Vec<(&'static str, &'a Plan)> {
    let mut all = vec![("evaluate", evaluation)];
    all.extend(writing.map(|plan| ("write", plan)));
    if let Some(AnsweringPlans { score, write }) = answering {
        all.push(("score suites", score));
        all.extend(write.as_ref().map(|plan| ("write for suites", plan)));
    }
    all
}

fn plans(experiment: &Experiment) -> Result<Plans, Problem> {
    let graph = &experiment.arch.compiled.graph;
    let options = experiment.train_options();
    let stream = Stream { state_in: true, state_out: true };
    let writes = writes(experiment);
    let tasks = &experiment.evaluation.tasks;
    Ok(Plans {
        training: plans::train(graph, &options),
        evaluation: plans::evaluate(graph, options.loss, options.common),
        writing: writes.then(|| plans::forward(graph, stream, options.common)),
        answering: (!tasks.is_empty()).then(|| AnsweringPlans {
            score: plans::evaluate(graph, Loss::CROSS_ENTROPY, options.common),
            write: tasks
                .iter()
                .any(SuiteTask::writes)
                .then(|| plans::forward(graph, stream, options.common)),
        }),
    })
}

/// Whether the learning rate is above 0 at any step.
pub fn learns(experiment: &Experiment) -> bool {
    let (schedule, steps) = (experiment.schedule.to_f64(), experiment.budget.steps);
    let lr = experiment.lr.to_f64();
    // A schedule is 0 only where it begins or ends, so checking this many steps is enough.
    (0..steps.min(1000)).any(|step| lr * schedule::factor(&schedule, step, steps) != 0.0)
}

/// Whether a reported metric needs the decoder: Brevo's answers, Lano's laws or sentences.
fn writes(experiment: &Experiment) -> bool {
    let written = match &experiment.data.source {
        DataSource::Task { task, .. } => task.definition().written,
        DataSource::Text { .. } => &[],
    };
    experiment.evaluation.metrics.iter().any(|metric| written.contains(&metric.as_str()))
}

fn text_of(training: &TrainPlan, others: &[(&str, &Plan)]) -> String {
    let mut text = training.text();
    for (name, plan) in others {
        text += &format!("{name}\n{}", plan.text());
    }
    text
}

/// Training windows, and held-out windows. If nothing is measured, the held-out ones are never read.
pub fn windows(
    experiment: &Experiment,
    documents: Option<Arc<TextIndex>>,
) -> Result<(Windows, Windows), Problem> {
    let seq_len = usize::try_from(experiment.data.seq_len)
        .map_err(|_| input("a window is longer than this machine can address"))?;
    let seeds = experiment.seeds;
    match &experiment.data.source {
        DataSource::Task { task, order, ids } => {
            let mode = experiment.evaluation.mode.unwrap_or(Mode::Test);
            let train = window::Options {
                seq_len,
                seed: seeds.data,
                split: Split::Train,
                mode: Mode::Train,
                order: *order,
                loss_on: experiment.data.loss_on,
                ids: *ids,
            };
            let held_out = window::Options {
                seed: seeds.eval,
                split: Split::HeldOut,
                mode,
                order: Order::Indexed,
                ..train
            };
            let make = |options| TaskWindows::new(task.clone(), options).map(Windows::Task);
            Ok((make(train)?, make(held_out)?))
        }
        DataSource::Text { name, digest, tokenizer, .. } => {
            let index = the_documents(name, *digest, documents)?;
            if let Some(differs) = text::locked::mismatch(tokenizer, index.tokenizer()) {
                return Err(Problem::finding(
                    differs,
                    "prepare them with the lock's tokenizer, or build an experiment with theirs",
                ));
            }
            let make = |split, seed| {
                let options = text::locked::options(&experiment.data.source, seq_len, split, seed)
                    .ok_or_else(|| input("the task has no documents"))?;
                Ok::<_, Problem>(Windows::Text(TextWindows::new(index.clone(), options)?))
            };
            // If nothing is measured, no documents need to be held out, since these windows are not read.
            let measured = !experiment.evaluation.metrics.is_empty();
            let (split, seed) =
                if measured { (Split::HeldOut, seeds.eval) } else { (Split::Train, seeds.data) };
            Ok((make(Split::Train, seeds.data)?, make(split, seed)?))
        }
    }
}

/// The documents, if they are the locked ones.
fn the_documents(
    name: &str,
    digest: Option<Digest>,
    documents: Option<Arc<TextIndex>>,
) -> Result<Arc<TextIndex>, Problem> {
    let Some(digest) = digest else {
        return Err(Problem::input(
            format!("the lock is open: data.source \"{name}\" has no digest yet"),
            "close it: `canonc bind LOCK --data PATH`",
        ));
    };
    let Some(index) = documents else {
        return Err(Problem::input(
            format!("the lock trains on the documents \"{name}\", but none are given"),
            "name the prepared file with --data PATH",
        ));
    };
    check_identity(name, digest, &index)?;
    Ok(index)
}

/// Refuses documents that differ from those of the experiment's lock.
pub fn check_documents(experiment: &Experiment, index: &TextIndex) -> Result<(), Problem> {
    match &experiment.data.source {
        DataSource::Text { name, digest: Some(digest), .. } => check_identity(name, *digest, index),
        DataSource::Text { .. } | DataSource::Task { .. } => Ok(()),
    }
}

fn check_identity(name: &str, locked: Digest, index: &TextIndex) -> Result<(), Problem> {
    let digest = digest_of(*index.identity());
    if locked == digest_of(*index.documents_digest()) {
        return Err(Problem::finding(
            format!(
                "an earlier canonc bound the lock only to the documents \"{name}\", not to their tokens"
            ),
            "bind it again: `canonc bind LOCK --data PATH`",
        ));
    }
    if digest != locked {
        return Err(Problem::finding(
            format!(
                "the documents \"{name}\" are not those of the lock: their digest is {}, the lock has {}",
                digest.short(),
                locked.short()
            ),
            "name the prepared file that was bound with --data PATH, or restore it; other documents need another lock",
        ));
    }
    Ok(())
}

fn input(message: &str) -> Problem {
    Problem::input(message, "correct the recipe and build it again")
}

fn unscheduled(error: schedule::BadSchedule) -> Problem {
    Problem::input(error.message, error.help)
}
