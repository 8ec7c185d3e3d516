//! In: the numbers and tensors of a run that differ from those computed here. Out: a sentence on where in a step the
//! difference arises. Must stay true: every sentence follows from the evidence; a part of a step is named only if
//! everything before it is known to be equal; equal numbers do not prove that the tensors behind them are equal; an
//! edited line or checkpoint is named as a cause unless something rules it out.

use crate::replay::{Origin, Platform};
use crate::state::State;
use records::checkpoint::{StateDifference, compare};
use records::metrics::Step;
use records::run::RunError;

use super::Again;

impl Again {
    /// A conclusion from the step's numbers that differ. `checkpoint` is the step of a later one that differs too.
    pub(super) fn of_numbers(&self, step: &Step, checkpoint: Option<u64>) -> Option<String> {
        let logged = self.replayer.log.steps.get(&step.step)?;
        let known = self.agreed.step() + 1 == step.step;
        if logged.batch != step.batch || logged.counted != step.counted {
            return Some("its data differ: the windows are not those of the lock".to_owned());
        }
        if logged.lr.to_bits() != step.lr.to_bits() {
            return Some("its learning rate differs, which only the lock determines".to_owned());
        }
        let same_loss = logged.loss.map(f64::to_bits) == step.loss.map(f64::to_bits);
        let line = match checkpoint {
            None => ", or the logged line was changed".to_owned(),
            Some(at) => format!(
                "; a changed line alone does not explain it, since the checkpoint of step {at} differs too"
            ),
        };
        Some(match (same_loss, known) {
            (true, _) => format!(
                "its loss agrees but its gradient norm does not: the difference arises in the backward pass \
                 of step {}, or in {} that the loss does not show{line}",
                step.step,
                if known { "bits of its forward pass" } else { "weights" }
            ),
            (false, true) => format!(
                "it starts from {}, the same bits in both: the difference arises in the forward pass of step {}{line}",
                self.agreed.text(),
                step.step
            ),
            (false, false) => format!(
                "the loss and gradient norm of step {} agree and the loss of step {} does not: the difference arises \
                 in the update of step {} (clip, adamw), in the forward pass of step {}, or earlier in bits that no \
                 logged number shows{line}",
                step.step - 1,
                step.step,
                step.step - 1,
                step.step
            ),
        })
    }

    /// A conclusion from computing the next two steps from the run's own kept state, right or wrong: the first shows
    /// its forward and backward passes, the second its update.
    pub(super) fn of_kept_state(&mut self) -> Result<Option<String>, RunError> {
        if self.replayer.platform != Platform::Same {
            return Ok(None);
        }
        let last = self.replayer.log.last();
        let kept = self.replayer.kept.iter().rev().find(|found| found.manifest.step + 2 <= last);
        let Some(found) = kept.cloned() else { return Ok(None) };
        let origin = Origin::Kept(Box::new(found));
        let mut state = self.replayer.state(&origin)?;
        let mut differs = [None, None];
        // The first checkpoint after a differing step, and whether it has the bits computed here.
        let mut after = None;
        for at in 0..differs.len() {
            let step = state.advance(&mut self.replayer.job, &self.replayer.trainer)?;
            if let Some(difference) = differs.get_mut(at) {
                *difference = self.replayer.step_differs(&step).map(|_| step.step);
            }
            if differs != [None, None] && after.is_none() {
                after = self.checkpoint_agrees(&state)?;
            }
        }
        drop(state);
        let line = match after {
            Some((at, true)) => {
                return Ok(Some(format!(
                    "from {} as the run kept it, training gives the bits of the checkpoint of step {at}: from there \
                     only logged lines differ",
                    origin.text()
                )));
            }
            Some((at, false)) => format!(
                "; a changed line alone does not explain it, since the checkpoint of step {at} does not come out \
                 from there either"
            ),
            None => ", or the logged line was changed".to_owned(),
        };
        let from = format!("from {} as the run kept it", origin.text());
        Ok(Some(match differs {
            [Some(step), _] => format!(
                "{from}, step {step} does not come out as logged either: the difference arises in its forward or \
                 backward pass{line}"
            ),
            [None, Some(step)] => format!(
                "{from}, step {} agrees in every logged number and step {step} does not: the difference arises in \
                 the update of step {} (clip, adamw), in the forward or backward pass of step {step}, or in bits of \
                 step {} that no logged number shows{line}",
                step - 1,
                step - 1,
                step - 1
            ),
            [None, None] => format!(
                "{from}, the next two steps agree in every logged number: what differs there arises before that \
                 state, or in bits that no logged number shows"
            ),
        }))
    }

    /// Whether a state has the bits of its step's checkpoint; `None` if none is kept.
    fn checkpoint_agrees(&self, state: &State) -> Result<Option<(u64, bool)>, RunError> {
        let kept = self.replayer.kept.iter().find(|found| found.manifest.step == state.step);
        let Some(found) = kept else { return Ok(None) };
        let difference = compare(&self.replayer.store, found, &mut |part, index, out| {
            state.read(part, index, out)
        })?;
        Ok(Some((state.step, difference.is_none())))
    }
}

/// A conclusion from the tensors that differ after one step from a state that both had.
pub(super) fn of_one_step(difference: &StateDifference) -> String {
    let StateDifference { first: _, weights: _, first_moment, second_moment, of: _ } = difference;
    let what = match (first_moment, second_moment) {
        (0, 0) => {
            "both moments agree after this one step and weights do not: the difference arises in adamw's change of \
             the weights (its learning rate, its weight decay or its epsilon)"
        }
        (0, _) => {
            "first moments agree after this one step and second moments do not: the difference arises in adamw's \
             change of the second moments (beta2), or in bits of the gradients that first moments do not show"
        }
        _ => {
            "moments differ after this one step: the gradients differ, or adamw's change of the first moments (beta1, \
             clipping)"
        }
    };
    format!("{what}, or the checkpoint was altered")
}
