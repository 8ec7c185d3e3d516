//! The windows that a lock's run reads: those of training, made by the same code.

use std::path::{Path, PathBuf};

use clap::Args;
use data::Windows;
use data::text::tokenizer::Info;
use lab::experiment::Experiment;
use lab::lock::Lock;
use records::job;

use crate::fail::{Failure, shown};
use crate::{documents, output, workspace};

/// Selects windows of a lock.
#[derive(Args, Debug)]
pub(super) struct WindowArgs {
    /// Prepared documents, if the lock trains on text [default: data/NAME.index]
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Use windows of the evaluation instead of training windows
    #[arg(long)]
    pub held_out: bool,
}

/// The selected windows of a lock.
pub(super) struct LockedWindows {
    pub(super) experiment: Experiment,
    pub(super) windows: Windows,
    /// How many the run reads.
    pub(super) count: u64,
    /// The tokenizer of the documents, if the windows come from documents.
    pub(super) info: Option<Info>,
}

impl LockedWindows {
    pub(super) fn read(path: &Path, args: &WindowArgs) -> Result<LockedWindows, Failure> {
        let (lock, _) = workspace::read_lock(path)?;
        let kind = lock.kind();
        let Lock::Experiment(experiment) = lock else {
            return Err(Failure::bad_input(format!(
                "`{}` is a lock of kind {kind}, but an experiment is needed",
                shown(path)
            ))
            .help("name the lock of one experiment: lockfiles/NAME.lock, or a run's folder"));
        };
        let WindowArgs { data, held_out } = args;
        let documents = documents::read(&experiment, data.as_deref())?;
        let info = documents.as_ref().map(|documents| *documents.tokenizer());
        let (train, evaluation) = job::windows(&experiment, documents)?;
        let (windows, count) = match held_out {
            false => {
                let batch = &experiment.batch;
                let step = batch.sequences.saturating_mul(batch.micro_batches);
                (train, experiment.budget.steps.saturating_mul(step))
            }
            true if experiment.evaluation.metrics.is_empty() => {
                return Err(Failure::bad_input(format!(
                    "`{}` has no evaluation, so no window is held out",
                    experiment.name
                ))
                .help("remove --held-out"));
            }
            true => (evaluation, experiment.evaluation.windows),
        };
        Ok(LockedWindows { experiment, windows, count, info })
    }

    /// Goes to a window, if the run reads as many from there on.
    pub(super) fn go_to(&mut self, from: u64, count: u64) -> Result<(), Failure> {
        if count == 0 || count > self.count.saturating_sub(from) {
            return Err(Failure::bad_input(format!(
                "`{}` reads windows 0 to {}, but {} from {from} on were requested",
                self.experiment.name,
                self.count.saturating_sub(1),
                output::counted(count, "window")
            ))
            .help("use a smaller --count or --from"));
        }
        if let Windows::Task(tasks) = &mut self.windows {
            tasks.replay_to(from);
        }
        Ok(())
    }
}
