//! The order of batches as a fingerprint: runs that read the same batches share their noise, so that another order shows as
//! jitter of the differences from siblings.
//!
//! A run is odd only compared with its own group, at the end and in most of the run, so that a spike does not count as
//! another order.

use super::siblings::median;
use super::siblings::{SiblingRuns, residual};

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

    /// The jitter beside that of the group of so many runs.
    pub(super) fn text(&self, runs: usize) -> String {
        let Fingerprint { run: _, jitter, usual, elevated, windows, from, to } = self;
        format!(
            "{jitter:.6}, where the median of {runs} is {usual:.6} (a factor of {:.1}); {} of {windows} windows, {from:.0} to {to:.0}",
            self.ratio(),
            elevated.len(),
        )
    }
}

/// The windows of a curve.
#[derive(Clone, Copy)]
struct Windows {
    points: usize,
    count: usize,
}

impl Windows {
    /// The first point of a window, and the first one after it.
    fn bounds(self, window: usize) -> (usize, usize) {
        (window * self.points / self.count, (window + 1) * self.points / self.count)
    }
}

/// The jitters of a run's differences from its siblings: over the last tenth, and in each window.
#[derive(Clone)]
struct Jitters {
    tail: Vec<f64>,
    windows: Vec<Vec<f64>>,
}

/// The fingerprint of every run of a group, in its order.
pub fn fingerprints<'a>(group: &SiblingRuns<'a>) -> Vec<Fingerprint<'a>> {
    let points = group.positions.len();
    let windows = Windows { points, count: WINDOWS.min(points / LEAST_WINDOW) };
    let jitters = jitters(group, windows);
    let of_tails: Vec<f64> = jitters.iter().map(|run| median(&run.tail)).collect();
    let of_windows: Vec<Vec<f64>> =
        jitters.iter().map(|run| run.windows.iter().map(|over| median(over)).collect()).collect();
    let usual = median(&of_tails);
    let usual_in = |window: usize| {
        let all: Vec<f64> = of_windows.iter().filter_map(|w| w.get(window).copied()).collect();
        median(&all)
    };
    let usual_by_window: Vec<f64> = (0..windows.count).map(usual_in).collect();
    let position = |at: usize| group.positions.get(at).copied().unwrap_or(0.0);
    let runs = group.runs.iter().zip(&of_tails).zip(&of_windows);
    runs.map(|(((run, _), jitter), by_window)| {
        let pairs = by_window.iter().zip(&usual_by_window).enumerate();
        let elevated: Vec<usize> = pairs
            .filter(|(_, (jitter, usual))| **jitter > FACTOR * **usual)
            .map(|(at, _)| at)
            .collect();
        let first = elevated.first().map_or(0, |window| windows.bounds(*window).0);
        let last = elevated.last().map_or(0, |window| windows.bounds(*window).1.saturating_sub(1));
        Fingerprint {
            run,
            jitter: *jitter,
            usual,
            elevated,
            windows: windows.count,
            from: position(first),
            to: position(last),
        }
    })
    .collect()
}

/// Of each run, over its siblings.
fn jitters(group: &SiblingRuns<'_>, windows: Windows) -> Vec<Jitters> {
    let tail = windows.points - windows.points / 10;
    let none = Jitters { tail: Vec::new(), windows: vec![Vec::new(); windows.count] };
    let mut jitters = vec![none; group.runs.len()];
    for (a, (_, one)) in group.runs.iter().enumerate() {
        for (b, (_, other)) in group.runs.iter().enumerate().skip(a + 1) {
            let wanted: Vec<usize> = [(a, b), (b, a)]
                .into_iter()
                .filter(|(of, from)| *from < SIBLINGS + usize::from(*of < SIBLINGS))
                .map(|(of, _)| of)
                .collect();
            if wanted.is_empty() {
                continue;
            }
            let differences: Vec<f64> = one.iter().zip(other).map(|(x, y)| x - y).collect();
            let rest = residual(&differences, WIDTH);
            let in_tail = deviation(rest.get(tail..).unwrap_or(&[]));
            let in_windows: Vec<f64> = (0..windows.count)
                .map(|window| windows.bounds(window))
                .map(|(from, to)| deviation(rest.get(from..to).unwrap_or(&[])))
                .collect();
            for run in wanted {
                let Some(jitters) = jitters.get_mut(run) else { continue };
                jitters.tail.push(in_tail);
                for (over, jitter) in jitters.windows.iter_mut().zip(&in_windows) {
                    over.push(*jitter);
                }
            }
        }
    }
    jitters
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
