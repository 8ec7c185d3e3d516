//! Mean and variance of a few numbers. The order of the numbers changes no bit; numbers that differ only by rounding have no
//! variance.

use std::fmt;

/// Why a result is undefined.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum Undefined {
    /// There are fewer numbers than the method needs.
    TooFew {
        /// Number of values given.
        have: usize,
        /// Fewest values.
        need: usize,
    },
    /// A number is NaN or infinite.
    NotFinite,
    /// All numbers are equal, so their spread cannot be estimated.
    NoVariance {
        /// The value that all have.
        value: f64,
    },
    /// Too many values are at a floor or a ceiling for the spread to be meaningful.
    AtBound {
        /// The bound.
        bound: f64,
        /// Number of values at it.
        values: usize,
        /// Number of all values.
        of: usize,
    },
}

impl fmt::Display for Undefined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Undefined::TooFew { have, need } => {
                write!(f, "{have} values, but at least {need} are needed")
            }
            Undefined::NotFinite => write!(f, "a value is not a finite number"),
            Undefined::NoVariance { value } => {
                write!(f, "all values equal {value}, so their spread is unknown")
            }
            Undefined::AtBound { bound, values, of } => {
                write!(
                    f,
                    "{values} of {of} values are at the bound {bound}, so their spread is unknown"
                )
            }
        }
    }
}

/// Numbers with a spread of at most this share of the largest one differ only by rounding.
const ROUNDING: f64 = 1e-12;

/// A sample with a variance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) n: usize,
    pub(super) mean: f64,
    /// Sum of squares about the mean, over n - 1.
    pub(super) variance: f64,
}

impl Sample {
    /// From at least `need` finite numbers that are not all equal.
    pub(super) fn from_values(values: &[f64], need: usize) -> Result<Sample, Undefined> {
        let sorted = checked(values, need.max(2))?;
        let n = sorted.len();
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|v| (v - mean) * (v - mean)).sum();
        let variance = squares / (n - 1) as f64;
        if no_spread(&sorted, libm::sqrt(variance)) {
            return Err(Undefined::NoVariance { value: mean });
        }
        if !variance.is_finite() {
            return Err(Undefined::NotFinite);
        }
        Ok(Sample { n, mean, variance })
    }

    /// Standard error of the mean.
    pub(super) fn standard_error(&self) -> f64 {
        libm::sqrt(self.variance / self.n as f64)
    }
}

/// The numbers in ascending order, if there are enough and all are finite.
pub(super) fn checked(values: &[f64], need: usize) -> Result<Vec<f64>, Undefined> {
    if values.len() < need {
        return Err(Undefined::TooFew { have: values.len(), need });
    }
    if !values.iter().all(|v| v.is_finite()) {
        return Err(Undefined::NotFinite);
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Ok(sorted)
}

/// Whether a spread is only due to rounding.
pub(super) fn no_spread(values: &[f64], spread: f64) -> bool {
    let largest = values.iter().fold(0.0, |most, v| f64::max(most, v.abs()));
    spread <= ROUNDING * largest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_without_a_variance_are_typed_errors() {
        assert_eq!(Sample::from_values(&[1.0], 1), Err(Undefined::TooFew { have: 1, need: 2 }));
        assert_eq!(
            Sample::from_values(&[1.0, 2.0], 3),
            Err(Undefined::TooFew { have: 2, need: 3 })
        );
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Sample::from_values(&[1.0, bad, 2.0], 3), Err(Undefined::NotFinite));
        }
        assert_eq!(Sample::from_values(&[0.0; 3], 3), Err(Undefined::NoVariance { value: 0.0 }));
        // The same difference, rounded three ways.
        let rounded = [0.3, 0.1 + 0.2, 0.4 - 0.1];
        assert!(rounded[0] != rounded[1]);
        assert!(matches!(Sample::from_values(&rounded, 3), Err(Undefined::NoVariance { .. })));
        assert_eq!(Sample::from_values(&[1e300, -1e300, 0.0], 3), Err(Undefined::NotFinite));
    }

    #[test]
    fn order_changes_no_bit() {
        let values = [0.1, -0.7, 1e-9, 3.3, 0.25];
        let mut other = values;
        other.rotate_left(2);
        assert_eq!(Sample::from_values(&values, 3), Sample::from_values(&other, 3));
        let known = Sample::from_values(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0], 3).unwrap();
        assert_eq!((known.n, known.mean, known.variance), (8, 5.0, 32.0 / 7.0));
    }
}
