//! Statistics for conclusions from several runs, as pure functions of plain numbers. `docs/statistics.md` explains each
//! number.
//!
//! Random draws are keyed, so that each result is the same on every machine. A result that can be undefined is a typed
//! reason. Tests measure the coverage of each interval.

mod chi_square;
pub(crate) mod draws;
pub mod equivalence;
pub mod holm;
pub mod noise;
mod noncentral;
pub mod paired;
pub mod plan;
pub mod questions;
pub mod ratio;
mod sample;
pub mod scaling;
pub mod sequential;
pub mod sign_flip;
#[cfg(test)]
mod simulation;
mod special;
pub mod student;
pub mod tuned;

pub use equivalence::{Better, Effect, Judged, Margin};
pub use noise::Noise;
pub use paired::Paired;
pub use sample::Undefined;
pub use sign_flip::SignFlip;

/// The share of intervals that should hold the truth, such as 0.95. The level of a test is 1 minus this.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, serde::Serialize)]
#[serde(transparent)]
pub struct Confidence(f64);

impl Confidence {
    /// The usual confidence.
    pub const NINETY_FIVE: Confidence = Confidence(0.95);

    /// Accepts a share from 0.5 up to, but excluding, 1.
    pub fn new(share: f64) -> Option<Confidence> {
        (0.5..1.0).contains(&share).then_some(Confidence(share))
    }

    /// The share itself.
    pub fn share(self) -> f64 {
        self.0
    }

    /// The level of the two-sided test at this confidence: 0.05 at 0.95.
    pub fn alpha(self) -> f64 {
        1.0 - self.0
    }

    /// The confidence of each of several intervals, so that all of them hold together (Bonferroni).
    pub fn of_each(self, tests: usize) -> Confidence {
        Confidence(1.0 - self.alpha() / tests.max(1) as f64)
    }
}

/// The median, which is the mean of the two middle values for an even number; 0 for no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle.wrapping_sub(1)), sorted.get(middle)) {
        (Some(low), Some(high)) if sorted.len().is_multiple_of(2) => (low + high) / 2.0,
        (_, Some(value)) => *value,
        (_, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_is_the_middle_mean() {
        assert_eq!(median(&[]).to_bits(), 0.0f64.to_bits());
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
    }
}
