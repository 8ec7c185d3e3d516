//! The net to lay out: boxes and the crossings of long lines, rank by rank, ordered to have few crossings.
//!
//! Lines from one port share their way down.

use std::collections::BTreeMap;

use super::{ORDER_ROUNDS, Size, port_offset};
use crate::diagram::{Class, Diagram};

/// How strongly the ends of a segment pull each other: boxes that are each other's only neighbour,
/// the ports of a wide slot, other boxes, and the ends of a line that passes other boxes.
const ONLY: f64 = 20.0;
const PORT: f64 = 8.0;
const PLAIN: f64 = 1.0;
const SIDE: f64 = 0.02;

/// A box, or the place where a long line crosses a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) vertex: Option<usize>,
    pub(super) width: f64,
    pub(super) rank: usize,
    /// The column it is aligned with in the end, and its offset to the right of it.
    pub(super) column: Option<(usize, f64)>,
}

/// A line segment between neighbouring ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) above: usize,
    pub(super) above_offset: f64,
    pub(super) below: usize,
    pub(super) below_offset: f64,
    pub(super) weight: f64,
}

pub(super) struct Net {
    pub(super) items: Vec<Item>,
    /// Segments by the rank of their upper end.
    pub(super) segments: Vec<Vec<Segment>>,
    /// The items on each line, including its ends.
    pub(super) chains: Vec<Vec<usize>>,
    /// Items by rank, from left to right.
    pub(super) rows: Vec<Vec<usize>>,
}

impl Net {
    pub(super) fn new(diagram: &Diagram, sizes: &[Size], ranks: &[usize]) -> Net {
        let mut builder = Builder::new(diagram, sizes, ranks);
        for edge in &diagram.edges {
            builder.edge(edge.from, edge.to);
        }
        let Builder { items, segments: all, chains, .. } = builder;
        let depth = items.iter().map(|item| item.rank + 1).max().unwrap_or(0);
        let mut segments = vec![Vec::new(); depth];
        for segment in all {
            let rank = items.get(segment.above).map_or(0, |item| item.rank);
            if let Some(list) = segments.get_mut(rank) {
                list.push(segment);
            }
        }
        let mut net = Net { items, segments, chains, rows: vec![Vec::new(); depth] };
        net.first_order();
        net
    }

    /// The initial order: from the bottom up, operands from left to right, as in the text.
    fn first_order(&mut self) {
        let mut above: Vec<Vec<(usize, f64)>> = vec![Vec::new(); self.items.len()];
        let mut has_below = vec![false; self.items.len()];
        for segment in self.segments.iter().flatten() {
            if let Some(list) = above.get_mut(segment.below) {
                list.push((segment.above, segment.below_offset));
            }
            if let Some(flag) = has_below.get_mut(segment.above) {
                *flag = true;
            }
        }
        for list in &mut above {
            list.sort_by(|a, b| a.1.total_cmp(&b.1));
        }
        let mut seen = vec![false; self.items.len()];
        let ends = (0..self.items.len()).filter(|i| has_below.get(*i) == Some(&false));
        let mut stack: Vec<usize> = ends.rev().collect();
        while let Some(item) = stack.pop() {
            match seen.get_mut(item) {
                Some(seen) if !*seen => *seen = true,
                Some(_) | None => continue,
            }
            let rank = self.items.get(item).map_or(0, |item| item.rank);
            if let Some(row) = self.rows.get_mut(rank) {
                row.push(item);
            }
            stack.extend(above.get(item).into_iter().flatten().rev().map(|(i, _)| *i));
        }
    }

    /// Sweeps down and up by barycenters, and keeps the order with the fewest crossings.
    pub(super) fn order(&mut self) {
        let mut best = (self.crossings(), self.rows.clone());
        for round in 0..ORDER_ROUNDS {
            if best.0 == 0 {
                break;
            }
            let down = round % 2 == 0;
            let mut positions = self.positions();
            let depth = self.rows.len();
            for step in 1..depth {
                let rank = if down { step } else { depth - 1 - step };
                self.sort_row(rank, down, &mut positions);
            }
            let crossings = self.crossings();
            if crossings < best.0 {
                best = (crossings, self.rows.clone());
            }
        }
        self.rows = best.1;
    }

    /// Each item's index in its row.
    fn positions(&self) -> Vec<f64> {
        let mut positions = vec![0.0; self.items.len()];
        for row in &self.rows {
            for (i, item) in row.iter().enumerate() {
                if let Some(position) = positions.get_mut(*item) {
                    *position = i as f64;
                }
            }
        }
        positions
    }

    fn sort_row(&mut self, rank: usize, down: bool, positions: &mut [f64]) {
        let mut sums: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
        let segments = if down {
            self.segments_below(rank.checked_sub(1))
        } else {
            self.segments_below(Some(rank))
        };
        for segment in segments {
            let (item, other, offset) = match down {
                true => (segment.below, segment.above, segment.above_offset),
                false => (segment.above, segment.below, segment.below_offset),
            };
            let width = self.items.get(other).map_or(0.0, |item| item.width).max(1.0);
            let at = positions.get(other).copied().unwrap_or(0.0) + offset / width;
            let (sum, count) = sums.entry(item).or_insert((0.0, 0.0));
            *sum += at;
            *count += 1.0;
        }
        let Some(row) = self.rows.get_mut(rank) else { return };
        let wanted = |item: &usize| match sums.get(item) {
            Some((sum, count)) => sum / count,
            // No neighbour pulls it: it stays.
            None => positions.get(*item).copied().unwrap_or(0.0),
        };
        row.sort_by(|a, b| wanted(a).total_cmp(&wanted(b)));
        for (i, item) in row.iter().enumerate() {
            if let Some(position) = positions.get_mut(*item) {
                *position = i as f64;
            }
        }
    }

    /// The number of crossing pairs of segments between the same ranks.
    fn crossings(&self) -> usize {
        let positions = self.positions();
        let end = |item: usize, offset: f64| {
            let width = self.items.get(item).map_or(0.0, |item| item.width).max(1.0);
            positions.get(item).copied().unwrap_or(0.0) + offset / width
        };
        let mut count = 0;
        for segments in &self.segments {
            let mut ends: Vec<(f64, f64)> = segments
                .iter()
                .map(|p| (end(p.above, p.above_offset), end(p.below, p.below_offset)))
                .collect();
            ends.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            // Lower ends so far, sorted: those right of this one cross it.
            let mut below: Vec<f64> = Vec::with_capacity(ends.len());
            for (_, end) in &ends {
                let at = below.partition_point(|known| known.total_cmp(end).is_le());
                count += below.len() - at;
                below.insert(at, *end);
            }
        }
        count
    }

    /// Segments from that rank to the next.
    pub(super) fn segments_below(&self, rank: Option<usize>) -> &[Segment] {
        rank.and_then(|rank| self.segments.get(rank)).map_or(&[], Vec::as_slice)
    }
}

struct Builder<'a> {
    diagram: &'a Diagram,
    sizes: &'a [Size],
    ranks: &'a [usize],
    items: Vec<Item>,
    segments: Vec<Segment>,
    chains: Vec<Vec<usize>>,
    /// The item where a port's line crosses a rank.
    passing: BTreeMap<(usize, usize, usize), usize>,
    long: BTreeMap<(usize, usize), usize>,
    columns: usize,
    /// For each box, the number of neighbours one rank above and one rank below.
    neighbours: Vec<(usize, usize)>,
}

impl<'a> Builder<'a> {
    fn new(diagram: &'a Diagram, sizes: &'a [Size], ranks: &'a [usize]) -> Builder<'a> {
        let rank = |i: usize| ranks.get(i).copied().unwrap_or(0);
        let mut neighbours = vec![(0usize, 0usize); diagram.vertices.len()];
        for edge in diagram.edges.iter().filter(|e| rank(e.to.0) == rank(e.from.0) + 1) {
            neighbours.iter_mut().skip(edge.to.0).take(1).for_each(|(above, _)| *above += 1);
            neighbours.iter_mut().skip(edge.from.0).take(1).for_each(|(_, below)| *below += 1);
        }
        let items = sizes.iter().zip(ranks).enumerate();
        let items = items.map(|(i, (size, rank))| Item {
            vertex: Some(i),
            width: size.width,
            rank: *rank,
            column: None,
        });
        Builder {
            diagram,
            sizes,
            ranks,
            items: items.collect(),
            segments: Vec::new(),
            chains: Vec::new(),
            passing: BTreeMap::new(),
            long: BTreeMap::new(),
            columns: 0,
            neighbours,
        }
    }

    fn rank(&self, vertex: usize) -> usize {
        self.ranks.get(vertex).copied().unwrap_or(0)
    }

    /// The offset of a line's end from the centre of its box.
    fn offset(&self, (vertex, port): (usize, usize), output: bool) -> f64 {
        let size = self.sizes.get(vertex).copied().unwrap_or_default();
        let ports = self.diagram.vertices.get(vertex).map_or(1, |b| match output {
            true => b.outputs,
            false => b.inputs,
        });
        port_offset(size, port, ports)
    }

    fn edge(&mut self, from: (usize, usize), to: (usize, usize)) {
        let (first, last) = (self.rank(from.0), self.rank(to.0));
        let (out, into) = (self.offset(from, true), self.offset(to, false));
        let mut chain = vec![from.0];
        let mut above = (from.0, out);
        // A line that crosses one rank stays near its ends; a longer one may go its own way.
        let pull = if last > first + 2 { SIDE } else { PLAIN };
        for rank in first + 1..last {
            let item = match self.passing.get(&(from.0, from.1, rank)) {
                Some(item) => *item,
                None => {
                    let item = self.pass(from, rank);
                    let weight = if above.0 == from.0 { pull } else { PLAIN };
                    self.segment(above, (item, 0.0), weight);
                    item
                }
            };
            chain.push(item);
            above = (item, 0.0);
        }
        let weight = match above.0 == from.0 {
            true => self.weight(from.0, to.0),
            false => pull,
        };
        if weight == ONLY {
            self.align(from.0, to.0, out - into);
        }
        self.segment(above, (to.0, into), weight);
        chain.push(to.0);
        self.chains.push(chain);
    }

    /// Adds an item where a port's line crosses a rank.
    fn pass(&mut self, from: (usize, usize), rank: usize) -> usize {
        let column = match self.long.get(&from) {
            Some(column) => *column,
            None => {
                self.columns += 1;
                self.long.insert(from, self.columns);
                self.columns
            }
        };
        self.items.push(Item { vertex: None, width: 0.0, rank, column: Some((column, 0.0)) });
        let item = self.items.len() - 1;
        self.passing.insert((from.0, from.1, rank), item);
        item
    }

    fn segment(&mut self, above: (usize, f64), below: (usize, f64), weight: f64) {
        let ((above, above_offset), (below, below_offset)) = (above, below);
        self.segments.push(Segment { above, above_offset, below, below_offset, weight });
    }

    /// The pull between boxes on neighbouring ranks.
    fn weight(&self, from: usize, to: usize) -> f64 {
        let one_above = self.neighbours.get(to).is_some_and(|(above, _)| *above == 1);
        let one_below = self.neighbours.get(from).is_some_and(|(_, below)| *below == 1);
        let wide = |i: usize| {
            self.diagram.vertices.get(i).is_some_and(|b| b.class == Class::Slot && b.outputs > 1)
        };
        match one_above && one_below {
            true => ONLY,
            false if wide(from) || wide(to) => PORT,
            false => PLAIN,
        }
    }

    /// Puts a box into the column of the one above it, `shift` to the right.
    fn align(&mut self, above: usize, below: usize, shift: f64) {
        let (column, at) = match self.items.get(above).and_then(|item| item.column) {
            Some(column) => column,
            None => {
                self.columns += 1;
                let column = (self.columns, 0.0);
                self.items.iter_mut().skip(above).take(1).for_each(|i| i.column = Some(column));
                column
            }
        };
        let column = Some((column, at + shift));
        self.items.iter_mut().skip(below).take(1).for_each(|item| item.column = column);
    }
}
