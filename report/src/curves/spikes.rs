//! Loss spikes: positions where a run departs from its siblings and returns.
//!
//! In: a group of curves. Out: events. Must stay true: a run's slow drift is not a spike (the running median of
//! its distance from the group is subtracted), nor is the beginning, where runs differ by learning
//! rate; only spikes at stored points can be detected.

use super::{Group, median, residual};

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
pub fn spikes<'a>(group: &Group<'a>) -> Vec<Spike<'a>> {
    let middle: Vec<f64> = (0..group.places.len())
        .map(|at| {
            let here: Vec<f64> =
                group.runs.iter().filter_map(|(_, losses)| losses.get(at).copied()).collect();
            median(&here)
        })
        .collect();
    let mut spikes = Vec::new();
    for (run, losses) in &group.runs {
        let distance: Vec<f64> = losses.iter().zip(&middle).map(|(x, y)| x - y).collect();
        let excess = residual(&distance, WIDTH);
        let mut open: Option<Spike<'a>> = None;
        let points = group.places.iter().zip(&excess).skip(group.places.len() / BEGINNING);
        for (place, above) in points {
            if *above <= SPIKE {
                spikes.extend(open.take());
                continue;
            }
            let spike = open.get_or_insert(Spike { run, from: *place, to: *place, excess: *above });
            spike.to = *place;
            spike.excess = spike.excess.max(*above);
        }
        spikes.extend(open);
    }
    spikes
}
