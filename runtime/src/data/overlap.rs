//! In: a locked experiment. Out: how many of the questions it is evaluated by stand in its own training windows,
//! word for word.
//! Must stay true: what is kept does not grow with the length of training; a question counts as shown only if a
//! training window holds all of it and its whole answer. Keys of windows keep held-out ones apart, but a task with
//! few questions asks the same ones anyway.

use std::collections::BTreeMap;

use compiler::digest::Digest;
use compiler::lock::{DataSource, Experiment};

use super::Windows;
use super::task::Task;
use super::window::{Asked, TaskWindows};
use crate::job::Job;
use crate::run::RunError;

/// Questions, and how many of them training has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    pub questions: u64,
    pub shown: u64,
}

/// What evaluation and training have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlap {
    /// Windows of training that were looked at, from the first one on, and questions with their answers in them.
    pub windows: u64,
    pub trained: u64,
    /// Windows of the whole training.
    pub of_windows: u64,
    /// Those of one evaluation, repeated ones too.
    pub all: Share,
    pub distinct: Share,
    pub levels: BTreeMap<u32, Share>,
}

/// One held-out question.
struct Held {
    level: u32,
    times: u64,
    shown: bool,
}

/// What decides which windows an experiment is trained on and evaluated by: experiments that agree in it have one
/// overlap.
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

/// `progress` gets the training windows done and of how many.
pub fn overlap(
    experiment: &Experiment,
    progress: impl FnMut(u64, u64),
) -> Result<Overlap, RunError> {
    overlap_of_tokens(experiment, u64::MAX, progress)
}

/// As [`overlap`], of no more training windows than have so many tokens: then more may have been shown than is found.
pub fn overlap_of_tokens(
    experiment: &Experiment,
    most: u64,
    mut progress: impl FnMut(u64, u64),
) -> Result<Overlap, RunError> {
    let documents = || {
        RunError::input(
            "documents ask no questions that could be the same",
            "name a recipe of brevo, depo, mano or multihop",
        )
    };
    if let DataSource::Text { .. } = experiment.data.source {
        return Err(documents());
    }
    let mut job = Job::new(experiment, "", None)?;
    let of_windows = job.steps.saturating_mul(job.micro_batches).saturating_mul(job.rows);
    let total = of_windows.min(most / job.seq_len.max(1));
    let (Windows::Task(trained), Windows::Task(held_out)) = (&mut job.train, &mut job.held_out)
    else {
        return Err(documents());
    };
    let (asked, windows) = match held_out.task() {
        // The model writes these answers, each to a question by itself.
        Task::Brevo(_) => (Asked::First, job.evaluation_samples),
        Task::Depo(_) | Task::Mano(_) | Task::Multihop(_) => {
            (Asked::InWindow, job.evaluation_windows)
        }
        Task::Capo(_) | Task::Lano(_) => {
            return Err(RunError::input(
                format!("{} asks no questions that could be the same", held_out.task().name()),
                "name a recipe of brevo, depo, mano or multihop",
            ));
        }
    };
    let mut held = questions(held_out, asked, windows);
    let mut overlap = Overlap { windows: total, of_windows, ..Overlap::default() };
    for number in 0..total {
        trained.questions(number, Asked::InWindow, |_, digest| {
            overlap.trained += 1;
            if let Some(question) = held.get_mut(&digest) {
                question.shown = true;
            }
        });
        progress(number + 1, total);
    }
    for Held { level, times, shown } in held.into_values() {
        let of_level = overlap.levels.entry(level).or_default();
        for (share, times) in
            [(&mut overlap.all, times), (&mut overlap.distinct, 1), (of_level, times)]
        {
            share.questions += times;
            share.shown += if shown { times } else { 0 };
        }
    }
    Ok(overlap)
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
