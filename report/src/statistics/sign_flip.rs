//! The sign-flip test of paired differences: a p value of the hypothesis that they are symmetric about zero.
//!
//! Below six seeds there is none, since even the smallest p value, 2 of 2^n, exceeds 0.05. Up to [`EXACT`] seeds every flip of
//! signs is counted, beyond that flips are drawn under a fixed key. Flips that tie with the data count as extreme, so p is
//! never too small.
//!
//! Source: Fisher 1935, "The Design of Experiments", section 21; draws: Phipson and Smyth 2010, "Permutation p-values
//! should never be zero", p = (b + 1) / (m + 1).

use super::draws::Draws;
use super::sample::checked;

/// Fewest seeds for a p value.
pub const FEWEST: usize = 6;
/// Up to this number, every flip is counted.
pub const EXACT: usize = 20;
/// Beyond it, this many flips are drawn.
pub const DRAWN: u64 = 20_000;
const KEY: &str = "canonc.sign-flip.v1";
/// Sums that differ by less than this share of the sum of all magnitudes are ties.
const TIE: f64 = 1e-12;

/// A sign-flip p value.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct SignFlip {
    /// Number of differences.
    pub n: usize,
    /// Two-sided p value.
    pub p: f64,
    /// Number of flips counted.
    pub flips: u64,
    /// Whether these are all 2^n.
    pub exact: bool,
}

/// The p value of at least [`FEWEST`] finite differences.
pub fn sign_flip(differences: &[f64]) -> Option<SignFlip> {
    let sorted = checked(differences, FEWEST).ok()?;
    let n = sorted.len();
    let mut sizes: Vec<f64> = sorted.iter().map(|d| d.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let all: f64 = sizes.iter().sum();
    if !all.is_finite() {
        return None;
    }
    let reached = sorted.iter().sum::<f64>().abs() - TIE * all;
    let exact = n <= EXACT;
    let (p, flips) = if exact {
        let flips = 1u64 << n;
        (extreme(&sizes, reached) as f64 / flips as f64, flips)
    } else {
        (drawn(&sizes, reached), DRAWN)
    };
    Some(SignFlip { n, p, flips, exact })
}

/// The number of flips with a sum at least this far from zero. The sums of each half of the magnitudes are computed
/// once and added pair by pair, so that rounding errors do not accumulate.
fn extreme(sizes: &[f64], reached: f64) -> u64 {
    let (first, second) = sizes.split_at(sizes.len() / 2);
    let (first, second) = (sums(first), sums(second));
    let count = |a: &f64| second.iter().filter(|b| (a + *b).abs() >= reached).count() as u64;
    first.iter().map(count).sum()
}

fn sums(sizes: &[f64]) -> Vec<f64> {
    sizes.iter().fold(vec![0.0], |sums, size| {
        sums.iter().flat_map(|sum| [sum + size, sum - size]).collect()
    })
}

fn drawn(sizes: &[f64], reached: f64) -> f64 {
    let mut draws = Draws::new(&format!("{KEY}\n{}", sizes.len()));
    let mut flipped = || {
        let sum: f64 = sizes.iter().map(|s| if draws.uniform() < 0.5 { *s } else { -s }).sum();
        sum.abs() >= reached
    };
    let extreme = (0..DRAWN).filter(|_| flipped()).count();
    (extreme + 1) as f64 / (DRAWN + 1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::simulation::{Law, percent};
    use super::*;

    #[test]
    fn fewer_than_six_differences_give_no_test() {
        assert_eq!(sign_flip(&[1.0; 5]), None);
        assert_eq!(sign_flip(&[1.0, 2.0, 3.0, 4.0, 5.0, f64::NAN]), None);
        let six = sign_flip(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]).unwrap();
        assert_eq!((six.p, six.flips, six.exact), (2.0 / 64.0, 64, true));
    }

    #[test]
    fn ties_and_zeros_count_as_extreme() {
        assert_eq!(sign_flip(&[0.0; 7]).unwrap().p, 1.0);
        // Equal magnitudes: the number of heads of a fair coin. 7 or more of 8, on either side: 2 * (8 + 1) / 256.
        let mut eight = [0.1; 8];
        eight[3] = -0.1;
        assert_eq!(sign_flip(&eight).unwrap().p, 18.0 / 256.0);
        // A zero does not halve p: its two flips are equal.
        assert_eq!(sign_flip(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.0]).unwrap().p, 2.0 / 64.0);
    }

    #[test]
    fn darwins_maize_gives_fishers_p_value() {
        // Fisher 1935, section 21: of 32768 ways to assign signs, 863 give a sum as great as 314 or greater, and as
        // many one as low: p = 0.05267.
        let maize = [49., -67., 8., 16., 6., 23., 28., 41., 14., 29., 56., 24., 75., 60., -48.];
        let flip = sign_flip(&maize).unwrap();
        assert_eq!((flip.p, flip.exact), (2.0 * 863.0 / 32768.0, true));
        let mut turned = maize;
        turned.rotate_left(4);
        assert_eq!(sign_flip(&turned), Some(flip));
        assert_eq!(sign_flip(&maize.map(|d| -d)), Some(flip));
    }

    #[test]
    fn drawn_flips_agree_with_counted_ones() {
        let mut draws = Draws::new("test sign flip");
        let values: Vec<f64> = (0..20).map(|_| draws.normal() + 0.4).collect();
        let exact = sign_flip(&values).unwrap();
        let mut sizes: Vec<f64> = values.iter().map(|v| v.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let flip = drawn(&sizes, values.iter().sum::<f64>().abs());
        assert!((flip - exact.p).abs() < 0.01, "{flip}, {exact:?}");
        let more: Vec<f64> = (0..25).map(|_| draws.normal() + 2.0).collect();
        let flip = sign_flip(&more).unwrap();
        assert_eq!((flip.p, flip.flips, flip.exact), (1.0 / 20_001.0, DRAWN, false));
    }

    #[test]
    fn false_positives_stay_below_the_level() {
        for n in [6, 9] {
            let mut draws = Draws::new(&format!("test sign flip level {n}"));
            let x =
                percent(4000, || sign_flip(&Law::Normal.sample(&mut draws, n)).unwrap().p <= 0.05);
            assert!(x < 5.8, "{n}: {x}");
        }
    }
}
