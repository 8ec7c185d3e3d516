//! The probability that a t test of n normal differences succeeds, with an absolute error below 1e-8 for 2 degrees of
//! freedom and more.
//!
//! Method: given s, the estimated standard deviation over the true one, the mean is normal and independent of s; the
//! probability is the integral of the normal one over the density of s (the square root of chi-square over its degrees
//! of freedom), by Simpson's rule. The noncentral t distribution is its special case (Owen 1965, "A special case of a
//! bivariate non-central t-distribution", for the equivalence test).

use records::init::normal;

const PANELS: u32 = 2000;

/// The mean of `given(s)` over s, the estimated standard deviation over the true one.
pub(super) fn over_deviation(df: f64, given: impl Fn(f64) -> f64) -> f64 {
    // The density is below 1e-18 of its peak beyond these ends.
    let (low, high) = (f64::max(0.0, 1.0 - 7.0 / libm::sqrt(df)), 1.0 + 7.0 / libm::sqrt(df));
    let half = 0.5 * df;
    let constant = std::f64::consts::LN_2 + half * libm::log(half) - libm::lgamma(half);
    let weight = |s: f64| {
        if s <= 0.0 {
            return 0.0;
        }
        libm::exp(constant + (df - 1.0) * libm::log(s) - half * s * s)
    };
    let step = (high - low) / f64::from(PANELS);
    let mut sum = 0.0;
    for at in 0..=PANELS {
        let s = low + f64::from(at) * step;
        let simpson = match at {
            0 | PANELS => 1.0,
            at if at % 2 == 1 => 4.0,
            _ => 2.0,
        };
        let density = weight(s);
        if density > 0.0 {
            sum += simpson * density * given(s);
        }
    }
    sum * step / 3.0
}

/// The chance that |t| exceeds `critical` if the true mean is `shift` standard errors from zero.
pub(super) fn beyond(critical: f64, df: f64, shift: f64) -> f64 {
    over_deviation(df, |s| {
        normal::distribution(shift - critical * s) + normal::distribution(-shift - critical * s)
    })
}

/// The chance that the interval mean ± `critical` standard errors is within ± `margin`, both `margin` and the true
/// mean `shift` in true standard errors.
pub(super) fn within(critical: f64, df: f64, shift: f64, margin: f64) -> f64 {
    over_deviation(df, |s| {
        let room = margin - critical * s;
        if room <= 0.0 {
            return 0.0;
        }
        normal::distribution(room - shift) - normal::distribution(-room - shift)
    })
}

#[cfg(test)]
mod tests {
    use super::super::student;
    use super::*;

    #[test]
    fn the_density_integrates_to_one_and_the_central_case_is_students_t() {
        for df in [2.0, 3.0, 4.0, 8.0, 29.0, 200.0] {
            assert!((over_deviation(df, |_| 1.0) - 1.0).abs() < 1e-8, "{df}");
            for t in [0.5, 2.0, 4.303] {
                let probability = beyond(t, df, 0.0);
                assert!(
                    (probability - student::two_sided(t, df)).abs() < 1e-8,
                    "{df} {t}: {probability}"
                );
            }
        }
    }

    /// The two-sided power of the paired t test at level 0.05: (n, effect in standard deviations, power), by numeric
    /// integration with mpmath at 30 digits; Cohen 1988, table 2.3, gives the same to two digits.
    #[test]
    fn power_equals_known_values() {
        for (n, effect, want) in POWERS {
            let df = n - 1.0;
            let critical = student::critical(0.05, df);
            let probability = beyond(critical, df, effect * libm::sqrt(n));
            assert!((probability - want).abs() < 1e-8, "{n} {effect}: {probability}, not {want}");
        }
    }

    const POWERS: [(f64, f64, f64); 5] = [
        (3.0, 2.0, 0.47074943127843477),
        (5.0, 1.0, 0.401389917371795),
        (9.0, 1.0, 0.7480170922294763),
        (15.0, 1.0, 0.9490864806895408),
        (34.0, 0.5, 0.807777501279274),
    ];
}
