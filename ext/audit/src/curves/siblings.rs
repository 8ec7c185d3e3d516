//! Runs that read the same batches and have the same positions.

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

/// The median, which is the mean of the two middle values for an even number; 0 for no values.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle.wrapping_sub(1)), sorted.get(middle)) {
        (Some(low), Some(high)) if sorted.len().is_multiple_of(2) => (low + high) / 2.0,
        (_, Some(value)) => *value,
        (_, None) => 0.0,
    }
}
