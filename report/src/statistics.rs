//! What numbers of several runs allow one to conclude.
//!
//! In: paired differences, scores, times and fits, as plain numbers. Out: intervals, p values, wordings and plans, or
//! a typed reason why there are none. Must stay true: pure functions (no files, no clock, no torch); random draws are
//! keyed, so each result is the same on every machine; no result is NaN or infinite without saying so in its type;
//! what an interval covers is measured by the tests of its module. `docs/statistics.md` explains each number.

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

pub use equivalence::{Better, Effect, Judged, Margin};
pub use noise::Noise;
pub use paired::Paired;
pub use sample::Undefined;
pub use sign_flip::SignFlip;

/// The share of intervals that shall hold the truth, such as 0.95. The level of a test is what is left.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, serde::Serialize)]
#[serde(transparent)]
pub struct Confidence(f64);

impl Confidence {
    /// The usual one.
    pub const NINETY_FIVE: Confidence = Confidence(0.95);

    /// A share from 0.5 up to, and without, 1.
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

    /// Of each of so many intervals, so that all of them hold their truths together (Bonferroni).
    pub fn of_each(self, tests: usize) -> Confidence {
        Confidence(1.0 - self.alpha() / tests.max(1) as f64)
    }
}
