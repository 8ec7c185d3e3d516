//! How many evaluation questions of an experiment also occur, word for word, in its own training windows.
//!
//! Window keys keep held-out windows apart, but a task with few questions repeats them anyway. Memory does not grow with the
//! length of training; a question counts as shown only if a training window holds all of it and its whole answer.

use std::collections::BTreeMap;

use compiler::digest::Digest;
use dsl::Problem;
use lab::experiment::{DataSource, Experiment};

use crate::job::Job;
use data::Windows;
use data::window::{Asked, TaskWindows};
use tasks::task::{InTraining, names_where};

/// Number of questions, and how many of them occur in training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Number of questions.
    pub questions: u64,
    /// Number of those that occur in training.
    pub shown: u64,
}

impl Share {
    fn add(&mut self, times: u64, shown: bool) {
        self.questions += times;
        self.shown += if shown { times } else { 0 };
    }
}

/// The overlap of evaluation and training.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlap {
    /// Number of training windows searched, from the first one on.
    pub windows: u64,
    /// Number of questions with answers in those training windows.
    pub trained: u64,
    /// Number of windows in the whole training.
    pub of_windows: u64,
    /// Questions of one evaluation with scored answers, including repeated ones.
    pub all: Share,
    /// Different questions of one evaluation.
    pub distinct: Share,
    /// Questions of one evaluation by level.
    pub levels: BTreeMap<u32, Share>,
    /// Questions in the evaluation windows, which losses and token accuracy are measured on. Only where a model writes
    /// its answers are these not the same as `all`.
    pub in_windows: Share,
}

/// One held-out question.
struct Held {
    level: u32,
    times: u64,
    shown: bool,
}

/// Digest of everything that determines the windows for training and evaluation. Experiments with equal digests have
/// equal overlaps.
pub fn windows_of(experiment: &Experiment) -> Digest {
    let paths = [
        "data.task_digest",
        "data.seq_len",
        "data.order",
        "data.ids",
        "seeds.data",
        "seeds.eval",
        "batch.sequences",
        "batch.micro_batches",
        "budget.steps",
        "evaluation.mode",
        "evaluation.windows",
        "evaluation.samples",
    ];
    let line = |path: &str| {
        let value = experiment.value(path).map_or_else(String::new, ToString::to_string);
        format!("{path} = {value}")
    };
    Digest::of("canonc.overlap.v1", &paths.map(line).join("\n"))
}

/// Calls `progress` with the number of training windows done and their total.
pub fn overlap(
    experiment: &Experiment,
    progress: impl FnMut(u64, u64),
) -> Result<Overlap, Problem> {
    overlap_of_tokens(experiment, u64::MAX, progress)
}

/// Like [`overlap`], over at most this many tokens of training windows. Then the true overlap may be larger.
pub fn overlap_of_tokens(
    experiment: &Experiment,
    most: u64,
    mut progress: impl FnMut(u64, u64),
) -> Result<Overlap, Problem> {
    let definition = match &experiment.data.source {
        DataSource::Text { .. } => return Err(no_questions("documents have")),
        DataSource::Task { task, .. } => task.definition(),
    };
    if definition.in_training != InTraining::ByChance {
        return Err(no_questions(&format!("{} has", definition.name)));
    }
    let mut job = Job::new(experiment, "", None)?;
    let of_windows = job.steps.saturating_mul(job.micro_batches).saturating_mul(job.rows);
    let total = of_windows.min(most / job.seq_len.max(1));
    let (Windows::Task(trained), Windows::Task(held_out)) = (&mut job.train, &mut job.held_out)
    else {
        return Err(no_questions("documents have"));
    };
    let mut held = questions(held_out, Asked::InWindow, job.evaluation_windows);
    let mut in_windows = BTreeMap::new();
    if definition.writes_answers() {
        in_windows = held;
        held = questions(held_out, Asked::First, job.evaluation_samples);
    }
    let mut overlap = Overlap { windows: total, of_windows, ..Overlap::default() };
    for number in 0..total {
        trained.questions(number, Asked::InWindow, |_, digest| {
            overlap.trained += 1;
            for held in [&mut held, &mut in_windows] {
                if let Some(question) = held.get_mut(&digest) {
                    question.shown = true;
                }
            }
        });
        progress(number + 1, total);
    }
    for Held { level, times, shown } in held.into_values() {
        let of_level = overlap.levels.entry(level).or_default();
        for (share, times) in
            [(&mut overlap.all, times), (&mut overlap.distinct, 1), (of_level, times)]
        {
            share.add(times, shown);
        }
    }
    if definition.writes_answers() {
        in_windows.values().for_each(|held| overlap.in_windows.add(held.times, held.shown));
    } else {
        overlap.in_windows = overlap.all;
    }
    Ok(overlap)
}

fn no_questions(subject: &str) -> Problem {
    let with = names_where(|task| task.in_training == InTraining::ByChance);
    let (last, others) = with.split_last().unwrap_or((&"", &[]));
    Problem::input(
        format!("{subject} no questions to compare"),
        format!("name a recipe of {} or {last}", others.join(", ")),
    )
}

fn questions(windows: &mut TaskWindows, asked: Asked, count: u64) -> BTreeMap<[u8; 32], Held> {
    let mut held: BTreeMap<[u8; 32], Held> = BTreeMap::new();
    for number in 0..count {
        windows.questions(number, asked, |level, digest| {
            held.entry(digest).or_insert(Held { level, times: 0, shown: false }).times += 1;
        });
    }
    held
}
