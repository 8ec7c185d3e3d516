//! In: which numbers and tensors of a run differ from those computed here. Out: where in a step that arises, as a
//! sentence. Must stay true: only what follows is said; a part of a step is named only where everything before it is
//! known to be equal.

use crate::checkpoint::StateDifference;
use crate::metrics::Step;
use crate::replay::{Origin, Platform};
use crate::run::RunError;

use super::Again;

impl Again {
    /// What follows from which of a step's numbers differ.
    pub(super) fn of_numbers(&self, step: &Step) -> Option<String> {
        let logged = self.replayer.log.steps.get(&step.step)?;
        let known = self.agreed.step() + 1 == step.step;
        if logged.batch != step.batch || logged.counted != step.counted {
            return Some("its data differ: other windows were read than the lock says".to_owned());
        }
        if logged.lr.to_bits() != step.lr.to_bits() {
            return Some("its learning rate differs, which the lock alone decides".to_owned());
        }
        let same_loss = logged.loss.map(f64::to_bits) == step.loss.map(f64::to_bits);
        Some(match (same_loss, known) {
            (true, _) => format!(
                "its loss agrees and the norm of its gradients does not: the difference arises in the backward pass \
                 of step {}{}",
                step.step,
                if known { "" } else { ", or in weights that the loss does not show" }
            ),
            (false, true) => format!(
                "it starts from {}, the same bits in both: the difference arises in the forward pass of step {}",
                self.agreed.text(),
                step.step
            ),
            (false, false) => format!(
                "the loss and gradient norm of step {} agree and the loss of step {} does not: the difference arises \
                 in the update of step {} (clip, adamw), in the forward pass of step {}, or earlier in bits that no \
                 logged number shows",
                step.step - 1,
                step.step,
                step.step - 1,
                step.step
            ),
        })
    }

    /// What follows from computing the next two steps from a state as the run itself kept it, right or wrong: the
    /// first shows its forward and backward passes, the second its update.
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
        for difference in &mut differs {
            let step = state.advance(&mut self.replayer.job, &self.replayer.trainer)?;
            *difference = self.replayer.step_differs(&step).map(|_| step.step);
        }
        let from = format!("from {} as the run kept it", origin.text());
        Ok(Some(match differs {
            [Some(step), _] => format!(
                "{from}, step {step} does not come out as logged either: its forward or backward pass differs"
            ),
            [None, Some(step)] => format!(
                "{from}, step {} comes out as logged, so that its forward and backward passes are the same, and step \
                 {step} does not: the operation that differs is in the update, clip or adamw",
                step - 1
            ),
            [None, None] => format!(
                "{from}, the next two steps come out as logged: the difference arises before that state alone"
            ),
        }))
    }
}

/// What follows from which tensors differ after one step from a state that both had.
pub(super) fn of_one_step(difference: &StateDifference) -> String {
    let StateDifference { first: _, weights: _, first_moment, second_moment, of: _ } = difference;
    match (first_moment, second_moment) {
        (0, 0) => "both moments agree after this one step and weights do not: the gradients were the same, and the \
                   operation that differs is adamw's change of the weights (its learning rate, its weight decay or its \
                   epsilon)"
            .to_owned(),
        (0, _) => "first moments agree after this one step and second moments do not: the gradients were the same, \
                   and the operation that differs is adamw's change of the second moments (beta2)"
            .to_owned(),
        _ => "moments differ after this one step: the gradients differ, or adamw's change of the first moments (beta1, \
              clipping)"
            .to_owned(),
    }
}
