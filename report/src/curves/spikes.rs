//! Loss spikes: places where a run leaves its siblings and comes back.
//!
//! In: a group of curves. Out: events. Must stay true: a run's own slow way is no spike (its distance
//! from the group is taken without its running median), nor is the beginning, where learning rates
//! tell runs apart; only what lies at stored points can be seen.

use super::{Group, median, residual};

/// What a loss may be above what its siblings make likely.
pub const SPIKE: f64 = 0.02;
/// Neighbours of the running median: longer than any event.
const WIDTH: usize = 25;
/// The beginning that is left out, as a part of the run.
const BEGINNING: usize = 20;

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct Spike<'a> {
    pub run: &'a str,
    pub from: f64,
    pub to: f64,
    /// The most that it is above.
    pub excess: f64,
}

/// Events of every run of a group, in order of places.
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
