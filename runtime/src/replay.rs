//! Computes some or all of a run's steps again, from the initial weights and from every kept checkpoint.
//!
//! It writes nothing. On a machine that differs from the attested one, a difference is called a fault of the run only if
//! no rounding can explain it.

mod near;
mod platform;
mod difference;
mod recorded;
mod stretch;
mod shares;
mod result;

use std::collections::BTreeSet;

use dsl::Problem;

use crate::execute::Machine;
use records::attest::{Attestation, RANKS_FACT};
use records::job::Job;
use records::run::{Kernels, Paths};

use shares::shares;

pub use difference::{Difference, RunPoint};
pub use platform::Platform;
pub(crate) use recorded::RecordedRun;
pub use result::Replay;
pub use shares::Amount;
pub use stretch::Observer;
pub(crate) use stretch::{Extent, Origin, Replayer};

/// Computes steps again, from the initial weights and from every kept checkpoint.
pub fn replay(
    paths: &Paths,
    job: Job,
    machine: Machine,
    amount: Amount,
    observer: &mut dyn Observer,
) -> Result<Replay, Problem> {
    let mut replayer = Replayer::new(paths, job, machine)?;
    let mut starts = vec![0];
    starts.extend(replayer.run.kept.iter().map(|kept| kept.manifest.step).filter(|step| *step > 0));
    let shares = shares(&starts, replayer.run.last(), amount);
    let mut replay = Replay {
        steps: 0,
        updates: 0,
        of_steps: replayer.run.steps(),
        stretches: Vec::new(),
        evaluations: 0,
        of_evaluations: replayer.run.evaluations(),
        reached: Vec::new(),
        kept: starts.len() - 1,
        differences: Vec::new(),
        platform: replayer.platform.clone(),
        kernels: None,
    };
    observer.begins(shares.iter().map(|(_, steps)| steps).sum());
    for (start, steps) in shares {
        let origin = match replayer.run.kept_at(start) {
            Some(kept) if start > 0 => Origin::Kept(Box::new(kept.clone())),
            Some(_) | None => Origin::Initial,
        };
        if steps == 0 && !replayer.is_evaluated(start) {
            continue;
        }
        let mut state = replayer.state(&origin)?;
        if let Origin::Initial = origin
            && let Some([logged, computed]) = replayer.initial_difference(&state)?
        {
            replay.differences.push(Difference::certain(format!(
                "the log starts from weights {}, but the lock gives {}",
                logged.short(),
                computed.short()
            )));
        }
        let stretch = replayer.train_on(&mut state, start + steps, Extent::All, observer)?;
        replay.add(&origin, steps, stretch);
    }
    compare_kernels(&replayer, &mut replay);
    if !replay.reached.is_empty() {
        replay.differences.iter_mut().for_each(Difference::judge_by_equal_checkpoint);
    }
    Ok(replay)
}

/// Compares the recorded paths of each kernel with those that the replay took, where this machine decides both: one
/// process of the same machine, which trained and evaluated.
fn compare_kernels(replayer: &Replayer, replay: &mut Replay) {
    let Some(Attestation { kernels, machine, .. }) = &replayer.run.machines.attestation else {
        return;
    };
    let alone = !machine.contains_key(RANKS_FACT);
    if replayer.platform != Platform::Same || !alone || replay.steps == 0 || replay.evaluations == 0
    {
        return;
    }
    let mut paths = replayer.trainer.paths();
    paths.merge(&replayer.measurer.paths());
    let mut taken = Kernels::new();
    for (kernel, path, _) in paths.iter() {
        taken.entry(kernel.to_owned()).or_default().insert(path.to_owned());
    }
    let text = |paths: Option<&BTreeSet<String>>| {
        paths.map_or_else(
            || "nothing".to_owned(),
            |paths| paths.iter().map(String::as_str).collect::<Vec<_>>().join(" and "),
        )
    };
    for (kernel, paths) in &taken {
        if kernels.get(kernel) != Some(paths) {
            replay.differences.push(Difference::certain(format!(
                "attestation.toml records that {kernel} was computed by {}, but the same machine takes {}",
                text(kernels.get(kernel)),
                text(Some(paths))
            )));
        }
    }
    replay.kernels = Some(taken.len());
}
