//! In: a run's folder and its job. Out: the run computed again from its initial weights, and the first difference in
//! its log, in the tensors of its checkpoints and, as far as the kept evidence allows, in the operations of its plan.
//! Must stay true: it writes nothing; "first" means first in the order of computation; it never reports more than the
//! kept evidence shows.

mod folders;
mod operation;
mod reason;

use crate::execute::Machine;
use crate::replay::{Origin, Platform, Replayer};
use crate::state::State;
use records::checkpoint::{StateDifference, compare};
use records::job::Job;
use records::metrics::{Evaluation, Step};
use records::run::{Paths, RunError};

pub use folders::against;
pub use operation::Variant;

use reason::of_one_step;

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
    pub place: RunPoint,
    /// The values that differ, both of them.
    pub text: String,
    /// The first tensor that differs, at this checkpoint: the first one compared after the first difference.
    pub tensor: Option<(u64, Option<StateDifference>)>,
    /// Conclusions about where in the step it arises.
    pub reasons: Vec<String>,
    /// The same steps computed in other ways.
    pub variants: Vec<Variant>,
    /// Whether rounding on another machine may explain it.
    pub maybe_rounding: bool,
    /// Whether it may even if both machines give the same weights: only the sum of a loss rounds otherwise.
    pub(crate) slight: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPoint {
    /// The initial weights.
    Start,
    Step(u64),
    Evaluation(u64),
    Checkpoint(u64),
}

impl RunPoint {
    pub fn text(self) -> String {
        match self {
            RunPoint::Start => "the initial weights".to_owned(),
            RunPoint::Step(step) => format!("step {step}"),
            RunPoint::Evaluation(step) => format!("the evaluation after step {step}"),
            RunPoint::Checkpoint(step) => format!("the checkpoint of step {step}"),
        }
    }
}

/// Receives progress.
pub trait Observer {
    fn step(&mut self, step: &Step);
    fn evaluation(&mut self, evaluation: &Evaluation);
    /// Called with the first difference when it is found. The run continues to the next checkpoint to name a tensor.
    fn differs(&mut self, place: RunPoint, text: &str);
}

/// Runs a run again from its initial weights, up to its first difference and on to the checkpoint after that.
pub fn reproduce(
    paths: &Paths,
    job: Job,
    machine: Machine,
    observer: &mut dyn Observer,
) -> Result<Reproduction, RunError> {
    let mut again =
        Again { replayer: Replayer::new(paths, job, machine)?, agreed: Origin::Initial };
    let mut found = Reproduction {
        steps: 0,
        of_steps: again.replayer.log.steps.len() as u64,
        evaluations: 0,
        without_questions: 0,
        checkpoints: Vec::new(),
        first: None,
        platform: again.replayer.platform.clone(),
    };
    let mut state = again.replayer.state(&Origin::Initial)?;
    if let Some(first) = again.start(&state)? {
        observer.differs(first.place, &first.text);
        found.first = Some(first);
        return Ok(found);
    }
    let last = again.replayer.log.last();
    while state.step < last {
        let step = state.advance(&mut again.replayer.job, &again.replayer.trainer)?;
        observer.step(&step);
        if let Some(text) = again.replayer.step_differs(&step) {
            let roundings = [again.is_rounding(&step), again.replayer.is_rounding(&step, 1)];
            let first = First::new(RunPoint::Step(step.step), text, roundings);
            observer.differs(first.place, &first.text);
            let first = again.explain(first, &step, state, observer)?;
            found.first = Some(first.judged(&found.checkpoints));
            return Ok(found);
        }
        found.steps += 1;
        if again.replayer.log.evaluations.contains_key(&state.step) {
            let evaluation = again.replayer.measurer.measure(&mut again.replayer.job, &state)?;
            observer.evaluation(&evaluation);
            if let Some(text) = again.replayer.evaluation_differs(&evaluation) {
                let slight = again.replayer.is_score_rounding(&evaluation, 0);
                let near = again.is_score_rounding(&evaluation);
                let mut first = First::new(RunPoint::Evaluation(state.step), text, [near, slight]);
                observer.differs(first.place, &first.text);
                first.tensor = again.next_checkpoint(&mut state, observer)?;
                if matches!(first.tensor, Some((_, None))) {
                    first.reasons.push(LOG_ONLY.to_owned());
                }
                found.first = Some(first.judged(&found.checkpoints));
                return Ok(found);
            }
            found.evaluations += 1;
            found.without_questions += u64::from(again.replayer.lacks_questions(&evaluation));
        }
        if let Some(difference) = again.checkpoint(&state)? {
            if let Some(difference) = difference {
                let step = state.step;
                // The code below has its own state, and some machines cannot hold two.
                drop(state);
                let place = RunPoint::Checkpoint(step);
                let other = found.platform != Platform::Same;
                let mut first = First::new(place, difference.text(), [other, false]);
                observer.differs(place, &first.text);
                first.reasons.push(match again.agreed.step() + 1 == step {
                    true => of_one_step(&difference),
                    false => format!(
                        "every logged number to step {} agrees: either the checkpoint was altered, or training \
                         differed in bits that no logged number shows, after {}",
                        step,
                        again.agreed.text()
                    ),
                });
                first.variants = again.variants(step)?;
                first.tensor = Some((step, Some(difference)));
                found.first = Some(first.judged(&found.checkpoints));
                return Ok(found);
            }
            found.checkpoints.push(state.step);
        }
    }
    Ok(found)
}

const LOG_ONLY: &str = "the tensors of the next checkpoint are the same bits, so training agrees: only the log is \
 wrong";

/// A run that is being computed again.
struct Again {
    replayer: Replayer,
    /// The latest state known to be bitwise equal in both.
    agreed: Origin,
}

impl First {
    fn new(place: RunPoint, text: String, [maybe_rounding, slight]: [bool; 2]) -> First {
        First {
            place,
            text,
            tensor: None,
            reasons: Vec::new(),
            variants: Vec::new(),
            maybe_rounding,
            slight,
        }
    }

    /// A checkpoint that came out to the bit, before or after it, shows that this machine rounds as the run's did.
    fn judged(self, checkpoints: &[u64]) -> First {
        let same = !checkpoints.is_empty() || matches!(self.tensor, Some((_, None)));
        First { maybe_rounding: self.maybe_rounding && (self.slight || !same), ..self }
    }
}

impl Again {
    fn start(&self, state: &State) -> Result<Option<First>, RunError> {
        let Some(start) = &self.replayer.log.start else { return Ok(None) };
        let initial = state.weights_digest(&self.replayer.job)?;
        Ok((initial != start.initial).then(|| {
            let text = format!(
                "they are {} in the log but {} now",
                start.initial.short(),
                initial.short()
            );
            First::new(RunPoint::Start, text, [false; 2])
        }))
    }

    fn is_rounding(&self, step: &Step) -> bool {
        self.replayer.is_rounding(step, step.step - self.agreed.step().min(step.step))
    }

    fn is_score_rounding(&self, evaluation: &Evaluation) -> bool {
        let after = evaluation.step.saturating_sub(self.agreed.step());
        self.replayer.is_score_rounding(evaluation, after)
    }

    /// Compares the state with its step's checkpoint, if one is kept.
    fn checkpoint(&mut self, state: &State) -> Result<Option<Option<StateDifference>>, RunError> {
        let kept = self.replayer.kept.iter().find(|found| found.manifest.step == state.step);
        let Some(found) = kept.cloned() else { return Ok(None) };
        let difference = compare(&self.replayer.store, &found, &mut |part, index, out| {
            state.read(part, index, out)
        })?;
        if difference.is_none() {
            self.agreed = Origin::Kept(Box::new(found));
        }
        Ok(Some(difference))
    }

    /// Continues to the next step with a kept checkpoint, this one included, and compares its tensors.
    fn next_checkpoint(
        &mut self,
        state: &mut State,
        observer: &mut dyn Observer,
    ) -> Result<Option<(u64, Option<StateDifference>)>, RunError> {
        let next = self
            .replayer
            .kept
            .iter()
            .map(|found| found.manifest.step)
            .find(|step| *step >= state.step);
        let Some(next) = next else { return Ok(None) };
        while state.step < next {
            let step = state.advance(&mut self.replayer.job, &self.replayer.trainer)?;
            observer.step(&step);
        }
        let agreed = self.agreed.clone();
        let difference = self.checkpoint(state)?;
        // A state after the first difference is not a valid start.
        self.agreed = agreed;
        Ok(difference.map(|difference| (next, difference)))
    }

    /// Finds where a differing step may have diverged.
    fn explain(
        &mut self,
        mut first: First,
        step: &Step,
        mut state: State,
        observer: &mut dyn Observer,
    ) -> Result<First, RunError> {
        first.tensor = self.next_checkpoint(&mut state, observer)?;
        drop(state);
        match &first.tensor {
            Some((_, None)) => first.reasons.push(LOG_ONLY.to_owned()),
            Some((at, Some(difference))) if *at == step.step && self.agreed.step() + 1 == *at => {
                first.reasons.push(of_one_step(difference));
            }
            Some((_, Some(_))) | None => {
                let checkpoint = first.tensor.as_ref().map(|(at, _)| *at);
                first.reasons.extend(self.of_numbers(step, checkpoint));
                first.reasons.extend(self.of_kept_state()?);
            }
        }
        if !matches!(first.tensor, Some((_, None))) {
            first.variants = self.variants(step.step)?;
        }
        Ok(first)
    }
}
