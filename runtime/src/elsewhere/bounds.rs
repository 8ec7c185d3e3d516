//! How far another engine may be from canonc's kernels, from one state: a row for each precision.
//!
//! The numbers are 3 to 100 times what was measured between canonc and PyTorch on CPUs (docs/dev/decisions.md).

use compiler::plan::Precision;
use records::checkpoint::Part;

/// Relative differences that rounding can explain in one precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The precision, in words.
    pub precision: &'static str,
    /// Of the first step's loss, relative to it, or to 1 nat where it is smaller: logarithms are of numbers near 1 there. It
    /// doubles with each step up to the fourth.
    first_loss: f64,
    /// Of the losses after that.
    loss: f64,
    /// Of the first step's gradient norm.
    first_norm: f64,
    /// Of the norms after that.
    norm: f64,
    /// Of the change of a tensor of weights in one step, relative to that change.
    update: f64,
    /// The same of a moment. The second is of squares, whose relative error is twice a gradient's.
    moment: f64,
    /// What is too small to be seen.
    pub hides: Option<&'static str>,
}

const F32: Bounds = Bounds {
    precision: "f32",
    first_loss: 3e-7,
    loss: 3e-6,
    first_norm: 1e-4,
    norm: 1e-4,
    update: 1e-3,
    moment: 1e-3,
    hides: None,
};

const BF16: Bounds = Bounds {
    precision: "bf16",
    first_loss: 1e-3,
    loss: 8e-3,
    first_norm: 2e-2,
    norm: 1e-1,
    update: 3e-2,
    moment: 2e-1,
    hides: Some(
        "what changes an update by less than 3%, such as a small weight decay that was left out or another epsilon",
    ),
};

/// The row of a lock.
pub fn bounds(precision: Precision) -> &'static Bounds {
    match precision {
        Precision::Bf16 => &BF16,
        Precision::F32 => &F32,
    }
}

/// Steps whose bound doubles.
const DOUBLING: u64 = 4;

impl Bounds {
    /// The bound of a loss so many steps after equal states.
    pub fn loss(&self, after: u64) -> f64 {
        match after {
            0..=DOUBLING => self.first_loss * (1u64 << after.saturating_sub(1)) as f64,
            _ => self.loss,
        }
    }

    /// The bound of an auxiliary loss, which is a mean of f32 numbers: their spacing alone is as wide as that of a loss.
    pub fn term(&self, after: u64) -> f64 {
        10.0 * self.loss(after)
    }

    /// How much wider the bounds of norms and updates are where the loss is below 1 nat: a gradient is then a small difference of
    /// probabilities near 1, whose rounding stays.
    pub fn widened(loss: Option<f64>) -> f64 {
        loss.map_or(1.0, |loss| 1.0 / loss.abs().clamp(1e-6, 1.0))
    }

    /// The bound of the change of a tensor in one step.
    pub fn update(&self, part: Part) -> f64 {
        match part {
            Part::Weights => self.update,
            Part::FirstMoment | Part::SecondMoment => self.moment,
        }
    }

    /// The bound of the change of a tensor so many steps after equal states: errors add up as changes do, and choices of
    /// small numbers grow.
    pub fn state(&self, part: Part, after: u64) -> f64 {
        if after <= 1 { self.update(part) } else { 10.0 * self.update(part) }
    }

    /// The bound of a gradient norm so many steps after equal states.
    pub fn norm(&self, after: u64) -> f64 {
        if after <= 1 { self.first_norm } else { self.norm }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_never_shrink_with_the_steps() {
        for row in [F32, BF16] {
            for after in 1..40 {
                assert!(row.loss(after) <= row.loss(after + 1), "{} {after}", row.precision);
                assert!(row.norm(after) <= row.norm(after + 1), "{} {after}", row.precision);
            }
        }
        assert_eq!([1, 2, 4, 5, 8].map(|after| F32.loss(after)), [3e-7, 6e-7, 2.4e-6, 3e-6, 3e-6]);
    }
}
