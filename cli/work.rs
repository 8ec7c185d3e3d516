//! `canonc compare --work`: one of any number of workers on the missing runs of comparisons.
//!
//! In: comparison locks, the folder of runs that all workers see. Out: finished runs. Must stay true: a run is trained only
//! under its claim, so two workers never train the same one; a worker ends when every missing run has a living worker.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lab::comparison::{Comparison, Run};
use records::run::Paths;

use crate::args::CompareArgs;
use crate::claims::{Asked, claim};
use crate::compare::{Carry, diverged};
use crate::fail::{Exit, Failure, Outcome};
use crate::found::Found;
use crate::{looks, out, output};

/// Trains runs until none is left that nobody trains.
pub fn work(args: &CompareArgs, comparisons: &[Comparison], stop: &AtomicBool) -> Outcome {
    loop {
        let mut theirs = Vec::new();
        let mut end = None;
        for comparison in comparisons {
            let folder = out::named(&args.dir, &comparison.name, "")?;
            std::fs::create_dir_all(&folder)
                .map_err(|error| Failure::cannot_write(&folder, &error))?;
            let found = Found::under(&args.dir);
            let (due, _) = looks::due(comparison, &folder, &found)?;
            let data = args.data.as_deref();
            let tensorboard = args.tensorboard.as_deref();
            let carry = Carry { folder: &folder, data, tensorboard, jobs: 1, stop, found: &found };
            for run in due {
                end = one(carry, run, Duration::from_secs(args.lease), &mut theirs)?;
                if end.is_some() {
                    break;
                }
            }
            if end.is_some() {
                break;
            }
        }
        match end {
            Some(Exit::Fine) => {}
            Some(other) => return Ok(other),
            None => {
                for (run, who) in theirs {
                    output::note(&format!("{run} is being trained by {who}"));
                }
                output::note(
                    "no other run is missing; `canonc compare` without --work prints the results",
                );
                return Ok(Exit::Fine);
            }
        }
    }
}

/// Trains a run if it is missing and nobody else does; `None` if there was nothing to do.
fn one(
    carry: Carry<'_>,
    run: &Run,
    lease: Duration,
    theirs: &mut Vec<(String, String)>,
) -> Result<Option<Exit>, Failure> {
    let name = &run.experiment.name;
    let place = carry.found.place(carry.folder, &run.experiment)?;
    let finished = |place: &Path| Paths::new(place).attestation().exists();
    if finished(&place) {
        return Ok(None);
    }
    let own = name.clone();
    let lost = move || {
        output::note(&format!(
            "{own}: another worker took this run over, since this one was silent; it stops"
        ));
        // As if it were asked to stop: the training process leaves a checkpoint.
        let _ = signal_hook::low_level::raise(signal_hook::consts::SIGUSR1);
    };
    match claim(carry.folder, name, lease, lost)? {
        Asked::Theirs(who) => {
            theirs.push((name.clone(), who));
            Ok(None)
        }
        // It may have been finished before the claim.
        Asked::Ours(_) if finished(&place) => Ok(None),
        Asked::Ours(_claim) => {
            output::note(&format!("run {name}"));
            let end = carry.one_of(run);
            if let Some(step) = diverged(&end, &place) {
                output::note(&format!("{name} diverged at step {step}; the other runs continue"));
                return Ok(Some(Exit::Fine));
            }
            end.map(Some)
        }
    }
}
