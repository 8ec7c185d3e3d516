//! Where a training loss leaves its own course and comes back.
//!
//! In: a run's losses. Out: stretches of steps that stand out of their surroundings. Must stay true: judged against the
//! medians of the steps before and after, so that neither the fall of the loss nor its level decides; one noisy step among noisy
//! ones is no spike; a run too short to have surroundings has none.

use serde::Serialize;

/// Steps on each side that a step is held against.
const AROUND: usize = 25;
/// How many times the usual distance from the median a step has to lie above it.
const TIMES: f64 = 8.0;
/// And how far above it, as a share of it.
const SHARE: f64 = 0.02;
/// Steps of two spikes that lie no further apart are one.
const APART: u64 = 10;

/// A stretch of steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spike {
    pub from: u64,
    pub to: u64,
    /// The most that the loss lay above the medians around it.
    pub excess: f64,
}

/// Every spike, in order.
pub(super) fn find(losses: &[(u64, f64)]) -> Vec<Spike> {
    let mut spikes: Vec<Spike> = Vec::new();
    for (at, (step, loss)) in losses.iter().enumerate().skip(AROUND) {
        let sides = [at - AROUND..at, at + 1..(at + 1 + AROUND).min(losses.len())];
        let sides = sides.map(|side| course(losses.get(side).unwrap_or_default()));
        let [before, after] = sides;
        // At the end nothing comes after.
        let after = if after.usual.is_nan() { before } else { after };
        let usual = before.usual.max(after.usual);
        let distance = before.distance.max(after.distance);
        let excess = loss - usual;
        // What is not a number is as far out as can be.
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

/// What steps usually are, and how far from that.
#[derive(Clone, Copy)]
struct Course {
    usual: f64,
    distance: f64,
}

fn course(points: &[(u64, f64)]) -> Course {
    let usual = median(points.iter().map(|(_, loss)| *loss).collect());
    let distance = median(points.iter().map(|(_, loss)| (loss - usual).abs()).collect());
    Course { usual, distance }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A falling loss with a little noise that repeats.
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
    fn what_stands_out_is_found_with_its_steps_and_height() {
        let mut losses = falling(400);
        for (at, more) in [(200, 0.5), (203, 1.5), (300, 0.9)] {
            losses[at - 1].1 += more;
        }
        let found = find(&losses);
        let places: Vec<(u64, u64)> = found.iter().map(|spike| (spike.from, spike.to)).collect();
        assert_eq!(places, [(200, 203), (300, 300)]);
        assert!((found[0].excess - 1.5).abs() < 0.1, "{found:?}");
    }

    #[test]
    fn a_dip_is_no_spike() {
        let mut losses = falling(100);
        losses[60].1 -= 1.0;
        assert_eq!(find(&losses), []);
    }
}
