//! Loss spikes: positions where a run departs from its siblings and returns. The beginning is ignored, where runs differ by
//! learning rate, and only spikes at stored points can be detected.

use super::siblings::median;
use super::siblings::{SiblingRuns, residual};

/// A spike exceeds the loss that the siblings predict by more than this.
pub const SPIKE: f64 = 0.02;
/// Window of the running median: longer than any event.
const WIDTH: usize = 25;
/// The first part of the run that is ignored, as a fraction 1 / BEGINNING.
const BEGINNING: usize = 20;

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct Spike<'a> {
    /// Name of the run.
    pub run: &'a str,
    /// Position at which it begins.
    pub from: f64,
    /// Position at which it ends.
    pub to: f64,
    /// The largest excess over the expected loss.
    pub excess: f64,
}

/// Events of every run of a group, in order of position.
pub fn spikes<'a>(group: &SiblingRuns<'a>) -> Vec<Spike<'a>> {
    let middle: Vec<f64> = (0..group.positions.len())
        .map(|at| {
            let losses: Vec<f64> =
                group.runs.iter().filter_map(|(_, losses)| losses.get(at).copied()).collect();
            median(&losses)
        })
        .collect();
    let mut spikes = Vec::new();
    for (run, losses) in &group.runs {
        let distance: Vec<f64> = losses.iter().zip(&middle).map(|(x, y)| x - y).collect();
        let excess = residual(&distance, WIDTH);
        let mut open: Option<Spike<'a>> = None;
        let points = group.positions.iter().zip(&excess).skip(group.positions.len() / BEGINNING);
        for (position, above) in points {
            if *above <= SPIKE {
                spikes.extend(open.take());
                continue;
            }
            let spike =
                open.get_or_insert(Spike { run, from: *position, to: *position, excess: *above });
            spike.to = *position;
            spike.excess = spike.excess.max(*above);
        }
        spikes.extend(open);
    }
    spikes
}
