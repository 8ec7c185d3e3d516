//! The paired t interval of a mean difference, the primary interval of a comparison.
//!
//! The order of the seeds changes no bit. The coverage of the intervals is measured by simulation ([`covers`]), not only
//! promised.
//!
//! Source: Student 1908; Colas, Sigaud and Oudeyer 2018, "How many random seeds?", section 3 (the t test and its
//! assumptions at few seeds). It is exact where differences are normally distributed.

use super::sample::{Sample, Undefined};
use super::{Confidence, student};

/// Fewest differences for an interval.
pub const FEWEST: usize = 3;

/// The mean of paired differences, with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Paired {
    /// Number of differences.
    pub n: usize,
    /// Mean difference.
    pub mean: f64,
    /// Standard deviation of single differences.
    pub sd: f64,
    /// Standard error of the mean.
    pub standard_error: f64,
    /// Lower end of the interval of the mean.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Two-sided p value for a mean difference of zero.
    pub p: f64,
    /// The share of such intervals that should hold the truth.
    pub confidence: Confidence,
}

impl Paired {
    /// From at least [`FEWEST`] differences.
    pub fn from_differences(
        differences: &[f64],
        confidence: Confidence,
    ) -> Result<Paired, Undefined> {
        let sample = Sample::from_values(differences, FEWEST)?;
        Ok(Paired::from_parts(&sample, confidence))
    }

    pub(super) fn from_parts(sample: &Sample, confidence: Confidence) -> Paired {
        let df = (sample.n - 1) as f64;
        let standard_error = sample.standard_error();
        let half = student::critical(confidence.alpha(), df) * standard_error;
        Paired {
            n: sample.n,
            mean: sample.mean,
            sd: libm::sqrt(sample.variance),
            standard_error,
            low: sample.mean - half,
            high: sample.mean + half,
            p: student::two_sided(sample.mean / standard_error, df),
            confidence,
        }
    }

    /// Degrees of freedom of the standard error.
    pub fn df(&self) -> f64 {
        (self.n - 1) as f64
    }

    /// The interval at another confidence, such as that of one row among several.
    pub fn interval(&self, confidence: Confidence) -> (f64, f64) {
        let half = student::critical(confidence.alpha(), self.df()) * self.standard_error;
        (self.mean - half, self.mean + half)
    }
}

/// The number of 95% intervals of n differences, out of a hundred, that hold the true mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Coverage {
    /// For normally distributed differences.
    pub normal: u32,
    /// For differences as skewed as an exponential distribution (skewness 2).
    pub skewed: u32,
}

/// Measured coverage of the 95% interval; between the measured n, that of the next lower one. `None` below
/// [`FEWEST`]. A test repeats the measurement.
pub fn covers(n: usize) -> Option<Coverage> {
    let (_, normal, skewed) = COVERS.iter().rev().find(|(seeds, ..)| *seeds <= n)?;
    Some(Coverage { normal: *normal, skewed: *skewed })
}

/// (n, percent for normal differences, percent for skewed ones), both rounded down.
const COVERS: [(usize, u32, u32); 7] =
    [(3, 95, 88), (4, 95, 88), (5, 95, 88), (6, 95, 88), (9, 95, 89), (15, 95, 91), (30, 95, 92)];

#[cfg(test)]
mod tests {
    use super::super::draws::Draws;
    use super::super::simulation::{Law, percent};
    use super::*;

    const AT: Confidence = Confidence::NINETY_FIVE;

    #[test]
    fn a_published_example_is_reproduced() {
        // Student 1908, table of Cushny and Peebles: hours of sleep gained, ten patients, two drugs.
        let sleep = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];
        let interval = Paired::from_differences(&sleep, AT).unwrap();
        // R's t.test: t = 4.0621, df = 9, p = 0.002833, interval 0.7001142 to 2.4598858, mean 1.58.
        assert!((interval.mean - 1.58).abs() < 1e-12);
        assert!((interval.mean / interval.standard_error - 4.0621).abs() < 5e-5);
        assert!((interval.p - 0.002833).abs() < 5e-7, "{interval:?}");
        assert!(
            (interval.low - 0.7001142).abs() < 5e-8 && (interval.high - 2.4598858).abs() < 5e-8
        );
        assert_eq!(interval.interval(AT), (interval.low, interval.high));
    }

    #[test]
    fn p_and_interval_agree() {
        let mut draws = Draws::new("test paired agree");
        for n in [3, 5, 9] {
            for _ in 0..300 {
                let values: Vec<f64> = (0..n).map(|_| draws.normal() + 0.7).collect();
                let interval = Paired::from_differences(&values, AT).unwrap();
                let excluded = interval.low > 0.0 || interval.high < 0.0;
                assert_eq!(interval.p < 0.05, excluded, "{interval:?}");
            }
        }
    }

    #[test]
    fn without_a_variance_there_is_a_reason() {
        assert_eq!(
            Paired::from_differences(&[1.0, 2.0], AT),
            Err(Undefined::TooFew { have: 2, need: 3 })
        );
        assert_eq!(
            Paired::from_differences(&[0.0; 5], AT),
            Err(Undefined::NoVariance { value: 0.0 })
        );
        assert_eq!(Paired::from_differences(&[1.0, f64::NAN, 2.0], AT), Err(Undefined::NotFinite));
    }

    /// The coverage stated in the heads of columns.
    #[test]
    fn the_interval_covers_as_documented() {
        let mut wrong = Vec::new();
        for (n, normal, skewed) in COVERS {
            for (law, stated) in [(Law::Normal, normal), (Law::Skewed, skewed)] {
                let mut draws = Draws::new(&format!("test paired {n} {law:?}"));
                let covered = percent(20_000, || {
                    let interval =
                        Paired::from_differences(&law.sample(&mut draws, n), AT).unwrap();
                    interval.low <= 0.0 && 0.0 <= interval.high
                });
                // From two standard errors of the simulation below the stated coverage to one point above it.
                if !(f64::from(stated) - 0.4..f64::from(stated) + 1.0).contains(&covered) {
                    wrong.push((n, law, stated, covered));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!(covers(2), None);
        assert_eq!(covers(8), covers(6));
    }

    #[test]
    fn power_rises_with_seeds() {
        // An effect of one standard deviation; the noncentral t distribution gives 0.20, 0.40, 0.75 and 0.98.
        let mut last = 0.0;
        for (n, power) in [(3, 18.0), (5, 40.1), (9, 75.0), (15, 94.9)] {
            let mut draws = Draws::new(&format!("test paired power {n}"));
            let covered = percent(4000, || {
                let values: Vec<f64> = (0..n).map(|_| draws.normal() + 1.0).collect();
                Paired::from_differences(&values, AT).unwrap().p < 0.05
            });
            assert!(covered > last && (covered - power).abs() < 3.0, "{n}: {covered}, not {power}");
            last = covered;
        }
    }
}
