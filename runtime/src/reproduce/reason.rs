//! Concludes from the numbers and tensors that differ where in a step the difference arises.
//!
//! A part of a step is named only if everything before it is known to be equal; equal numbers do not prove that the
//! tensors behind them are equal. An edited line or checkpoint is named as a cause unless something rules it out.

use crate::replay::{Origin, Platform, RunPoint};
use dsl::Problem;
use records::checkpoint::StateDifference;
use records::metrics::{Record, Step};

use super::Search;

impl Search {
    /// A conclusion from the step's numbers that differ. `checkpoint` is the step of a later one that differs too.
    pub(super) fn reason_from_numbers(
        &self,
        step: &Step,
        checkpoint: Option<u64>,
    ) -> Option<String> {
        let logged = self.replayer.run.record(RunPoint::Step(step.step))?;
        let Record::Step(logged) = logged else { return None };
        let known = self.origin.step() + 1 == step.step;
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
                self.origin.text(),
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
    pub(super) fn reason_from_kept_state(&mut self) -> Result<Option<String>, Problem> {
        if self.replayer.platform != Platform::Same {
            return Ok(None);
        }
        let last = self.replayer.run.last();
        let kept = self.replayer.run.kept.iter().rev().find(|kept| kept.manifest.step + 2 <= last);
        let Some(kept) = kept.cloned() else { return Ok(None) };
        let origin = Origin::Kept(Box::new(kept));
        let mut state = self.replayer.state(&origin)?;
        let mut differs = [None, None];
        // The first checkpoint after a differing step, and whether it has the bits computed here.
        let mut after = None;
        for differing in 0..differs.len() {
            let step = state.advance(&mut self.replayer.job, &self.replayer.trainer)?;
            let at = step.step;
            let difference = self.replayer.difference(&Record::Step(step), origin.step());
            differs[differing] = difference.map(|_| at);
            if differs != [None, None] && after.is_none() {
                let checkpoint = self.replayer.compare_checkpoint(&state)?;
                after = checkpoint.map(|difference| (at, difference.is_none()));
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
}

/// A conclusion from the tensors that differ after one step from a state that both had.
pub(super) fn from_one_step(difference: &StateDifference) -> String {
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
