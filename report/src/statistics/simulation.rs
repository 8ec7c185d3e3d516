//! Simulation helpers for the tests of several modules.

use super::draws::Draws;

/// The distribution of single differences; all have mean 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Law {
    /// Standard normal.
    Normal,
    /// Exponential with either sign (Laplace): symmetric, with heavy tails.
    Heavy,
    /// Exponential minus its mean: skewness 2.
    Skewed,
}

impl Law {
    pub(super) fn draw(self, draws: &mut Draws) -> f64 {
        match self {
            Law::Normal => draws.normal(),
            Law::Heavy => {
                let size = -libm::log(draws.uniform());
                if draws.uniform() < 0.5 { size } else { -size }
            }
            Law::Skewed => -libm::log(draws.uniform()) - 1.0,
        }
    }

    pub(super) fn sample(self, draws: &mut Draws, n: usize) -> Vec<f64> {
        (0..n).map(|_| self.draw(draws)).collect()
    }
}

/// The percentage of trials in which something holds.
pub(super) fn percent(trials: u32, mut holds: impl FnMut() -> bool) -> f64 {
    let held = (0..trials).filter(|_| holds()).count();
    100.0 * held as f64 / f64::from(trials)
}
