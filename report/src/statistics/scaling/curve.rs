//! Least-squares power laws of one arm's mean losses, with or without a floor. A size is weighted by its runs; a floor is
//! never negative, and if the sizes do not determine one, there is none.

use super::{Curve, Point};

/// Range of exponents that is searched for the model with a floor.
const EXPONENTS: (f64, f64) = (0.02, 3.0);

/// Weighted least squares of y on one regressor: intercept, slope and residual sum of squares.
fn line(points: &[(f64, f64, f64)]) -> Option<(f64, f64, f64)> {
    let total: f64 = points.iter().map(|(w, ..)| w).sum();
    let mean = |coordinate: fn(&(f64, f64, f64)) -> f64| {
        points.iter().map(|p| p.0 * coordinate(p)).sum::<f64>() / total
    };
    let (x, y) = (mean(|p| p.1), mean(|p| p.2));
    let (mut xx, mut xy) = (0.0, 0.0);
    for (w, at, value) in points {
        xx += w * (at - x) * (at - x);
        xy += w * (at - x) * (value - y);
    }
    let slope = xy / xx;
    let left: f64 = points
        .iter()
        .map(|(w, at, value)| w * (value - y - slope * (at - x)) * (value - y - slope * (at - x)))
        .sum();
    (slope.is_finite() && left.is_finite()).then_some((y - slope * x, slope, left))
}

/// loss = b C^-c, a line in logarithms.
pub(super) fn power_law(points: &[Point], arm: usize) -> Option<Curve> {
    let logs: Vec<(f64, f64, f64)> =
        points.iter().map(|p| (p.runs, p.x, mean_log(p, arm))).collect();
    let (intercept, slope, _) = line(&logs)?;
    Some(Curve { floor: 0.0, factor: libm::exp(intercept), exponent: -slope, exponent_error: 0.0 })
}

/// The mean log loss of an arm at a size.
pub(super) fn mean_log(point: &Point, arm: usize) -> f64 {
    point.losses.iter().map(|run| libm::log(run[arm])).sum::<f64>() / point.runs
}

/// For a fixed exponent, floor and factor are a linear fit. `None` if the best exponent needs a negative floor or is at
/// the end of the searched range.
pub(super) fn with_a_floor(points: &[Point], arm: usize) -> Option<Curve> {
    let at = |exponent: f64| {
        let weighted: Vec<(f64, f64, f64)> =
            points.iter().map(|p| (p.runs, libm::exp(-exponent * p.x), p.means[arm])).collect();
        line(&weighted)
    };
    let left = |exponent: f64| at(exponent).map_or(f64::INFINITY, |(.., left)| left);
    let (first, last) = EXPONENTS;
    let (steps, ratio) = (120, libm::log(last / first));
    let grid = |step: f64| first * libm::exp(ratio * step / f64::from(steps));
    let best = (0..=steps)
        .min_by(|a, b| left(grid(f64::from(*a))).total_cmp(&left(grid(f64::from(*b)))))?;
    if best == 0 || best == steps {
        return None;
    }
    // Golden-section search between the neighbours.
    let (mut low, mut high) = (grid(f64::from(best) - 1.0), grid(f64::from(best) + 1.0));
    let golden = 0.381_966_011_250_105;
    for _ in 0..60 {
        let (a, b) = (low + golden * (high - low), high - golden * (high - low));
        if left(a) < left(b) { high = b } else { low = a }
    }
    let exponent = 0.5 * (low + high);
    let (floor, factor, _) = at(exponent)?;
    (floor >= 0.0 && factor > 0.0).then_some(Curve { floor, factor, exponent, exponent_error: 0.0 })
}
