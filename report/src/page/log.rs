//! Logs of other programs on the page: curves that a reader bound to a lock. They are drawn beside runs, and are in no pair,
//! no difference of arms and no table of results.

use std::path::PathBuf;

use lab::experiment::Experiment;

use super::run::{Logged, PageRun};
use crate::compare::{Curves, TRAINING_LOSS, TextTable, unit};

/// What is said of every log.
pub const ON_TRUST: &str = "on trust";

/// What a file of another program says of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForeignLog {
    /// The program that wrote it, or what is known of it.
    pub program: String,
    /// Training losses by step.
    pub loss: Vec<(u64, f64)>,
    /// What each loss is, such as a mean over 10 steps.
    pub loss_is: String,
    /// Norms of the gradients by step.
    pub grad_norm: Vec<(u64, f64)>,
    /// Learning rates by step.
    pub lr: Vec<(u64, f64)>,
    /// The last step.
    pub reached: u64,
    /// How learning rates agree with the lock.
    pub rates: String,
    /// How tokens agree with the lock.
    pub tokens: String,
    /// Other differences from the lock, and what a reader has to know.
    pub notes: Vec<String>,
}

/// A log and the lock that somebody says it is of.
#[derive(Clone, Debug)]
pub struct PageLog {
    /// Its curves, as a run of the lock.
    pub(super) run: PageRun,
    log: ForeignLog,
}

impl PageLog {
    /// A log of a file, bound to a lock by whoever makes the page.
    pub fn new(file: &str, experiment: Experiment, mut log: ForeignLog) -> PageLog {
        let [loss, grad_norm, lr] =
            [&mut log.loss, &mut log.grad_norm, &mut log.lr].map(std::mem::take);
        let curves = Curves { loss, ..Curves::default() };
        let logged = Logged { curves, grad_norm, lr, ..Logged::default() };
        let run = PageRun {
            name: format!("{} ({file}, {ON_TRUST})", experiment.name),
            arm: format!("{} ({}, {ON_TRUST})", experiment.arch.name, log.program),
            role: None,
            seed: 0,
            point: 0,
            at: String::new(),
            experiment,
            folder: PathBuf::new(),
            logged,
        };
        PageLog { run, log }
    }

    /// Its name on the page.
    pub fn name(&self) -> &str {
        &self.run.name
    }

    /// The program that wrote it.
    pub(super) fn program(&self) -> &str {
        &self.log.program
    }

    fn cells(&self) -> Vec<String> {
        let PageLog { run, log } = self;
        let last = run.logged.curves.last(TRAINING_LOSS);
        let last = last.map_or_else(|| "–".to_owned(), |loss| unit(TRAINING_LOSS).value(loss));
        vec![
            run.name.clone(),
            run.experiment.id().short(),
            log.program.clone(),
            format!("{} of {}", log.reached, run.experiment.budget.steps),
            format!("{last} ({})", log.loss_is),
            log.rates.clone(),
            log.tokens.clone(),
            log.notes.join("; "),
        ]
    }
}

const HEAD: [&str; 8] = [
    "log",
    "lock, by the reader's word",
    "written by",
    "last step",
    TRAINING_LOSS,
    "learning rates",
    "tokens",
    "notes",
];

/// One line for each log.
pub(super) fn table(logs: &[PageLog]) -> TextTable {
    TextTable::plain(HEAD.map(str::to_owned).to_vec(), logs.iter().map(PageLog::cells).collect())
}
