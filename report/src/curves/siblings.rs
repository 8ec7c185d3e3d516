//! Runs that read the same batches and have the same positions.

use crate::statistics::median;

/// Runs with the same positions, each with its losses.
#[derive(Clone, Debug)]
pub struct SiblingRuns<'a> {
    /// The positions, in the file's unit of progress.
    pub positions: Vec<f64>,
    /// Each run's name, and its losses at these positions.
    pub runs: Vec<(&'a str, Vec<f64>)>,
}

/// Values minus their running median over `width` neighbours.
pub(super) fn residual(values: &[f64], width: usize) -> Vec<f64> {
    let half = width / 2;
    let without_median = |(at, value): (usize, &f64)| {
        let around = at.saturating_sub(half)..(at + half + 1).min(values.len());
        value - median(values.get(around).unwrap_or(&[]))
    };
    values.iter().enumerate().map(without_median).collect()
}
