//! A/A noise: how much runs of one arm differ by their seeds alone.
//!
//! A mean is compared with the standard error of a mean, never with the spread of single differences, so that more seeds
//! find smaller effects. There is no estimate below three replicates, without a variance, or if half the values or more are
//! at a floor or a ceiling.
//!
//! Method: the expected difference of two runs of one arm is zero, so n differences estimate their variance as the
//! mean of their squares with n degrees of freedom; its interval is the chi-square one. Bouthillier et al. 2021,
//! "Accounting for variance in machine learning benchmarks", section 2 (vary init, data order and data together).

use super::sample::{Sample, Undefined, checked, no_spread};
use super::{Confidence, chi_square, student};

/// Fewest replicates for an estimate.
pub const FEWEST: usize = 3;

/// A metric's floor and ceiling: 0 and 1 for shares; the loss has none that runs reach.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Bounds {
    /// The smallest possible value.
    pub low: f64,
    /// The largest possible value.
    pub high: f64,
}

impl Bounds {
    /// Bounds of shares.
    pub const SHARE: Bounds = Bounds { low: 0.0, high: 1.0 };

    /// Refuses values if half or more are at one bound.
    fn check(self, values: &[f64]) -> Result<(), Undefined> {
        let tolerance = 1e-9 * (self.high - self.low).abs();
        for bound in [self.low, self.high] {
            let at = values.iter().filter(|value| (*value - bound).abs() <= tolerance).count();
            if at > 0 && 2 * at >= values.len() {
                return Err(Undefined::AtBound { bound, values: at, of: values.len() });
            }
        }
        Ok(())
    }
}

/// The spread of single A/A differences.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Noise {
    /// Standard deviation of one difference between two runs of the arm.
    pub sd: f64,
    /// Degrees of freedom of the estimate.
    pub df: f64,
    /// Number of replicates.
    pub repetitions: usize,
    /// Interval of the standard deviation.
    pub low: f64,
    /// Upper end of that interval.
    pub high: f64,
    /// The share of such intervals that should hold the truth.
    pub confidence: Confidence,
}

/// The noise of a mean of n differences.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct OfMean {
    /// Number of differences in the mean.
    pub n: usize,
    /// Standard error of the mean due to noise alone.
    pub standard_error: f64,
    /// Interval of the standard error.
    pub low: f64,
    /// Upper end of that interval.
    pub high: f64,
    /// A mean of n differences between runs of one arm exceeds this in absolute value only in the share 1 - confidence
    /// of cases. Accounts for the uncertainty of the noise estimate.
    pub band: f64,
}

impl Noise {
    /// The noise from pairs of runs of one arm; no two pairs share a seed.
    pub fn of_pairs(
        pairs: &[(f64, f64)],
        bounds: Option<Bounds>,
        confidence: Confidence,
    ) -> Result<Noise, Undefined> {
        let values: Vec<f64> = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect();
        let differences: Vec<f64> = pairs.iter().map(|(a, b)| b - a).collect();
        let differences = checked(&differences, FEWEST)?;
        if let Some(bounds) = bounds {
            bounds.check(&values)?;
        }
        let n = differences.len();
        let sd = libm::sqrt(differences.iter().map(|d| d * d).sum::<f64>() / n as f64);
        if no_spread(&values, sd) {
            return Err(Undefined::NoVariance { value: 0.0 });
        }
        Noise::new(sd, n as f64, n, confidence)
    }

    /// The noise from single runs of one arm that differ only in seeds; a difference of two has twice their variance.
    pub fn of_runs(
        values: &[f64],
        bounds: Option<Bounds>,
        confidence: Confidence,
    ) -> Result<Noise, Undefined> {
        checked(values, FEWEST)?;
        if let Some(bounds) = bounds {
            bounds.check(values)?;
        }
        let sample = Sample::from_values(values, FEWEST)?;
        let sd = libm::sqrt(2.0 * sample.variance);
        Noise::new(sd, (sample.n - 1) as f64, sample.n, confidence)
    }

    fn new(
        sd: f64,
        df: f64,
        repetitions: usize,
        confidence: Confidence,
    ) -> Result<Noise, Undefined> {
        if !sd.is_finite() {
            return Err(Undefined::NotFinite);
        }
        let end = |p: f64| sd * libm::sqrt(df / chi_square::quantile(p, df));
        let tail = 0.5 * confidence.alpha();
        Ok(Noise { sd, df, repetitions, low: end(1.0 - tail), high: end(tail), confidence })
    }

    /// The noise of a mean of `n` differences; `n` is at least 1.
    pub fn of_mean(&self, n: usize) -> OfMean {
        let n = n.max(1);
        let root = libm::sqrt(n as f64);
        OfMean {
            n,
            standard_error: self.sd / root,
            low: self.low / root,
            high: self.high / root,
            band: student::critical(self.confidence.alpha(), self.df) * self.sd / root,
        }
    }

    /// Two-sided p value of the hypothesis that this mean of `n` differences is due to noise alone. The differences
    /// must not be part of the estimate.
    pub fn p(&self, mean: f64, n: usize) -> f64 {
        student::two_sided(mean / self.of_mean(n).standard_error, self.df)
    }
}

#[cfg(test)]
mod tests {
    use super::super::draws::Draws;
    use super::super::simulation::percent;
    use super::*;

    const AT: Confidence = Confidence::NINETY_FIVE;

    #[test]
    fn samples_without_an_estimate_are_typed_errors() {
        let two = [(1.0, 1.1), (1.2, 1.3)];
        assert_eq!(Noise::of_pairs(&two, None, AT), Err(Undefined::TooFew { have: 2, need: 3 }));
        assert_eq!(
            Noise::of_runs(&[1.0, 2.0], None, AT),
            Err(Undefined::TooFew { have: 2, need: 3 })
        );
        assert_eq!(
            Noise::of_pairs(&[(0.4, 0.4); 3], Some(Bounds::SHARE), AT),
            Err(Undefined::NoVariance { value: 0.0 })
        );
        assert_eq!(Noise::of_pairs(&[(0.0, f64::NAN); 3], None, AT), Err(Undefined::NotFinite));
    }

    /// Values at a floor or a ceiling: all, half, fewer.
    #[test]
    fn pairs_at_a_floor_or_a_ceiling_give_no_estimate() {
        let share = Some(Bounds::SHARE);
        for bound in [0.0, 1.0] {
            let inner = 0.5;
            let cases = [
                (vec![(bound, bound); 3], true),
                (vec![(bound, inner), (bound, inner), (inner, bound)], true),
                (vec![(bound, inner), (inner, 0.6), (0.4, inner)], false),
            ];
            for (pairs, refused) in cases {
                let noise = Noise::of_pairs(&pairs, share, AT);
                let at_bound =
                    matches!(noise, Err(Undefined::AtBound { bound: b, .. }) if b == bound);
                assert_eq!(at_bound, refused, "{pairs:?}: {noise:?}");
            }
            assert!(matches!(
                Noise::of_runs(&[bound, bound, 0.5], share, AT),
                Err(Undefined::AtBound { values: 2, of: 3, .. })
            ));
        }
        // A metric without bounds may have many zeros.
        assert!(Noise::of_pairs(&[(0.0, 0.0), (0.0, 0.1), (0.0, 0.0)], None, AT).is_ok());
    }

    #[test]
    fn a_mean_is_held_against_the_standard_error_of_a_mean() {
        let noise = Noise::of_pairs(&[(1.0, 1.3), (1.0, 0.7), (1.0, 1.3)], None, AT).unwrap();
        assert!((noise.sd - 0.3).abs() < 1e-12);
        assert_eq!((noise.df, noise.repetitions), (3.0, 3));
        let (one, nine) = (noise.of_mean(1), noise.of_mean(9));
        assert!((one.standard_error - 0.3).abs() < 1e-12);
        assert!((nine.standard_error - 0.1).abs() < 1e-12);
        assert!((one.band / nine.band - 3.0).abs() < 1e-12);
        assert!((noise.p(nine.band, 9) - 0.05).abs() < 1e-9);
        assert!(noise.low < noise.sd && noise.sd < noise.high);
    }

    /// An earlier rule compared the mean of n with the largest of n single differences, and lost power as n grew.
    #[test]
    fn more_seeds_have_more_power_and_the_level_is_kept() {
        let mut last = 0.0;
        let mut draws = Draws::new("test noise power");
        for n in [3, 5, 9] {
            let mut outside = |effect: f64| {
                percent(4000, || {
                    let pairs: Vec<(f64, f64)> = (0..n).map(|_| (0.0, draws.normal())).collect();
                    let noise = Noise::of_pairs(&pairs, None, AT).unwrap();
                    let mean = (0..n).map(|_| effect + draws.normal()).sum::<f64>() / n as f64;
                    mean.abs() > noise.of_mean(n).band
                })
            };
            let (false_positives, power) = (outside(0.0), outside(2.0));
            assert!((false_positives - 5.0).abs() < 1.2, "{n}: {false_positives}");
            assert!(power > last, "{n}: {power} after {last}");
            last = power;
        }
        assert!(last > 99.0, "{last}");
        let mut by_the_old_rule = |n: usize| {
            percent(4000, || {
                let largest = (0..n).map(|_| draws.normal().abs()).fold(0.0, f64::max);
                let mean = (0..n).map(|_| 2.0 + draws.normal()).sum::<f64>() / n as f64;
                mean.abs() > largest
            })
        };
        assert!(by_the_old_rule(9) < by_the_old_rule(3));
    }

    #[test]
    fn the_interval_of_the_deviation_covers() {
        for n in [3, 5, 9] {
            let mut draws = Draws::new(&format!("test noise cover {n}"));
            let runs = percent(3000, || {
                let values: Vec<f64> = (0..n).map(|_| draws.normal()).collect();
                let noise = Noise::of_runs(&values, None, AT).unwrap();
                noise.low <= std::f64::consts::SQRT_2 && std::f64::consts::SQRT_2 <= noise.high
            });
            assert!((runs - 95.0).abs() < 1.3, "{n}: {runs}");
        }
    }
}
