//! In: a start state, and the number of steps to compute. Out: how they compare with the log and with the next kept
//! checkpoint. Must stay true: a number that rounding cannot affect (data, learning rate, counts) must agree on any
//! machine; on another machine, the others must be within a tolerance that grows, like rounding, with each step after a
//! known state.

use super::near::{is_near, scores_are_near};
use super::{Difference, Platform, Progress, Replay, Replayer};
use crate::state::State;
use records::checkpoint::{SavedCheckpoint, compare};
use records::metrics::{Evaluation, Record, Step};
use records::run::RunError;

/// A known earlier state of a run.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Initial,
    Kept(Box<SavedCheckpoint>),
}

impl Origin {
    pub(crate) fn step(&self) -> u64 {
        match self {
            Origin::Initial => 0,
            Origin::Kept(found) => found.manifest.step,
        }
    }

    pub(crate) fn text(&self) -> String {
        match self {
            Origin::Initial => "the initial weights".to_owned(),
            Origin::Kept(found) => format!("checkpoints/{}", found.name),
        }
    }
}

impl Replayer {
    pub(crate) fn state(&self, origin: &Origin) -> Result<State, RunError> {
        match origin {
            Origin::Initial => State::initial(&self.job, self.machine),
            Origin::Kept(found) => State::load(&self.job, self.machine, &self.store, found),
        }
    }

    /// Computes steps again from `origin`, and compares.
    pub(super) fn stretch(
        &mut self,
        origin: &Origin,
        steps: u64,
        replay: &mut Replay,
        told: &mut dyn FnMut(Progress),
    ) -> Result<(), RunError> {
        let measures = match origin {
            Origin::Initial => false,
            Origin::Kept(found) => self.log.evaluations.contains_key(&found.manifest.step),
        };
        if steps == 0 && !measures {
            return Ok(());
        }
        let mut state = self.state(origin)?;
        if let (Origin::Initial, Some(start)) = (origin, self.log.start.clone()) {
            let initial = state.weights_digest(&self.job)?;
            if initial != start.initial {
                replay.differences.push(Difference {
                    text: format!(
                        "the log starts from weights {}, but the lock gives {}",
                        start.initial.short(),
                        initial.short()
                    ),
                    maybe_rounding: false,
                    slight: false,
                });
            }
        }
        // Evaluating a kept state needs no step.
        if measures {
            self.measure(&state, 0, replay)?;
        }
        let (mut first, mut differing) = (None, 0);
        for at in 0..steps {
            let step = state.advance(&mut self.job, &self.trainer)?;
            told(Progress::Step(step.step));
            replay.steps += 1;
            if let Some(text) = self.step_differs(&step) {
                differing += 1;
                let roundings = [at + 1, 1].map(|after| self.is_rounding(&step, after));
                first.get_or_insert((step.step, text, roundings));
            }
            if self.log.evaluations.contains_key(&step.step)
                && !self.kept.iter().any(|found| found.manifest.step == step.step)
            {
                self.measure(&state, at + 1, replay)?;
            }
        }
        if steps > 0 {
            replay.stretches.push((origin.step() + 1, state.step));
        }
        let mut reached = None;
        if steps > 0
            && let Some(found) = self.kept.iter().find(|found| found.manifest.step == state.step)
        {
            reached = Some(compare(&self.store, found, &mut |part, index, out| {
                state.read(part, index, out)
            })?);
        }
        replay.updates += steps.saturating_sub(u64::from(reached.is_none()));
        let name = format!("step-{:010}", state.step);
        if let Some((step, text, [maybe_rounding, slight])) = first {
            let rest = match (differing, &reached) {
                (1, Some(None)) => format!(
                    "; every other step to {} and its checkpoint come out the same, so only the log is wrong",
                    state.step
                ),
                (1, _) if step < state.step => {
                    format!("; the steps after it, to {}, come out the same", state.step)
                }
                (differing, _) => {
                    format!("; {differing} of the {steps} steps from {} differ", origin.text())
                }
            };
            replay.differences.push(Difference {
                text: format!("step {step}: {text}{rest}"),
                maybe_rounding,
                slight,
            });
        }
        match reached {
            Some(Some(difference)) => replay.differences.push(Difference {
                text: format!(
                    "checkpoints/{name} differs from training from {}: {}",
                    origin.text(),
                    difference.text()
                ),
                maybe_rounding: self.platform != Platform::Same,
                slight: false,
            }),
            Some(None) => replay.reached.push(state.step),
            None => {}
        }
        Ok(())
    }

    /// The values of a step that differ from the log, with both values.
    pub(crate) fn step_differs(&self, step: &Step) -> Option<String> {
        let logged = self.log.steps.get(&step.step)?;
        differs(&Record::Step(logged.clone()), &Record::Step(step.clone()))
    }

    /// Whether rounding on another machine can explain how a step differs from its line in the log, `after` steps from
    /// a state that both had.
    pub(crate) fn is_rounding(&self, step: &Step, after: u64) -> bool {
        let Some(logged) = self.log.steps.get(&step.step) else { return false };
        self.platform != Platform::Same && is_near(logged, step, after)
    }

    /// The values of an evaluation that differ from the log, with both values.
    pub(crate) fn evaluation_differs(&self, evaluation: &Evaluation) -> Option<String> {
        let logged = self.log.evaluations.get(&evaluation.step)?;
        differs(&Record::Evaluation(logged.clone()), &Record::Evaluation(evaluation.clone()))
    }

    /// Whether the log lacks the scores of single questions of this evaluation.
    pub(crate) fn lacks_questions(&self, evaluation: &Evaluation) -> bool {
        let logged = self.log.evaluations.get(&evaluation.step);
        logged.is_some_and(|logged| {
            Record::Evaluation(logged.clone()).lacks(&Record::Evaluation(evaluation.clone()))
        })
    }

    /// Whether rounding on another machine can explain how an evaluation differs from the log, `after` steps from a state
    /// that both had.
    pub(crate) fn is_score_rounding(&self, evaluation: &Evaluation, after: u64) -> bool {
        let Some(logged) = self.log.evaluations.get(&evaluation.step) else { return false };
        self.platform != Platform::Same && scores_are_near(logged, evaluation, after)
    }

    /// `after`: the number of steps since a state that the run kept.
    fn measure(&mut self, state: &State, after: u64, replay: &mut Replay) -> Result<(), RunError> {
        let evaluation = self.measurer.measure(&mut self.job, state)?;
        replay.evaluations += 1;
        if let Some(text) = self.evaluation_differs(&evaluation) {
            replay.differences.push(Difference {
                text: format!("the evaluation after step {}: {text}", state.step),
                maybe_rounding: self.is_score_rounding(&evaluation, after),
                slight: self.is_score_rounding(&evaluation, 0),
            });
        }
        Ok(())
    }
}

fn differs(logged: &Record, now: &Record) -> Option<String> {
    let now = &now.as_logged(logged);
    if logged.text() == now.text() {
        return None;
    }
    let differences = logged.differences(now);
    Some(if differences.is_empty() {
        "its line differs".to_owned()
    } else {
        differences.join("; ")
    })
}
