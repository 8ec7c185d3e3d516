//! Runs a run again from its initial weights up to the first difference in its log and the tensors of its checkpoints,
//! and looks for the operation where it arises.
//!
//! It writes nothing. "First" means first in the order of computation.

mod folders;
mod operation;
mod reason;

use crate::execute::Machine;
use crate::replay::{Difference, Extent, Observer, Origin, Platform, Replayer, RunPoint};
use dsl::Problem;
use records::checkpoint::StateDifference;
use records::job::Job;
use records::metrics::Record;
use records::run::Paths;

pub use folders::against;
pub use operation::Variant;

/// The result of running a run again, or of comparing two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Reproduction {
    /// Number of logged steps compared before the first difference, then number of logged steps.
    pub steps: u64,
    pub of_steps: u64,
    pub evaluations: u64,
    /// Number of those without the scores of single questions in one of the logs, which were not compared.
    pub without_questions: u64,
    /// Steps of the checkpoints with every tensor compared and equal.
    pub checkpoints: Vec<u64>,
    pub first: Option<First>,
    pub platform: Platform,
}

/// The first difference.
#[derive(Clone, Debug, PartialEq)]
pub struct First {
    pub point: RunPoint,
    pub difference: Difference,
    /// The first tensor that differs, at this checkpoint: the first one compared after the first difference.
    pub tensor: Option<(u64, Option<StateDifference>)>,
    /// Conclusions about where in the step it arises.
    pub reasons: Vec<String>,
    /// The same steps computed in other ways.
    pub variants: Vec<Variant>,
}

impl First {
    fn new(point: RunPoint, difference: Difference) -> First {
        First { point, difference, tensor: None, reasons: Vec::new(), variants: Vec::new() }
    }

    /// A difference between the tensors of a checkpoint, where every record before it agrees.
    fn of_checkpoint(step: u64, difference: StateDifference, platform: &Platform) -> First {
        let tensors = Difference::of_state(difference.text(), platform);
        First {
            tensor: Some((step, Some(difference))),
            ..First::new(RunPoint::Checkpoint(step), tensors)
        }
    }

    fn only_the_log_differs(&self) -> bool {
        matches!(self.tensor, Some((_, None)))
    }
}

impl Reproduction {
    fn new(of_steps: u64, platform: Platform) -> Reproduction {
        Reproduction {
            steps: 0,
            of_steps,
            evaluations: 0,
            without_questions: 0,
            checkpoints: Vec::new(),
            first: None,
            platform,
        }
    }

    /// With the first difference. A checkpoint that is equal to the bit, before or after it, shows that both machines
    /// round the same.
    fn ending_with(mut self, mut first: First) -> Reproduction {
        if !self.checkpoints.is_empty() || first.only_the_log_differs() {
            first.difference.judge_by_equal_checkpoint();
        }
        self.first = Some(first);
        self
    }
}

/// Runs a run again from its initial weights, up to its first difference and on to the checkpoint after that.
pub fn reproduce(
    paths: &Paths,
    job: Job,
    machine: Machine,
    observer: &mut dyn Observer,
) -> Result<Reproduction, Problem> {
    let mut replayer = Replayer::new(paths, job, machine)?;
    let mut reproduction = Reproduction::new(replayer.run.steps(), replayer.platform.clone());
    let mut state = replayer.state(&Origin::Initial)?;
    if let Some([logged, computed]) = replayer.initial_difference(&state)? {
        let text = format!("they are {} in the log but {} now", logged.short(), computed.short());
        observer.differs(RunPoint::Start, &text);
        let first = First::new(RunPoint::Start, Difference::certain(text));
        return Ok(reproduction.ending_with(first));
    }
    let mut origin = Origin::Initial;
    let last = replayer.run.last();
    while state.step < last {
        let ends = replayer.run.kept.iter().map(|kept| kept.manifest.step).chain([last]);
        let to = ends.filter(|step| *step > state.step).min().unwrap_or(last);
        let mut stretch = replayer.train_on(&mut state, to, Extent::ToFirstDifference, observer)?;
        reproduction.steps += stretch.steps;
        reproduction.evaluations += stretch.evaluations;
        reproduction.without_questions += stretch.without_questions;
        match (stretch.differences.pop(), stretch.checkpoint) {
            (None, None) => {}
            (None, Some(None)) => {
                reproduction.checkpoints.push(to);
                if let Some(kept) = replayer.run.kept_at(to) {
                    origin = Origin::Kept(Box::new(kept.clone()));
                }
            }
            (None, Some(Some(difference))) => {
                let mut first = First::of_checkpoint(to, difference, &replayer.platform);
                observer.differs(first.point, &first.difference.text);
                // The search has its own state, and some machines cannot hold two.
                drop(state);
                Search { replayer, origin }.explain_checkpoint(to, &mut first)?;
                return Ok(reproduction.ending_with(first));
            }
            (Some((record, difference)), checkpoint) => {
                let mut first = First::new(RunPoint::from_record(&record), difference);
                first.tensor = checkpoint.map(|difference| (to, difference));
                drop(state);
                Search { replayer, origin }.explain_record(&record, &mut first)?;
                return Ok(reproduction.ending_with(first));
            }
        }
    }
    Ok(reproduction)
}

/// A search for the place in a step where a difference arises.
struct Search {
    replayer: Replayer,
    /// The latest state that is equal to the bit in both.
    origin: Origin,
}

const LOG_ONLY: &str = "the tensors of the next checkpoint are the same bits, so training agrees: only the log is \
 wrong";

impl Search {
    fn explain_record(&mut self, record: &Record, first: &mut First) -> Result<(), Problem> {
        if first.only_the_log_differs() {
            first.reasons.push(LOG_ONLY.to_owned());
            return Ok(());
        }
        let Record::Step(step) = record else { return Ok(()) };
        match &first.tensor {
            Some((at, Some(difference))) if *at == step.step && self.origin.step() + 1 == *at => {
                first.reasons.push(reason::from_one_step(difference));
            }
            Some(_) | None => {
                let checkpoint = first.tensor.as_ref().map(|(at, _)| *at);
                first.reasons.extend(self.reason_from_numbers(step, checkpoint));
                first.reasons.extend(self.reason_from_kept_state()?);
            }
        }
        first.variants = self.variants(step.step)?;
        Ok(())
    }

    fn explain_checkpoint(&mut self, step: u64, first: &mut First) -> Result<(), Problem> {
        first.reasons.push(match &first.tensor {
            Some((_, Some(difference))) if self.origin.step() + 1 == step => {
                reason::from_one_step(difference)
            }
            Some(_) | None => format!(
                "every logged number to step {step} agrees: either the checkpoint was altered, or training differed in \
                 bits that no logged number shows, after {}",
                self.origin.text()
            ),
        });
        first.variants = self.variants(step)?;
        Ok(())
    }
}
