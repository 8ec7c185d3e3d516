//! Ratios of times, on the log scale, so that a ratio and its inverse agree. If the base's ratios to itself scatter or drift
//! beyond a declared bound, there is no interval.
//!
//! Method: the paired t interval of logarithms. Fleming and Wallace 1986, "How not to lie with statistics" (ratios are
//! averaged geometrically).

use std::fmt;

use super::sample::{Undefined, checked};
use super::{Confidence, Paired};

/// Fewest ratios of the base to itself for judging the machine.
pub const FEWEST_OF_BASE: usize = 3;

/// A geometric mean ratio; 1 means equal times, 2 that the treated arm takes twice the time.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Ratio {
    /// Number of ratios.
    pub n: usize,
    /// Geometric mean.
    pub mean: f64,
    /// Lower end of the interval of the mean.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Two-sided p value for a true ratio of 1.
    pub p: f64,
    /// The ratio of the base to itself, at least 1.
    pub base_against_itself: f64,
    /// The share of such intervals that should hold the truth.
    pub confidence: Confidence,
}

/// Why a ratio has no interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "refused")]
pub enum Refused {
    /// Too few ratios, or no variance.
    Undefined(Undefined),
    /// A time is zero, negative or not a number.
    NotPositive,
    /// The base was not compared with itself often enough.
    BaseNotMeasured {
        /// Number of ratios of the base to itself.
        have: usize,
        /// Fewest such ratios.
        need: usize,
    },
    /// The base differs from itself by more than the bound; both are ratios of at least 1.
    Unsteady {
        /// The ratio of the base to itself, at least 1.
        base_against_itself: f64,
        /// The largest such ratio at which a time has an interval.
        bound: f64,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Undefined(undefined) => undefined.fmt(f),
            Refused::NotPositive => write!(f, "a time is not a number above zero"),
            Refused::BaseNotMeasured { have, need } => write!(
                f,
                "the base was timed against itself {have} times; at least {need} are needed"
            ),
            Refused::Unsteady { base_against_itself, bound } => write!(
                f,
                "the base differs from itself by ×{base_against_itself:.3}, more than ×{bound}"
            ),
        }
    }
}

/// The ratio of the base to itself: the exponential of the root mean square of its log ratios, at least 1. It includes
/// drift as well as scatter, and does not grow with the number of measurements.
pub fn base_against_itself(ratios: &[f64]) -> Result<f64, Refused> {
    let logs = logs(ratios)?;
    if logs.len() < FEWEST_OF_BASE {
        return Err(Refused::BaseNotMeasured { have: logs.len(), need: FEWEST_OF_BASE });
    }
    let logs = checked(&logs, FEWEST_OF_BASE).map_err(Refused::Undefined)?;
    let square = logs.iter().map(|log| log * log).sum::<f64>() / logs.len() as f64;
    Ok(libm::exp(libm::sqrt(square)))
}

/// The interval of the ratio; `bound` is a ratio above 1, such as 1.05.
pub fn ratio(
    treated_over_base: &[f64],
    base_over_itself: &[f64],
    bound: f64,
    confidence: Confidence,
) -> Result<Ratio, Refused> {
    let base_against_itself = base_against_itself(base_over_itself)?;
    // A NaN bound refuses, too.
    if !matches!(base_against_itself.partial_cmp(&bound), Some(o) if o.is_le()) {
        return Err(Refused::Unsteady { base_against_itself, bound });
    }
    let logs = logs(treated_over_base)?;
    let interval = Paired::from_differences(&logs, confidence).map_err(Refused::Undefined)?;
    let [mean, low, high] = [interval.mean, interval.low, interval.high].map(libm::exp);
    if !high.is_finite() {
        return Err(Refused::Undefined(Undefined::NotFinite));
    }
    Ok(Ratio { n: interval.n, mean, low, high, p: interval.p, base_against_itself, confidence })
}

fn logs(ratios: &[f64]) -> Result<Vec<f64>, Refused> {
    let log = |r: &f64| (*r > 0.0 && r.is_finite()).then(|| libm::log(*r));
    ratios.iter().map(log).collect::<Option<_>>().ok_or(Refused::NotPositive)
}

#[cfg(test)]
mod tests {
    use super::super::draws::Draws;
    use super::super::simulation::percent;
    use super::*;

    const AT: Confidence = Confidence::NINETY_FIVE;
    const STEADY: [f64; 3] = [1.01, 0.99, 1.0];

    #[test]
    fn a_ratio_and_its_inverse_say_the_same() {
        let ratios = [1.29, 1.36, 1.39, 1.31];
        let interval = ratio(&ratios, &STEADY, 1.05, AT).unwrap();
        let inverse = ratio(&ratios.map(|r| 1.0 / r), &STEADY, 1.05, AT).unwrap();
        assert!((interval.mean * inverse.mean - 1.0).abs() < 1e-12);
        assert!((interval.low * inverse.high - 1.0).abs() < 1e-12);
        assert!((interval.p - inverse.p).abs() < 1e-12);
        assert!(interval.low > 1.2 && interval.high < 1.5, "{interval:?}");
    }

    #[test]
    fn an_unsteady_machine_gives_no_interval() {
        let ratios = [1.3, 1.35, 1.4];
        // Scatter, drift alone, and exactly the limit.
        for (base, refused) in
            [([0.78, 1.19, 1.05], true), ([1.06, 1.06, 1.06], true), ([1.04, 1.04, 1.04], false)]
        {
            let interval = ratio(&ratios, &base, 1.05, AT);
            assert_eq!(matches!(interval, Err(Refused::Unsteady { .. })), refused, "{base:?}");
        }
        assert!(matches!(ratio(&ratios, &STEADY, f64::NAN, AT), Err(Refused::Unsteady { .. })));
        assert_eq!(
            ratio(&ratios, &[1.0, 1.01], 1.05, AT),
            Err(Refused::BaseNotMeasured { have: 2, need: 3 })
        );
        assert_eq!(ratio(&[1.0, 0.0, 2.0], &STEADY, 1.05, AT), Err(Refused::NotPositive));
        assert_eq!(
            ratio(&[1e-300, 1.0, 1e300], &STEADY, 1.05, AT),
            Err(Refused::Undefined(Undefined::NotFinite))
        );
        assert_eq!(
            ratio(&[1.1, 1.2], &STEADY, 1.05, AT),
            Err(Refused::Undefined(Undefined::TooFew { have: 2, need: 3 }))
        );
    }

    #[test]
    fn the_interval_covers_where_logarithms_are_normal() {
        for n in [3, 5, 9] {
            let mut draws = Draws::new(&format!("test ratio {n}"));
            let covered = percent(3000, || {
                let ratios: Vec<f64> =
                    (0..n).map(|_| 1.3 * libm::exp(0.1 * draws.normal())).collect();
                let interval = ratio(&ratios, &STEADY, 1.05, AT).unwrap();
                interval.low <= 1.3 && 1.3 <= interval.high
            });
            assert!((covered - 95.0).abs() < 1.3, "{n}: {covered}");
        }
    }
}
