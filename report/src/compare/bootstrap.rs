//! The bootstrap interval of a mean paired difference, for three seeds or more. It is too narrow at few seeds, so that its
//! measured coverage is always given with it.
//!
//! The result depends on the differences alone, not on their order or the machine: up to [`EXACT`] seeds every resample
//! is counted, beyond that they are drawn by a keyed counter-based generator.
//!
//! Method: Efron and Tibshirani 1993, "An Introduction to the Bootstrap", section 13.3 (percentile interval). Of n
//! differences all n^n resamples of n with replacement are equally likely; the lower end is the least mean m such
//! that at least 2.5% of the resamples have a mean of m or less, the upper end the largest such that at least 2.5%
//! have it or more. At n = 3 the 27 resamples make that the lowest and the highest difference: each has 1 in 27.

use records::init::philox::Philox;

/// Fewest differences for an interval.
const FEWEST: usize = 3;
/// Up to this number, all resamples are counted.
const EXACT: usize = 8;
/// Beyond it, this many resamples are drawn.
const DRAWN: u64 = 20_000;
/// One in this many resamples is at or beyond each end.
const ONE_IN: u64 = 40;
const KEY: &str = "canonc.bootstrap.v1";

/// An interval of a mean paired difference.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct BootstrapInterval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Number of differences.
    pub n: usize,
    /// Number of resamples: all possible ones, or those drawn.
    pub resamples: u64,
    /// Whether these are all possible resamples.
    pub exact: bool,
}

/// The interval of the mean; `None` for too few differences or a NaN.
pub(super) fn bootstrap(differences: &[f64]) -> Option<BootstrapInterval> {
    let n = differences.len();
    if n < FEWEST || !differences.iter().all(|d| d.is_finite()) {
        return None;
    }
    let mut sorted = differences.to_vec();
    sorted.sort_by(f64::total_cmp);
    let exact = n <= EXACT;
    let mut means = if exact { every(&sorted) } else { drawn(&sorted) };
    means.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let resamples = means.iter().map(|(_, ways)| ways).sum();
    let low = end(means.iter(), resamples)?;
    let high = end(means.iter().rev(), resamples)?;
    Some(BootstrapInterval { low, high, n, resamples, exact })
}

/// The first mean that one in [`ONE_IN`] of all resamples has reached.
fn end<'m>(means: impl Iterator<Item = &'m (f64, u64)>, all: u64) -> Option<f64> {
    let mut reached = 0u64;
    for (mean, ways) in means {
        reached += ways;
        if reached.saturating_mul(ONE_IN) >= all {
            return Some(*mean);
        }
    }
    None
}

/// The mean of every multiset of the differences, with the number of its resamples among all n^n.
fn every(sorted: &[f64]) -> Vec<(f64, u64)> {
    let mut means = Vec::new();
    let ways = (1..=sorted.len() as u64).product();
    choose(sorted, sorted.len(), (0.0, ways), sorted.len(), &mut means);
    means
}

/// Takes each remaining difference 0 to `left` times; `ways` is n! over the factorials of the counts so far.
fn choose(
    rest: &[f64],
    left: usize,
    (sum, ways): (f64, u64),
    n: usize,
    means: &mut Vec<(f64, u64)>,
) {
    let Some((first, others)) = rest.split_first() else { return };
    if others.is_empty() {
        let factorial: u64 = (1..=left as u64).product();
        // If all are one value, return it without rounding.
        let mean = if left == n { *first } else { (sum + left as f64 * first) / n as f64 };
        means.push((mean, ways / factorial));
        return;
    }
    let mut factorial = 1;
    for count in 0..=left {
        factorial *= (count as u64).max(1);
        if count == n {
            means.push((*first, 1));
            break;
        }
        let so_far = (sum + count as f64 * first, ways / factorial);
        choose(others, left - count, so_far, n, means);
    }
}

/// Means of resamples drawn under one key for each n, so that all rows of a table use the same resamples.
fn drawn(sorted: &[f64]) -> Vec<(f64, u64)> {
    let n = sorted.len();
    let philox = Philox::new(&blake3::hash(format!("{KEY}\n{n}").as_bytes()));
    let mut uniforms = vec![0.0; n];
    (0..DRAWN)
        .map(|resample| {
            philox.uniforms(resample * n as u64, &mut uniforms);
            let pick = |u: &f64| sorted.get((u * n as f64) as usize).copied().unwrap_or(0.0);
            (uniforms.iter().map(pick).sum::<f64>() / n as f64, 1)
        })
        .collect()
}

/// The measured coverage in percent of such an interval of n normally distributed differences. A test repeats the
/// simulation. Known up to [`EXACT`].
pub(super) fn covers(n: usize) -> Option<u32> {
    COVERS.iter().find(|(seeds, _)| *seeds == n).map(|(_, percent)| *percent)
}

const COVERS: [(usize, u32); 6] = [(3, 75), (4, 80), (5, 84), (6, 86), (7, 88), (8, 88)];

#[cfg(test)]
mod tests {
    use super::*;

    /// Standard normal numbers (Box and Muller 1958).
    fn normals(seed: u64, count: usize) -> Vec<f64> {
        let philox = Philox::new(&blake3::hash(format!("test {seed}").as_bytes()));
        let mut uniforms = vec![0.0; 2 * count];
        philox.uniforms(0, &mut uniforms);
        let normal = |pair: &[f64]| {
            libm::sqrt(-2.0 * libm::log(pair[0])) * libm::cos(std::f64::consts::TAU * pair[1])
        };
        uniforms.chunks(2).map(normal).collect()
    }

    #[test]
    fn fewer_than_three_differences_give_no_interval() {
        assert_eq!(bootstrap(&[]), None);
        assert_eq!(bootstrap(&[1.0]), None);
        assert_eq!(bootstrap(&[1.0, 2.0]), None);
        assert_eq!(bootstrap(&[1.0, f64::NAN, 2.0]), None);
        assert_eq!(bootstrap(&[1.0, f64::INFINITY, 2.0, 3.0]), None);
    }

    #[test]
    fn three_differences_give_the_lowest_and_the_highest() {
        for seed in 0..200 {
            let three = normals(seed, 3);
            let interval = bootstrap(&three).unwrap();
            let [low, high] = [f64::min, f64::max].map(|f| three.iter().copied().reduce(f));
            assert_eq!((Some(interval.low), Some(interval.high)), (low, high), "{three:?}");
            assert_eq!((interval.n, interval.resamples, interval.exact), (3, 27, true));
        }
    }

    /// The definition, applied resample by resample.
    fn by_hand(values: &[f64]) -> (f64, f64) {
        let n = values.len();
        let mut means: Vec<f64> = (0..n.pow(n as u32))
            .map(|mut code| {
                let mut sum = 0.0;
                for _ in 0..n {
                    sum += values[code % n];
                    code /= n;
                }
                sum / n as f64
            })
            .collect();
        means.sort_by(f64::total_cmp);
        // The k-th from either end; k is the smallest number that is at least 2.5% of all.
        let k = means.len().div_ceil(40);
        (means[k - 1], means[means.len() - k])
    }

    #[test]
    fn every_resample_is_counted_as_often_as_it_comes() {
        for (n, seeds) in [(3, 20), (4, 20), (5, 10), (6, 3), (7, 1)] {
            for seed in 0..seeds {
                let values = normals(100 * n as u64 + seed, n);
                let interval = bootstrap(&values).unwrap();
                assert_eq!(interval.resamples, (n as u64).pow(n as u32));
                let (low, high) = by_hand(&values);
                assert!((interval.low - low).abs() < 1e-12, "{values:?}: {interval:?}, {low}");
                assert!((interval.high - high).abs() < 1e-12, "{values:?}: {interval:?}, {high}");
            }
        }
    }

    #[test]
    fn the_interval_depends_on_the_differences_alone() {
        for n in [3, 5, 8, 9, 20] {
            let values = normals(n as u64, n);
            let interval = bootstrap(&values).unwrap();
            let mut turned = values.clone();
            turned.rotate_left(n / 2);
            assert_eq!(bootstrap(&turned), Some(interval), "another order of seeds");
            assert_eq!(interval.exact, n <= EXACT);
            let (least, most) = (
                values.iter().copied().fold(f64::MAX, f64::min),
                values.iter().copied().fold(f64::MIN, f64::max),
            );
            let mean = values.iter().sum::<f64>() / n as f64;
            assert!(least <= interval.low && interval.low < mean, "{interval:?}");
            assert!(mean < interval.high && interval.high <= most, "{interval:?}");
            // The interval shifts and scales with the values; if exact, it also mirrors with them.
            let moved: Vec<f64> = values.iter().map(|v| 4.0 * v + 1.0).collect();
            let moved = bootstrap(&moved).unwrap();
            assert!((moved.low - 4.0 * interval.low - 1.0).abs() < 1e-9);
            if interval.exact {
                let turned: Vec<f64> = values.iter().map(|v| -v).collect();
                let turned = bootstrap(&turned).unwrap();
                assert!((turned.low + interval.high).abs() < 1e-12);
            }
        }
        // Pinned for ever, so that reported intervals stay reproducible.
        let nine = [-0.3, -0.1, 0.0, 0.1, 0.2, 0.25, 0.4, 0.5, 0.9];
        let interval = bootstrap(&nine).unwrap();
        assert_eq!((interval.n, interval.resamples, interval.exact), (9, DRAWN, false));
        assert_eq!((interval.low, interval.high), (0.005555555555555554, 0.4388888888888889));
    }

    #[test]
    fn drawn_resamples_agree_with_counted_ones() {
        let values = normals(77, 8);
        let interval = bootstrap(&values).unwrap();
        let mut means = drawn(&{
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            sorted
        });
        means.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let low = end(means.iter(), DRAWN).unwrap();
        let high = end(means.iter().rev(), DRAWN).unwrap();
        assert!((low - interval.low).abs() < 0.05 && (high - interval.high).abs() < 0.05);
    }

    /// The coverage stated in tables: how many of these intervals of n seeds hold the truth.
    #[test]
    fn the_interval_covers_as_documented() {
        let mut measured = Vec::new();
        for (n, stated) in COVERS {
            let times = match n {
                3 | 4 => 20_000u64,
                5 => 10_000,
                6 => 5000,
                7 => 2500,
                _ => 1500,
            };
            let all = normals(n as u64, n * times as usize);
            let holds = |values: &[f64]| {
                let interval = bootstrap(values).unwrap();
                interval.low <= 0.0 && 0.0 <= interval.high
            };
            let held = all.chunks(n).filter(|values| holds(values)).count();
            let percent = 100.0 * held as f64 / times as f64;
            measured.push((n, percent, (percent - f64::from(stated)).abs() < 2.0));
        }
        assert!(measured.iter().all(|(.., holds)| *holds), "{measured:?}, said {COVERS:?}");
        assert_eq!((covers(2), covers(3), covers(9)), (None, Some(75), None));
    }
}
