//! Horizontal coordinates: one row after another takes the places nearest to those preferred by its neighbours above and
//! below; in the end columns (long lines, and boxes that are each other's only neighbour) are made straight.

use std::collections::BTreeMap;

use super::net::Net;
use super::{GAP, LAST_ROUNDS, LINE_GAP, MOVE_ROUNDS};

/// The pull of a column on its items, strong enough to make it straight.
const STRAIGHT: f64 = 1e6;

pub(super) fn columns(net: &Net) -> Vec<f64> {
    let mut xs = packed(net);
    let depth = net.rows.len();
    for round in 0..MOVE_ROUNDS + LAST_ROUNDS {
        let down = round % 2 == 0;
        // In the last rounds both neighbours count, so that neither side dominates.
        let both = round + 40 >= MOVE_ROUNDS;
        let straight = if round < MOVE_ROUNDS { BTreeMap::new() } else { straight(net, &xs) };
        for step in 0..depth {
            let rank = if down { step } else { depth - 1 - step };
            move_row(net, rank, (down || both, !down || both), &straight, &mut xs);
        }
    }
    xs
}

/// Packs every row to the left.
fn packed(net: &Net) -> Vec<f64> {
    let mut xs = vec![0.0; net.items.len()];
    for row in &net.rows {
        let mut x = 0.0;
        let mut before: Option<usize> = None;
        for &item in row {
            x += before.map_or(0.0, |before| distance(net, before, item));
            before = Some(item);
            xs.iter_mut().skip(item).take(1).for_each(|left| *left = x);
        }
    }
    xs
}

/// The target of each column: its outermost item for a long line at the edge, else the mean of its items.
fn straight(net: &Net, xs: &[f64]) -> BTreeMap<usize, f64> {
    struct Column {
        xs: Vec<f64>,
        line: bool,
        leftmost: bool,
        rightmost: bool,
    }
    let mut columns: BTreeMap<usize, Column> = BTreeMap::new();
    for row in &net.rows {
        for (i, &at) in row.iter().enumerate() {
            let Some(item) = net.items.get(at) else { continue };
            let Some((column, offset)) = item.column else { continue };
            let column = columns.entry(column).or_insert_with(|| Column {
                xs: Vec::new(),
                line: true,
                leftmost: true,
                rightmost: true,
            });
            column.xs.push(xs.get(at).copied().unwrap_or(0.0) - offset);
            column.line &= item.vertex.is_none();
            column.leftmost &= i == 0;
            column.rightmost &= i + 1 == row.len();
        }
    }
    let target = |column: Column| match column {
        Column { xs, line: true, leftmost: true, .. } => {
            xs.into_iter().fold(f64::INFINITY, f64::min)
        }
        Column { xs, line: true, rightmost: true, .. } => {
            xs.into_iter().fold(f64::NEG_INFINITY, f64::max)
        }
        Column { xs, .. } => xs.iter().sum::<f64>() / xs.len() as f64,
    };
    columns.into_iter().map(|(index, column)| (index, target(column))).collect()
}

/// Moves one row. `sides`: whether the row above pulls, and the row below.
fn move_row(
    net: &Net,
    rank: usize,
    sides: (bool, bool),
    straight: &BTreeMap<usize, f64>,
    xs: &mut [f64],
) {
    let Some(row) = net.rows.get(rank) else { return };
    let x = |item: usize| xs.get(item).copied().unwrap_or(0.0);
    let mut sums: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    let mut pull = |item: usize, to: f64, weight: f64| {
        let (sum, total) = sums.entry(item).or_insert((0.0, 0.0));
        *sum += to * weight;
        *total += weight;
    };
    if sides.0 {
        for p in net.segments_below(rank.checked_sub(1)) {
            pull(p.below, x(p.above) + p.above_offset - p.below_offset, p.weight);
        }
    }
    if sides.1 {
        for p in net.segments_below(Some(rank)) {
            pull(p.above, x(p.below) + p.below_offset - p.above_offset, p.weight);
        }
    }
    for &item in row {
        let column = net.items.get(item).and_then(|item| item.column);
        if let Some((column, offset)) = column
            && let Some(to) = straight.get(&column)
        {
            pull(item, to + offset, STRAIGHT);
        }
    }
    let mut at = 0.0;
    let mut before: Option<usize> = None;
    let mut offsets = Vec::with_capacity(row.len());
    let mut wanted = Vec::with_capacity(row.len());
    for &item in row {
        at += before.map_or(0.0, |before| distance(net, before, item));
        before = Some(item);
        offsets.push(at);
        let (to, weight) = match sums.get(&item) {
            Some((sum, weight)) => (sum / weight, *weight),
            None => (x(item), 0.01),
        };
        wanted.push((to - at, weight));
    }
    for ((item, offset), start) in row.iter().zip(&offsets).zip(isotonic(&wanted)) {
        if let Some(x) = xs.get_mut(*item) {
            *x = start + offset;
        }
    }
}

/// The least distance between the centres of neighbours in a row.
fn distance(net: &Net, left: usize, right: usize) -> f64 {
    let item = |i: usize| net.items.get(i).map_or((0.0, false), |i| (i.width, i.vertex.is_some()));
    let ((left, left_box), (right, right_box)) = (item(left), item(right));
    let gap = if left_box && right_box { GAP } else { LINE_GAP };
    (left + right) / 2.0 + gap
}

/// The ascending sequence nearest to the wanted values, by weighted squares (pool adjacent violators).
fn isotonic(wanted: &[(f64, f64)]) -> Vec<f64> {
    // (mean, weight, count)
    let mut pools: Vec<(f64, f64, usize)> = Vec::with_capacity(wanted.len());
    for &(value, weight) in wanted {
        let mut pool = (value, weight, 1);
        while let Some(&(mean, heavy, count)) = pools.last() {
            if mean <= pool.0 {
                break;
            }
            pools.pop();
            let total = heavy + pool.1;
            pool = ((mean * heavy + pool.0 * pool.1) / total, total, count + pool.2);
        }
        pools.push(pool);
    }
    pools.iter().flat_map(|(mean, _, count)| std::iter::repeat_n(*mean, *count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wanted places with weights, and the expected result.
    type Case = (&'static [(f64, f64)], &'static [f64]);

    #[test]
    fn falling_values_are_pooled() {
        let cases: [Case; 4] = [
            (&[], &[]),
            (&[(1.0, 1.0), (2.0, 1.0)], &[1.0, 2.0]),
            (&[(3.0, 1.0), (1.0, 1.0), (5.0, 1.0)], &[2.0, 2.0, 5.0]),
            (&[(4.0, 3.0), (0.0, 1.0)], &[3.0, 3.0]),
        ];
        for (wanted, expected) in cases {
            assert_eq!(isotonic(wanted), expected);
        }
    }
}
