//! `canonc compare --work`: one of any number of workers on the missing runs of comparisons.
//!
//! A run is trained only under its claim, so two workers never train the same one. A worker ends when every missing run
//! has a living worker.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lab::comparison::{Comparison, ComparisonRun};
use records::run::Paths;

use super::CompareArgs;
use crate::fail::{Exit, Failure, Outcome};
use crate::finished_runs::FinishedRuns;
use crate::training::{Trainer, diverged};
use crate::worker_claims::{ClaimOutcome, claim};
use crate::{interim_looks, out, output};

/// Trains runs until none is left that nobody trains.
pub(super) fn work(args: &CompareArgs, comparisons: &[Comparison], stop: &AtomicBool) -> Outcome {
    loop {
        let mut claimed = Vec::new();
        match next(args, comparisons, stop, &mut claimed)? {
            Some(Exit::Fine) => {}
            Some(other) => return Ok(other),
            None => {
                for (run, worker) in claimed {
                    output::note(&format!("{run} is being trained by {worker}"));
                }
                output::note(
                    "no other run is missing; `canonc compare` without --work prints the results",
                );
                return Ok(Exit::Fine);
            }
        }
    }
}

/// Trains the next missing run that nobody else trains; `None` if there is none. `claimed` gets the runs of others.
fn next(
    args: &CompareArgs,
    comparisons: &[Comparison],
    stop: &AtomicBool,
    claimed: &mut Vec<(String, String)>,
) -> Result<Option<Exit>, Failure> {
    for comparison in comparisons {
        let folder = out::named(&args.dir, &comparison.name, "")?;
        disk::create_folders(&folder).map_err(|error| Failure::cannot_write(&folder, &error))?;
        let finished = FinishedRuns::under(&args.dir).of_trainer(comparison.trainer);
        let (due, _) = interim_looks::due(comparison, &folder, &finished)?;
        let trainer = Trainer {
            folder: &folder,
            given: args.given(),
            tensorboard: args.tensorboard.as_deref(),
            jobs: 1,
            stop,
            finished: &finished,
        };
        for run in due {
            let end = one(trainer, run, Duration::from_secs(args.lease), claimed)?;
            if end.is_some() {
                return Ok(end);
            }
        }
    }
    Ok(None)
}

/// Trains a run if it is missing and nobody else does; `None` if there was nothing to do.
fn one(
    trainer: Trainer<'_>,
    run: &ComparisonRun,
    lease: Duration,
    claimed: &mut Vec<(String, String)>,
) -> Result<Option<Exit>, Failure> {
    let name = &run.experiment.name;
    let run_folder = trainer.finished.folder(trainer.folder, &run.experiment)?;
    let is_finished = || Paths::new(&run_folder).is_attested();
    if is_finished()? {
        return Ok(None);
    }
    let lost_run = name.clone();
    let lost = move || {
        output::note(&format!(
            "{lost_run}: another worker took this run over, since this one was silent; it stops"
        ));
        // As if it were asked to stop: the training process leaves a checkpoint.
        let _ = signal_hook::low_level::raise(signal_hook::consts::SIGUSR1);
    };
    match claim(trainer.folder, name, lease, lost)? {
        ClaimOutcome::Held(worker) => {
            claimed.push((name.clone(), worker));
            Ok(None)
        }
        // It may have been finished before the claim.
        ClaimOutcome::Claimed(_) if is_finished()? => Ok(None),
        ClaimOutcome::Claimed(_claim) => {
            output::note(&format!("run {name}"));
            let end = trainer.train(run);
            if let Some(step) = diverged(&end, Path::new(&run_folder))? {
                output::note(&format!("{name} diverged at step {step}; the other runs continue"));
                return Ok(Some(Exit::Fine));
            }
            end.map(Some)
        }
    }
}
