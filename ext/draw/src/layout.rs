//! Places boxes and lines by Sugiyama's method: ranks from top to bottom, an order in each rank with few crossings, then
//! coordinates.
//!
//! Coordinates are found by isotonic regression: each rank takes the places nearest to its neighbours' that keep its order.
//! Operands are above their users, and boxes never overlap. It is our own because crates know no ports: with a port of
//! dagre, the lines into a scan and through a slot cross.

mod columns;
mod net;

use crate::diagram::Diagram;
use net::Net;

/// Space between neighbouring boxes, and next to a passing line.
pub(super) const GAP: f64 = 22.0;
const LINE_GAP: f64 = 14.0;
/// Space between ranks.
const RANK_GAP: f64 = 21.0;
/// Rounds of ordering, of moving, and of moving with long lines fixed.
const ORDER_ROUNDS: usize = 12;
const MOVE_ROUNDS: usize = 120;
const LAST_ROUNDS: usize = 60;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Size {
    pub(super) width: f64,
    pub(super) height: f64,
}

/// A box's centre and size.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) size: Size,
}

impl Bounds {
    pub(super) fn top(&self) -> f64 {
        self.y - self.size.height / 2.0
    }

    pub(super) fn bottom(&self) -> f64 {
        self.y + self.size.height / 2.0
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub(super) bounds: Vec<Bounds>,
    /// The points of each line: from a box, down between other boxes, into a box.
    pub(super) routes: Vec<Vec<(f64, f64)>>,
    pub(super) size: Size,
}

/// The offset of port `port` of `ports` to the right of a box's centre.
pub(super) fn port_offset(size: Size, port: usize, ports: usize) -> f64 {
    // On a box not much wider than an arrow head, all lines meet in the middle.
    if ports < 2 || size.width < 40.0 {
        return 0.0;
    }
    size.width * ((port as f64 + 0.5) / ports as f64 - 0.5)
}

pub(super) fn layout(diagram: &Diagram, sizes: &[Size]) -> Layout {
    let ranks = ranks(diagram);
    let mut net = Net::new(diagram, sizes, &ranks);
    net.order();
    let xs = columns::columns(&net);
    finish(&net, diagram, sizes, &ranks, &xs)
}

/// Ranks: as high as operands allow, and for functions of parameters alone as low as users allow.
fn ranks(diagram: &Diagram) -> Vec<usize> {
    let mut ranks = vec![0usize; diagram.vertices.len()];
    let at = |ranks: &[usize], i: usize| ranks.get(i).copied().unwrap_or(0);
    // Lines lead from earlier boxes to later ones, and are listed by the later one.
    for edge in &diagram.edges {
        let rank = at(&ranks, edge.from.0) + 1;
        if let Some(to) = ranks.get_mut(edge.to.0) {
            *to = rank.max(*to);
        }
    }
    let mut lowest: Vec<Option<usize>> = vec![None; diagram.vertices.len()];
    for (i, vertex) in diagram.vertices.iter().enumerate().rev() {
        if vertex.constant
            && let Some(Some(low)) = lowest.get(i)
            && let Some(rank) = ranks.get_mut(i)
        {
            *rank = (*low).max(*rank);
        }
        let above = at(&ranks, i).saturating_sub(1);
        for edge in diagram.edges.iter().filter(|edge| edge.to.0 == i) {
            if let Some(low) = lowest.get_mut(edge.from.0) {
                *low = Some(low.map_or(above, |known| known.min(above)));
            }
        }
    }
    ranks
}

/// Coordinates and routes, with the leftmost item at 0.
fn finish(net: &Net, diagram: &Diagram, sizes: &[Size], ranks: &[usize], xs: &[f64]) -> Layout {
    let size_of = |i: usize| sizes.get(i).copied().unwrap_or_default();
    let x_of = |i: usize| xs.get(i).copied().unwrap_or(0.0);
    let left = net.items.iter().enumerate().map(|(i, item)| x_of(i) - item.width / 2.0);
    let left = left.fold(f64::INFINITY, f64::min);
    let left = if left.is_finite() { left } else { 0.0 };
    let mut heights = vec![0.0f64; net.rows.len()];
    for (rank, size) in ranks.iter().zip(sizes) {
        if let Some(height) = heights.get_mut(*rank) {
            *height = height.max(size.height);
        }
    }
    // The top and bottom edge of each rank.
    let mut spans = Vec::with_capacity(heights.len());
    let mut y = 0.0;
    for height in &heights {
        spans.push((y, y + height));
        y += height + RANK_GAP;
    }
    let span = |rank: usize| spans.get(rank).copied().unwrap_or((0.0, 0.0));
    let rank_of = |i: usize| ranks.get(i).copied().unwrap_or(0);
    let bounds: Vec<Bounds> = (0..diagram.vertices.len())
        .map(|i| {
            let (top, bottom) = span(rank_of(i));
            Bounds { x: x_of(i) - left, y: (top + bottom) / 2.0, size: size_of(i) }
        })
        .collect();
    let bounds_of = |i: usize| bounds.get(i).copied().unwrap_or_default();
    let routes = diagram.edges.iter().zip(&net.chains).map(|(edge, chain)| {
        let (from, out) = edge.from;
        let (to, port) = edge.to;
        let (first, last) = (bounds_of(from), bounds_of(to));
        let outputs = diagram.vertices.get(from).map_or(1, |b| b.outputs);
        let inputs = diagram.vertices.get(to).map_or(1, |b| b.inputs);
        let x = first.x + port_offset(first.size, out, outputs);
        let mut route = vec![(x, first.bottom()), (x, span(rank_of(from)).1)];
        for item in chain.iter().skip(1).take(chain.len().saturating_sub(2)) {
            let rank = net.items.get(*item).map_or(0, |item| item.rank);
            let x = x_of(*item) - left;
            route.extend([(x, span(rank).0), (x, span(rank).1)]);
        }
        let x = last.x + port_offset(last.size, port, inputs);
        route.extend([(x, span(rank_of(to)).0), (x, last.top())]);
        route
    });
    let routes: Vec<Vec<(f64, f64)>> = routes.collect();
    let right = bounds.iter().map(|b| b.x + b.size.width / 2.0);
    let right = right.chain(routes.iter().flatten().map(|(x, _)| *x)).fold(0.0, f64::max);
    let height = spans.last().map_or(0.0, |(_, bottom)| *bottom);
    Layout { bounds, routes, size: Size { width: right, height } }
}
