//! In: a run's folder and its job. Out: some or all of its steps computed again, from the initial weights and from
//! every kept checkpoint, and every difference from the logged or saved result. Must stay true: it writes nothing; only
//! equal bits count as equal; on a machine that differs from the attested one, a difference is called a fault of the
//! run only if no rounding can explain it.

mod near;
mod platform;
mod segment;

use std::collections::{BTreeMap, BTreeSet};

use compiler::digest::Digest;

use crate::evaluate::Measurer;
use crate::execute::{Machine, Trainer};
use crate::train;
use records::attest::{Attestation, RANKS_FACT};
use records::checkpoint::{SavedCheckpoint, Store};
use records::job::{Job, estimate, fits};
use records::metrics::{self, Evaluation, Record, Start, Step};
use records::platform::memory_limit;
use records::run::{Kernels, Paths, RunError};
use records::verify::{Report, Subject};

pub(crate) use near::{is_near, scores_are_near};
pub(crate) use platform::Machines;
pub use platform::Platform;
pub(crate) use segment::Origin;

/// How many steps to compute again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Steps(u64),
    All,
}

/// Number of steps to replay by default.
pub const STEPS: u64 = 32;

/// How far a replay is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It will train this many steps.
    Begins(u64),
    /// It has trained this step.
    Step(u64),
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// Number of steps computed again, then number of logged steps.
    pub steps: u64,
    pub of_steps: u64,
    /// Number of those steps with a compared weight update, through the next step or a checkpoint.
    pub updates: u64,
    /// First and last step of each stretch.
    pub stretches: Vec<(u64, u64)>,
    pub evaluations: u64,
    pub of_evaluations: u64,
    /// Steps with a kept checkpoint that was reached from the state before it, then the number of kept checkpoints.
    pub reached: Vec<u64>,
    pub kept: usize,
    pub differences: Vec<Difference>,
    pub platform: Platform,
    /// How many kernels were computed again by the recorded paths; `None` if this machine cannot decide that.
    pub kernels: Option<usize>,
}

/// A result that differs from the run's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub text: String,
    /// Whether rounding on another machine may explain it.
    pub maybe_rounding: bool,
    /// Whether it may even if that machine gives the same weights: only the sum of a loss rounds otherwise.
    pub slight: bool,
}

/// A run's log by step, its checkpoints, and the plans to compute it again.
pub(crate) struct Replayer {
    pub(crate) job: Job,
    pub(crate) machine: Machine,
    pub(crate) trainer: Trainer,
    pub(crate) measurer: Measurer,
    pub(crate) store: Store,
    pub(crate) log: Logged,
    /// Oldest first.
    pub(crate) kept: Vec<SavedCheckpoint>,
    pub(crate) platform: Platform,
    pub(crate) attestation: Option<Attestation>,
}

/// The records of a log.
pub(crate) struct Logged {
    pub(crate) start: Option<Start>,
    pub(crate) steps: BTreeMap<u64, Step>,
    pub(crate) evaluations: BTreeMap<u64, Evaluation>,
}

impl Logged {
    fn read(paths: &Paths) -> Result<(Logged, Vec<Digest>), RunError> {
        let (records, heads) = metrics::read_with_heads(&paths.metrics())?;
        let mut log = Logged { start: None, steps: BTreeMap::new(), evaluations: BTreeMap::new() };
        for record in records {
            match record {
                Record::Start(start) => log.start = Some(start),
                Record::Step(step) => drop(log.steps.insert(step.step, step)),
                Record::Evaluation(found) => drop(log.evaluations.insert(found.step, found)),
            }
        }
        Ok((log, heads))
    }

    /// The last logged step.
    pub(crate) fn last(&self) -> u64 {
        self.steps.keys().next_back().copied().unwrap_or(0)
    }
}

impl Replayer {
    /// Reads the run and binds its plans. Computes nothing yet.
    pub(crate) fn new(paths: &Paths, job: Job, machine: Machine) -> Result<Replayer, RunError> {
        fits(&estimate(&job), memory_limit().as_ref())?;
        let (log, heads) = Logged::read(paths)?;
        if log.steps.is_empty() {
            return Err(RunError::input(
                format!("{} has no logged step to train again", paths.folder.display()),
                "`canonc run` trains it",
            ));
        }
        let store = Store::new(paths.checkpoints(), job.id(), job.slots());
        let kept = store.kept(|chain| heads.contains(&chain))?;
        let text = disk::read_text(&paths.attestation(), disk::SMALL).ok();
        let attestation = text.and_then(|text| Attestation::parse(&text).ok());
        let facts = train::facts();
        let platform = Platform::compare(
            attestation.as_ref(),
            &train::started(paths),
            &facts,
            &train::line(&facts),
            machine.device.is_cuda(),
        );
        Ok(Replayer {
            trainer: Trainer::new(job.plans.clone(), machine)?,
            measurer: Measurer::new(&job, machine)?,
            job,
            machine,
            store,
            log,
            kept,
            platform,
            attestation,
        })
    }
}

impl Replayer {
    /// Compares the recorded paths of each kernel with those that the replay took, where this machine decides both: one
    /// process of the same machine, which trained and evaluated.
    fn kernels(&self, replay: &mut Replay) {
        let Some(Attestation { kernels, machine, .. }) = &self.attestation else { return };
        let alone = !machine.contains_key(RANKS_FACT);
        if self.platform != Platform::Same || !alone || replay.steps == 0 || replay.evaluations == 0
        {
            return;
        }
        let mut paths = self.trainer.paths();
        paths.merge(&self.measurer.paths());
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
                replay.differences.push(Difference {
                    text: format!(
                        "attestation.toml records that {kernel} was computed by {}, but the same machine takes {}",
                        text(kernels.get(kernel)),
                        text(Some(paths))
                    ),
                    maybe_rounding: false,
                    slight: false,
                });
            }
        }
        replay.kernels = Some(taken.len());
    }
}

/// Computes steps again, from the initial weights and from every kept checkpoint. Calls `told` before the first and after
/// each step.
pub fn replay(
    paths: &Paths,
    job: Job,
    machine: Machine,
    amount: Amount,
    told: &mut dyn FnMut(Progress),
) -> Result<Replay, RunError> {
    let mut replayer = Replayer::new(paths, job, machine)?;
    let last = replayer.log.last();
    let mut starts = vec![0];
    starts.extend(replayer.kept.iter().map(|found| found.manifest.step).filter(|step| *step > 0));
    let shares = shares(&starts, last, amount);
    let mut replay = Replay {
        steps: 0,
        updates: 0,
        of_steps: replayer.log.steps.len() as u64,
        stretches: Vec::new(),
        evaluations: 0,
        of_evaluations: replayer.log.evaluations.len() as u64,
        reached: Vec::new(),
        kept: replayer.kept.iter().filter(|found| found.manifest.step > 0).count(),
        differences: Vec::new(),
        platform: replayer.platform.clone(),
        kernels: None,
    };
    told(Progress::Begins(shares.iter().map(|(_, steps)| steps).sum()));
    for (start, steps) in shares {
        let origin = match replayer.kept.iter().find(|found| found.manifest.step == start) {
            Some(found) if start > 0 => Origin::Kept(Box::new(found.clone())),
            Some(_) | None => Origin::Initial,
        };
        replayer.stretch(&origin, steps, &mut replay, told)?;
    }
    replayer.kernels(&mut replay);
    // A checkpoint that comes out to the bit shows that this machine rounds as the run's did.
    if !replay.reached.is_empty() {
        for difference in &mut replay.differences {
            difference.maybe_rounding &= difference.slight;
        }
    }
    Ok(replay)
}

/// How many steps to compute from each start. All steps between the last kept checkpoint and the one before it are among
/// them, whatever they cost: only they lead to the last state, which is what others use. So are two from the initial
/// weights. The update of a step shows in the step after it, or in the checkpoint after it, so each other start gets two
/// steps, or all up to the next start, the latest first. What is left goes to the same starts, one step each in turn.
fn shares(starts: &[u64], last: u64, amount: Amount) -> Vec<(u64, u64)> {
    let ends = starts.iter().skip(1).copied().chain([last]);
    let room: Vec<u64> =
        starts.iter().zip(ends).map(|(start, end)| end.saturating_sub(*start)).collect();
    let total: u64 = room.iter().sum();
    let mut left = match amount {
        Amount::All => total,
        Amount::Steps(steps) => steps.min(total),
    };
    let leads_to_last = room.len().checked_sub(2);
    let from_initial = if leads_to_last.is_some() { 2 } else { left.min(2) };
    let mut shares = vec![0; room.len()];
    for (at, (room, share)) in room.iter().zip(&mut shares).enumerate() {
        *share = match at {
            at if Some(at) == leads_to_last => *room,
            0 => from_initial.min(*room),
            _ => 0,
        };
        left = left.saturating_sub(*share);
    }
    for at in (1..room.len()).rev().filter(|at| Some(*at) != leads_to_last) {
        let (Some(room), Some(share)) = (room.get(at), shares.get_mut(at)) else { continue };
        let unit = 2.min(*room);
        if unit <= left {
            *share = unit;
            left -= unit;
        }
    }
    while left > 0 {
        // Steps that continue others, if there is room for any.
        let begun = room.iter().zip(&shares).any(|(room, share)| *share > 0 && share < room);
        let is_open = |room: u64, share: u64| share < room && (share > 0 || !begun);
        let open = room.iter().zip(&shares).filter(|(room, share)| is_open(**room, **share));
        let open = open.count() as u64;
        // As many whole rounds as every open start has room for, then one step at a time.
        let round = (left / open.max(1)).min(
            room.iter()
                .zip(&shares)
                .filter(|(room, share)| is_open(**room, **share))
                .map(|(room, share)| room - share)
                .min()
                .unwrap_or(0),
        );
        let first = (0..room.len()).take(1);
        for at in first.chain((1..room.len()).rev()) {
            let (Some(room), Some(share)) = (room.get(at), shares.get_mut(at)) else { continue };
            if !is_open(*room, *share) {
                continue;
            }
            let more = round.max(1).min(room - *share).min(left);
            *share += more;
            left -= more;
        }
    }
    starts.iter().copied().zip(shares).collect()
}

impl Replay {
    /// Whether every logged step, every evaluation and every kept checkpoint was computed again.
    pub fn is_whole(&self) -> bool {
        self.steps == self.of_steps
            && self.evaluations == self.of_evaluations
            && self.reached.len() == self.kept
    }

    /// Adds the results to the report of `canonc verify`.
    pub fn tell(&self, report: &mut Report) {
        let Replay {
            steps,
            of_steps,
            updates,
            stretches,
            evaluations,
            of_evaluations,
            reached,
            kept,
            differences,
            platform,
            kernels,
        } = self;
        let other = match platform {
            Platform::Same => String::new(),
            Platform::Other(differs) => {
                format!(", on another machine than the attested one ({})", differs.join("; "))
            }
        };
        for Difference { text, maybe_rounding, slight: _ } in differences {
            match maybe_rounding {
                false => report.broken(format!("replay: {text}")),
                true => report.undecided(format!(
                    "replay: {text}; this may be rounding, which this machine cannot decide: {}",
                    other.trim_start_matches(", ")
                )),
            }
        }
        if !differences.is_empty() {
            return;
        }
        let ranges: Vec<String> = stretches
            .iter()
            .map(
                |(first, last)| {
                    if first == last { first.to_string() } else { format!("{first} to {last}") }
                },
            )
            .collect();
        let compared = match updates {
            0 => "no update of the weights compared: `--replay 2` compares one".to_owned(),
            updates => format!("{} of the weights compared", dsl::counted(*updates, "update")),
        };
        let text = format!(
            "losses and gradient norms of {steps} of {} ({}) trained again, {compared}: the same bits{other}",
            dsl::counted(*of_steps, "step"),
            ranges.join(", ")
        );
        match steps == of_steps {
            true => report.proved(Subject::Losses, text),
            false => {
                let rest = of_steps - steps;
                report.proved_in_part(
                    Subject::Losses,
                    (format!("{steps} of {}", dsl::counted(*of_steps, "step")), text),
                    (
                        format!("{rest} of {}", dsl::counted(*of_steps, "step")),
                        format!(
                            "losses and gradient norms of {}: --replay all trains them again",
                            dsl::counted(rest, "step")
                        ),
                    ),
                );
            }
        }
        if *evaluations > 0 {
            let text = format!(
                "{evaluations} of {}: the same bits",
                dsl::counted(*of_evaluations, "evaluation")
            );
            match evaluations == of_evaluations {
                true => report.proved(Subject::Evaluations, text),
                false => {
                    let rest = of_evaluations - evaluations;
                    report.proved_in_part(
                        Subject::Evaluations,
                        (format!("{evaluations} of {of_evaluations}"), text),
                        (
                            format!("{rest} of {of_evaluations}"),
                            format!(
                                "scores of {}: --replay all recomputes them",
                                dsl::counted(rest, "evaluation")
                            ),
                        ),
                    );
                }
            }
        }
        if let Some(kernels) = kernels {
            report.proved(
                Subject::Kernels,
                format!(
                    "kernels: the recorded paths of {} are those that this machine takes",
                    dsl::counted(*kernels, "kernel")
                ),
            );
        }
        if reached.is_empty() {
            return;
        }
        let reached_steps: Vec<String> = reached.iter().map(u64::to_string).collect();
        let text = format!(
            "weights and moments of {} of {kept} kept checkpoints (after step {}), trained again from the state before: \
             the same bits",
            reached.len(),
            reached_steps.join(", ")
        );
        match self.is_whole() {
            true => report.proved(Subject::Training, text),
            false => report.proved_in_part(
                Subject::Training,
                (format!("to {} of {}", reached.len(), dsl::counted(*kept, "checkpoint")), text),
                (
                    "the rest".to_owned(),
                    "the weights and moments that no replayed step reached: --replay all reaches all that are kept"
                        .to_owned(),
                ),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_shared_out_from_the_start_and_the_latest_checkpoints() {
        for (starts, last, amount, wanted) in [
            (&[0][..], 8, Amount::All, vec![(0, 8)]),
            (&[0], 8, Amount::Steps(3), vec![(0, 3)]),
            (&[0], 8, Amount::Steps(1), vec![(0, 1)]),
            (&[0, 6, 8], 8, Amount::All, vec![(0, 6), (6, 2), (8, 0)]),
            (&[0, 6, 8], 8, Amount::Steps(100), vec![(0, 6), (6, 2), (8, 0)]),
            (&[0, 6, 8], 8, Amount::Steps(1), vec![(0, 2), (6, 2), (8, 0)]),
            (&[0, 6, 8], 8, Amount::Steps(5), vec![(0, 3), (6, 2), (8, 0)]),
            (&[0, 500, 600], 600, Amount::Steps(32), vec![(0, 2), (500, 100), (600, 0)]),
            (&[0, 60, 120], 120, Amount::Steps(8), vec![(0, 2), (60, 60), (120, 0)]),
            (&[0, 60, 120], 120, Amount::Steps(80), vec![(0, 20), (60, 60), (120, 0)]),
            (&[0, 120], 120, Amount::Steps(8), vec![(0, 120), (120, 0)]),
            // An unfinished run: its last state is that of its last checkpoint.
            (&[0, 2, 4], 60, Amount::Steps(8), vec![(0, 2), (2, 2), (4, 4)]),
            (&[0, 2, 4, 6, 8], 8, Amount::Steps(6), vec![(0, 2), (2, 0), (4, 2), (6, 2), (8, 0)]),
            (
                &[0, 1_000_000],
                2_000_000_000_000,
                Amount::All,
                vec![(0, 1_000_000), (1_000_000, 1_999_999_000_000)],
            ),
        ] {
            assert_eq!(shares(starts, last, amount), wanted, "{starts:?} {amount:?}");
        }
    }
}
