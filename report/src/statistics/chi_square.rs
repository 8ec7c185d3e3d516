//! Quantiles of the chi-square distribution, with a relative error below 1e-9.

use super::special;

/// The mass below `x`.
pub(super) fn cdf(x: f64, df: f64) -> f64 {
    special::gamma(0.5 * df, 0.5 * x)
}

/// The point with mass `p`, strictly between 0 and 1, below it.
pub(super) fn quantile(p: f64, df: f64) -> f64 {
    let mut high = df.max(1.0);
    while cdf(high, df) < p && high < 1e12 {
        high *= 2.0;
    }
    special::root(0.0, high, |x| cdf(x, df) - p)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_equal_published_ones() {
        // For 2 degrees of freedom the mass above x is exp(-x / 2).
        for p in [1e-6, 0.025, 0.5, 0.975, 0.999] {
            let exact = -2.0 * libm::log1p(-p);
            assert!((quantile(p, 2.0) / exact - 1.0).abs() < 1e-9, "{p}");
        }
        // NIST/SEMATECH e-Handbook, section 1.3.6.7.4; more digits by mpmath.
        for (p, df, want) in CASES {
            assert!((quantile(p, df) / want - 1.0).abs() < 1e-9, "{p} {df}: {}", quantile(p, df));
        }
    }

    const CASES: [(f64, f64, f64); 5] = [
        (0.025, 1.0, 0.000982069117175256),
        (0.975, 3.0, 9.348403604496148),
        (0.05, 5.0, 1.1454762260617692),
        (0.95, 10.0, 18.307038053275146),
        (0.2, 29.0, 22.475051977511214),
    ];
}
