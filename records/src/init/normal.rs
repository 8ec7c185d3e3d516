//! The standard normal's quantile and the mass below a point, with the same bits on every platform.
//!
//! The quantile is Wichura 1988, "Algorithm AS 241", PPND16: relative error about 1e-16.

/// The mass below `x`.
pub fn distribution(x: f64) -> f64 {
    0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

/// The point with mass `p` below it; `p` strictly between 0 and 1.
#[inline]
pub fn quantile(p: f64) -> f64 {
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        let r = 0.180_625 - q * q;
        return q * polynomial(&CENTRE_OVER, r) / polynomial(&CENTRE_UNDER, r);
    }
    tail(p, q)
}

fn tail(p: f64, q: f64) -> f64 {
    let r = libm::sqrt(-libm::log(if q < 0.0 { p } else { 1.0 - p }));
    let size = if r <= 5.0 {
        polynomial(&MIDDLE_OVER, r - 1.6) / polynomial(&MIDDLE_UNDER, r - 1.6)
    } else {
        polynomial(&TAIL_OVER, r - 5.0) / polynomial(&TAIL_UNDER, r - 5.0)
    };
    if q < 0.0 { -size } else { size }
}

/// Evaluates a polynomial, highest power first.
#[inline]
fn polynomial(coefficients: &[f64; 8], x: f64) -> f64 {
    coefficients.iter().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

const CENTRE_OVER: [f64; 8] = [
    2509.0809287301227,
    33430.57558358813,
    67265.7709270087,
    45921.95393154987,
    13731.69376550946,
    1971.5909503065513,
    133.14166789178438,
    3.3871328727963665,
];
const CENTRE_UNDER: [f64; 8] = [
    5226.495278852854,
    28729.085735721943,
    39307.89580009271,
    21213.794301586597,
    5394.196021424751,
    687.1870074920579,
    42.31333070160091,
    1.0,
];
const MIDDLE_OVER: [f64; 8] = [
    0.0007745450142783414,
    0.022723844989269184,
    0.2417807251774506,
    1.2704582524523684,
    3.6478483247632045,
    5.769497221460691,
    4.630337846156546,
    1.4234371107496835,
];
const MIDDLE_UNDER: [f64; 8] = [
    1.0507500716444169e-09,
    0.0005475938084995345,
    0.015198666563616457,
    0.14810397642748008,
    0.6897673349851,
    1.6763848301838038,
    2.053191626637759,
    1.0,
];
const TAIL_OVER: [f64; 8] = [
    2.0103343992922881e-07,
    2.7115555687434876e-05,
    0.0012426609473880784,
    0.026532189526576124,
    0.29656057182850487,
    1.7848265399172913,
    5.463784911164114,
    6.657904643501103,
];
const TAIL_UNDER: [f64; 8] = [
    2.0442631033899397e-15,
    1.421511758316446e-07,
    1.8463183175100548e-05,
    0.0007868691311456133,
    0.014875361290850615,
    0.1369298809227358,
    0.599832206555888,
    1.0,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_equal_tabulated_ones() {
        // From CPython's statistics.NormalDist().inv_cdf.
        let table = [
            (1e-16, -8.222082216130435),
            (1e-12, -7.034483825301132),
            (1e-06, -4.753424308822899),
            (0.001, -3.090232306167813),
            (0.0749, -1.4402382675279632),
            (0.0751, -1.4388253927525398),
            (0.2, -0.8416212335729142),
            (0.5001, 0.0002506628300880075),
            (0.8, 0.8416212335729144),
            (0.925, 1.439531470938456),
            (0.9251, 1.4402382675279632),
            (0.999, 3.090232306167813),
            (0.9999999, 5.199337582290662),
        ];
        for (p, want) in table {
            assert!(
                (quantile(p) - want).abs() <= 2e-15 * want.abs(),
                "{p}: {} not {want}",
                quantile(p)
            );
        }
    }

    #[test]
    fn the_quantile_inverts_the_distribution() {
        for i in -800..=800 {
            let x = f64::from(i) / 100.0;
            let p = distribution(x);
            // Probabilities near 1 are too coarse to invert, so only the lower half is tested.
            if x <= 0.0 {
                assert!((quantile(p) - x).abs() <= 1e-13 * (1.0 - x), "{x}: {}", quantile(p));
            }
            assert!((p + distribution(-x) - 1.0).abs() < 1e-15);
        }
        assert_eq!(quantile(0.5), 0.0);
    }
}
