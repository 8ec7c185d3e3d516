//! Tail masses and quantiles of Student's t distribution, with a relative error below 1e-10 for up to 10^4 degrees of freedom,
//! also far out in the tails. The bits are the same on every machine.
//!
//! Source: Student 1908; the mass is the incomplete beta function of Abramowitz and Stegun 26.7.1.

use std::cell::Cell;

use super::special;

/// The mass beyond -|t| and +|t| together.
pub fn two_sided(t: f64, df: f64) -> f64 {
    if t.is_infinite() {
        return 0.0;
    }
    let square = t * t;
    special::beta(0.5 * df, 0.5, df / (df + square), square / (df + square))
}

/// The mass above `t`.
pub fn above(t: f64, df: f64) -> f64 {
    let half = 0.5 * two_sided(t, df);
    if t > 0.0 { half } else { 1.0 - half }
}

/// The mass below `t`.
pub fn cdf(t: f64, df: f64) -> f64 {
    above(-t, df)
}

/// The t beyond which the two tails together have mass `alpha`; infinite for 0, and 0 for 1 or more.
pub fn critical(alpha: f64, df: f64) -> f64 {
    if alpha <= 0.0 {
        return f64::INFINITY;
    }
    if alpha >= 1.0 {
        return 0.0;
    }
    let mut latest = LATEST.get();
    if let Some(known) = latest.iter().find(|known| known.alpha == alpha && known.df == df) {
        return known.t;
    }
    let t = solved(alpha, df);
    latest.rotate_right(1);
    latest[0] = Critical { alpha, df, t };
    LATEST.set(latest);
    t
}

/// A result of [`critical`].
#[derive(Clone, Copy)]
struct Critical {
    alpha: f64,
    df: f64,
    t: f64,
}

thread_local! {
    /// The latest results: an analysis asks for few levels, of many samples of the same size.
    static LATEST: Cell<[Critical; 8]> =
        const { Cell::new([Critical { alpha: f64::NAN, df: f64::NAN, t: f64::NAN }; 8]) };
}

fn solved(alpha: f64, df: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided(high, df) > alpha {
        if high > 1e100 {
            return f64::INFINITY;
        }
        (low, high) = (high, 16.0 * high);
    }
    // Newton's method on the logarithm of the tail, kept between the ends.
    let mut t = 0.5 * (low + high);
    for _ in 0..200 {
        let tail = two_sided(t, df);
        let wrong = libm::log(tail / alpha);
        if wrong == 0.0 {
            break;
        }
        if wrong > 0.0 {
            low = t;
        } else {
            high = t;
        }
        let mut next = t + wrong * tail / (2.0 * density(t, df));
        if !(low <= next && next <= high) {
            next = 0.5 * (low + high);
        }
        let step = (next - t).abs();
        t = next;
        if step <= 1e-14 * t {
            break;
        }
    }
    t
}

/// The point with mass `p` below it.
pub fn quantile(p: f64, df: f64) -> f64 {
    if p < 0.5 { -critical(2.0 * p, df) } else { critical(2.0 * (1.0 - p), df) }
}

fn density(t: f64, df: f64) -> f64 {
    let half = 0.5 * (df + 1.0);
    let log = libm::lgamma(half)
        - libm::lgamma(0.5 * df)
        - 0.5 * libm::log(df * std::f64::consts::PI)
        - half * libm::log1p(t * t / df);
    libm::exp(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_close(value: f64, want: f64) -> bool {
        (value / want - 1.0).abs() < 1e-10
    }

    #[test]
    fn quantiles_equal_published_ones() {
        for (p, df, want) in QUANTILES {
            assert!(is_close(quantile(p, df), want), "{p} {df}: {}, not {want}", quantile(p, df));
            assert!(
                is_close(quantile(1.0 - p, df), -want) || p > 0.999,
                "{p} {df}, the other side"
            );
            assert!((cdf(want, df) - p).abs() < 1e-12, "{p} {df}: {}", cdf(want, df));
        }
    }

    #[test]
    fn tails_equal_published_ones() {
        for (t, df, want) in TAILS {
            assert!(is_close(two_sided(t, df), want), "{t} {df}: {}, not {want}", two_sided(t, df));
            assert!(is_close(critical(want, df), t), "{t} {df}: {}", critical(want, df));
        }
    }

    #[test]
    fn closed_forms_hold() {
        for p in [0.5001, 0.6, 0.75, 0.9, 0.975, 0.999, 0.999_999] {
            let cauchy = libm::tan(std::f64::consts::PI * (p - 0.5));
            assert!((quantile(p, 1.0) / cauchy - 1.0).abs() < 1e-9, "{p}");
            let two = (2.0 * p - 1.0) * libm::sqrt(0.5 / (p * (1.0 - p)));
            assert!((quantile(p, 2.0) / two - 1.0).abs() < 1e-10, "{p}");
        }
    }

    #[test]
    fn extreme_arguments_have_their_limits() {
        assert_eq!(quantile(0.5, 3.0), 0.0);
        assert_eq!((critical(0.0, 3.0), critical(1.0, 3.0)), (f64::INFINITY, 0.0));
        assert_eq!((two_sided(0.0, 3.0), two_sided(f64::INFINITY, 3.0)), (1.0, 0.0));
        assert_eq!((cdf(f64::NEG_INFINITY, 2.0), cdf(f64::INFINITY, 2.0)), (0.0, 1.0));
        assert!(critical(1e-300, 1.0) > 1e100);
    }

    /// Quantiles: table 26.10 of Abramowitz and Stegun to three digits, to all digits by mpmath at 40 digits.
    const QUANTILES: [(f64, f64, f64); 39] = [
        (0.9, 1.0, 3.0776835371752536),
        (0.9, 2.0, 1.8856180831641267),
        (0.9, 3.0, 1.6377443536962102),
        (0.9, 4.0, 1.5332062740589438),
        (0.9, 5.0, 1.475884048824481),
        (0.9, 8.0, 1.3968153097438647),
        (0.9, 10.0, 1.3721836411103356),
        (0.9, 30.0, 1.3104150253913955),
        (0.9, 120.0, 1.288646233656378),
        (0.975, 1.0, 12.706204736174705),
        (0.975, 2.0, 4.302652729749464),
        (0.975, 3.0, 3.1824463052837095),
        (0.975, 4.0, 2.7764451051977943),
        (0.975, 5.0, 2.5705818356363155),
        (0.975, 8.0, 2.3060041352041667),
        (0.975, 10.0, 2.228138851986275),
        (0.975, 30.0, 2.042272456301238),
        (0.975, 120.0, 1.979930405082441),
        (0.995, 1.0, 63.65674116287158),
        (0.995, 2.0, 9.924843200918293),
        (0.995, 3.0, 5.840909309733357),
        (0.995, 4.0, 4.604094871349993),
        (0.995, 5.0, 4.032142983555228),
        (0.995, 8.0, 3.3553873313333953),
        (0.995, 10.0, 3.1692726726169513),
        (0.995, 30.0, 2.7499956535672254),
        (0.995, 120.0, 2.617421145106866),
        (0.9995, 1.0, 636.6192487687197),
        (0.9995, 2.0, 31.59905457644362),
        (0.9995, 3.0, 12.923978636687483),
        (0.9995, 4.0, 8.610301581379275),
        (0.9995, 5.0, 6.86882662588111),
        (0.9995, 8.0, 5.041305433373368),
        (0.9995, 10.0, 4.586893858702636),
        (0.9995, 30.0, 3.645958635042022),
        (0.9995, 120.0, 3.3734537685625003),
        (0.975, 2.5, 3.574654842003683),
        (0.975, 1000.0, 1.9623390808264085),
        (0.95, 10000.0, 1.645006018069243),
    ];
    /// Two-sided tails by mpmath at 40 digits.
    const TAILS: [(f64, f64, f64); 11] = [
        (0.001, 2.0, 0.9992928933955901),
        (0.5, 3.0, 0.651447964848151),
        (1.0, 5.0, 0.3632174676491226),
        (2.0, 8.0, 0.08051623795726268),
        (4.303, 2.0, 0.049992524985214504),
        (10.0, 4.0, 0.0005620036227159911),
        (100.0, 2.0, 9.998500249956258e-05),
        (50.0, 8.0, 2.8344106450917863e-11),
        (30.0, 29.0, 2.197744845098805e-23),
        (3.0, 1000.0, 0.0027667090442381925),
        (1000.0, 5.0, 1.8980131131979714e-14),
    ];
}
