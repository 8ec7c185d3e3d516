//! The order of batches as a fingerprint: runs that read the same batches share their noise.
//!
//! In: a group of curves. Out: for each run the jitter of its differences from its siblings. Must stay
//! true: slow changes are not jitter (the running median is subtracted); a run is odd only compared with
//! its own group, at the end and in most of the run, so that a spike does not count as another order.

use super::{Group, median, residual};

/// Window of the running median.
const WIDTH: usize = 9;
/// Windows of a curve, and the fewest points of each.
const WINDOWS: usize = 60;
const LEAST_WINDOW: usize = 6;
/// A run with more than this many times the group's median jitter read other batches.
const FACTOR: f64 = 5.0;
/// Most siblings that a run is compared with; more do not help.
const SIBLINGS: usize = 64;

/// One run compared with its siblings.
#[derive(Clone, Debug, PartialEq)]
pub struct Fingerprint<'a> {
    /// Name of the run.
    pub run: &'a str,
    /// Jitter over the last tenth: the median over siblings of the differences' standard deviation.
    pub jitter: f64,
    /// The group's median jitter.
    pub usual: f64,
    /// Windows in which its jitter exceeds 5 times the group's median there.
    pub elevated: Vec<usize>,
    /// Number of windows of the curve.
    pub windows: usize,
    /// Position at which the first of these windows begins.
    pub from: f64,
    /// Position at which the last of these windows ends.
    pub to: f64,
}

impl Fingerprint<'_> {
    /// Its jitter over the usual jitter of the group; 1 if that is zero.
    pub fn ratio(&self) -> f64 {
        if self.usual > 0.0 { self.jitter / self.usual } else { 1.0 }
    }

    /// Whether it seems to have read other batches than its siblings.
    pub fn is_other(&self) -> bool {
        self.ratio() > FACTOR && self.elevated.len() * 2 > self.windows
    }
}

/// The fingerprint of every run of a group, in its order.
pub fn fingerprints<'a>(group: &Group<'a>) -> Vec<Fingerprint<'a>> {
    let points = group.places.len();
    let windows = WINDOWS.min(points / LEAST_WINDOW);
    let bounds = |window: usize| (window * points / windows, (window + 1) * points / windows);
    let tail = points - points / 10;
    // For each run, over its siblings: the jitter of the last tenth, and of each window.
    let mut tails = vec![Vec::new(); group.runs.len()];
    let mut inside = vec![vec![Vec::new(); windows]; group.runs.len()];
    for (a, (_, one)) in group.runs.iter().enumerate() {
        for (b, (_, other)) in group.runs.iter().enumerate().skip(a + 1) {
            let both = [(a, b), (b, a)]
                .map(|(of, from)| (of, from < SIBLINGS + usize::from(of < SIBLINGS)));
            if both.iter().all(|(_, wanted)| !wanted) {
                continue;
            }
            let differences: Vec<f64> = one.iter().zip(other).map(|(x, y)| x - y).collect();
            let rest = residual(&differences, WIDTH);
            let last = deviation(rest.get(tail..).unwrap_or(&[]));
            for (of, _) in both.iter().filter(|(_, wanted)| *wanted) {
                if let Some(tails) = tails.get_mut(*of) {
                    tails.push(last);
                }
            }
            for window in 0..windows {
                let (from, to) = bounds(window);
                let here = deviation(rest.get(from..to).unwrap_or(&[]));
                for (of, _) in both.iter().filter(|(_, wanted)| *wanted) {
                    if let Some(cell) = inside.get_mut(*of).and_then(|w| w.get_mut(window)) {
                        cell.push(here);
                    }
                }
            }
        }
    }
    let jitters: Vec<f64> = tails.iter().map(|over| median(over)).collect();
    let usual = median(&jitters);
    let by_window: Vec<Vec<f64>> =
        inside.iter().map(|windows| windows.iter().map(|over| median(over)).collect()).collect();
    let usual_of = |window: usize| {
        let all: Vec<f64> = by_window.iter().filter_map(|w| w.get(window).copied()).collect();
        median(&all)
    };
    let usual_by_window: Vec<f64> = (0..windows).map(usual_of).collect();
    let runs = group.runs.iter().zip(&jitters).zip(&by_window);
    runs.map(|(((run, _), jitter), own)| {
        let pairs = own.iter().zip(&usual_by_window).enumerate();
        let elevated: Vec<usize> =
            pairs.filter(|(_, (own, usual))| **own > FACTOR * **usual).map(|(at, _)| at).collect();
        let place = |at: usize| group.places.get(at).copied().unwrap_or(0.0);
        let first = elevated.first().map_or(0, |window| bounds(*window).0);
        let last = elevated.last().map_or(0, |window| bounds(*window).1.saturating_sub(1));
        Fingerprint {
            run,
            jitter: *jitter,
            usual,
            elevated,
            windows,
            from: place(first),
            to: place(last),
        }
    })
    .collect()
}

/// The standard deviation.
fn deviation(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    (values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count).sqrt()
}
