//! The training objective: the loss, the base learning rate and the optimizer's constants. Reals stay exact, and a loss
//! with weight 0 is not computed.

use compiler::number::{Ratio, Root};
use compiler::plan::{Decays, Loss, Optimizer};
use dsl::Decimal;

use super::access::{int, list, real, text};
use crate::field::{FieldValue, Fields};

/// An auxiliary loss's weight for each micro-batch of a step, if it is above 0.
fn term(fields: &Fields, path: &str) -> Option<Root> {
    let weight = Ratio::from_decimal(real(fields, path))?;
    let share = Ratio { num: 1, den: i128::from(int(fields, "batch.micro_batches").max(1)) };
    (weight.num != 0).then(|| weight.mul(share).map(Root::rational))?
}

pub(super) fn read(fields: &Fields) -> (Loss, Decimal, Optimizer) {
    let loss = Loss {
        nll_square: real(fields, "loss.nll_square"),
        z_loss: real(fields, "loss.z_loss"),
        balance: term(fields, "loss.balance"),
        router_z: term(fields, "loss.router_z"),
        // Its gradients are divided by the counted targets of the whole step, as the loss is.
        ahead: Ratio::from_decimal(real(fields, "loss.ahead"))
            .filter(|weight| weight.num != 0)
            .map(Root::rational),
    };
    let beta = |i: usize| match list(fields, "optimizer.betas").get(i) {
        Some(FieldValue::Real(x)) => *x,
        Some(
            FieldValue::Int(_)
            | FieldValue::Big(_)
            | FieldValue::Bool(_)
            | FieldValue::Text(_)
            | FieldValue::List(_),
        )
        | None => Decimal::ZERO,
    };
    let optimizer = Optimizer {
        beta1: beta(0),
        beta2: beta(1),
        eps: real(fields, "optimizer.eps"),
        weight_decay: real(fields, "optimizer.weight_decay"),
        decays: match text(fields, "optimizer.decay") {
            "matrices" => Decays::Matrices,
            _ => Decays::All,
        },
        clip: match fields.get("optimizer.clip") {
            Some(FieldValue::Real(x)) => Some(*x),
            Some(_) | None => None,
        },
    };
    (loss, real(fields, "optimizer.lr"), optimizer)
}
