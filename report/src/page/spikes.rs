//! Spikes: steps where a training loss departs from its own trend and returns. A step is compared with the medians of the
//! steps before and after, so that neither the loss's fall nor its level matters.

use crate::statistics::median;
use serde::Serialize;

/// Steps on each side that a step is compared with.
const AROUND: usize = 25;
/// A spike exceeds the median by more than this many times the usual distance from it.
const TIMES: f64 = 8.0;
/// It also exceeds the median by more than this share of it.
const SHARE: f64 = 0.02;
/// Spikes at most this many steps apart are merged.
const APART: u64 = 10;

/// A range of steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spike {
    /// The first step.
    pub from: u64,
    /// The last step.
    pub to: u64,
    /// The largest excess of the loss over the surrounding medians.
    pub excess: f64,
}

/// Every spike, in order.
pub(super) fn find(losses: &[(u64, f64)]) -> Vec<Spike> {
    let mut spikes: Vec<Spike> = Vec::new();
    for (at, (step, loss)) in losses.iter().enumerate().skip(AROUND) {
        let sides = [at - AROUND..at, at + 1..(at + 1 + AROUND).min(losses.len())];
        let sides = sides.map(|side| course(losses.get(side).unwrap_or_default()));
        let [before, after] = sides;
        // At the end later steps are missing.
        let after = if after.usual.is_nan() { before } else { after };
        let usual = before.usual.max(after.usual);
        let distance = before.distance.max(after.distance);
        let excess = loss - usual;
        // NaN counts as infinitely far out.
        let out = excess > TIMES * distance && excess > SHARE * usual.abs();
        if !(out || loss.is_nan()) {
            continue;
        }
        match spikes.last_mut() {
            Some(last) if *step <= last.to + APART => {
                last.to = *step;
                last.excess = last.excess.max(excess);
            }
            Some(_) | None => spikes.push(Spike { from: *step, to: *step, excess }),
        }
    }
    spikes
}

/// The median of steps, and the usual distance from it.
#[derive(Clone, Copy)]
struct Course {
    usual: f64,
    distance: f64,
}

fn course(points: &[(u64, f64)]) -> Course {
    if points.is_empty() {
        return Course { usual: f64::NAN, distance: f64::NAN };
    }
    let losses: Vec<f64> = points.iter().map(|(_, loss)| *loss).collect();
    let usual = median(&losses);
    let distances: Vec<f64> = losses.iter().map(|loss| (loss - usual).abs()).collect();
    Course { usual, distance: median(&distances) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A falling loss with a little periodic noise.
    fn falling(steps: u64) -> Vec<(u64, f64)> {
        (1..=steps)
            .map(|s| (s, 2.0 + 3.0 / s as f64 + 0.01 * ((s * 7919 % 13) as f64 - 6.0)))
            .collect()
    }

    #[test]
    fn a_falling_noisy_loss_has_no_spikes() {
        assert_eq!(find(&falling(400)), []);
        assert_eq!(find(&falling(20)), []);
    }

    #[test]
    fn spikes_have_their_steps_and_height() {
        let mut losses = falling(400);
        for (at, more) in [(200, 0.5), (203, 1.5), (300, 0.9)] {
            losses[at - 1].1 += more;
        }
        let spikes = find(&losses);
        let steps: Vec<(u64, u64)> = spikes.iter().map(|spike| (spike.from, spike.to)).collect();
        assert_eq!(steps, [(200, 203), (300, 300)]);
        assert!((spikes[0].excess - 1.5).abs() < 0.1, "{spikes:?}");
    }

    #[test]
    fn a_dip_is_no_spike() {
        let mut losses = falling(100);
        losses[60].1 -= 1.0;
        assert_eq!(find(&losses), []);
    }
}
