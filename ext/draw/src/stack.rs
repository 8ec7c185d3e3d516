//! The whole architecture as one short column. Each run of equal layers is one box, and a repeating group of runs one
//! card with its number of repeats, so that every layer is counted once.

use compiler::graph::{Graph, NodeKind};
use compiler::kinds::LayerKind;

use crate::Subject;
use crate::diagram::{Builder, Card, Class, Diagram, LayerRun, Vertex};

/// Cards shown. Further layers are only counted.
const MAX_CARDS: usize = 24;
/// The longest repeating group of layers to look for.
const MAX_PERIOD: usize = 32;

pub(super) fn diagram(subject: &Subject, kinds: &[LayerKind]) -> Diagram {
    let top = &subject.graph.top;
    let mut builder = Builder::new(top);
    let mut stack: Option<usize> = None;
    for id in top.reachable() {
        let Some(node) = top.nodes.get(id as usize) else { continue };
        match (&node.kind, stack) {
            (NodeKind::Layer { .. }, Some(vertex)) => builder.draw_as(id, vertex),
            (NodeKind::Layer { .. }, None) => {
                let cards = cards(subject, kinds);
                let vertex = builder.push(Vertex { cards, ..Vertex::new(Class::Stack, "", "") });
                for input in &node.inputs {
                    builder.edge(*input, vertex, 0);
                }
                builder.draw_as(id, vertex);
                stack = Some(vertex);
            }
            (_, _) => builder.node(id, "tokens"),
        }
    }
    builder.outputs("logits");
    builder.diagram
}

/// The kind of each layer, in order.
fn sequence(graph: &Graph, kinds: &[LayerKind]) -> Vec<usize> {
    let mut layers: Vec<(u32, usize)> = kinds
        .iter()
        .enumerate()
        .flat_map(|(index, kind)| kind.layers.iter().map(move |layer| (*layer, index)))
        .collect();
    layers.sort_unstable();
    debug_assert_eq!(layers.len(), graph.layers().count());
    layers.into_iter().map(|(_, kind)| kind).collect()
}

fn cards(subject: &Subject, kinds: &[LayerKind]) -> Vec<Card> {
    let mut rest: &[usize] = &sequence(subject.graph, kinds);
    let mut cards: Vec<Card> = Vec::new();
    while !rest.is_empty() {
        if cards.len() == MAX_CARDS {
            let run = LayerRun {
                count: rest.len(),
                title: "more layers".to_owned(),
                note: "not of one pattern".to_owned(),
                slots: String::new(),
            };
            cards.push(Card { repeats: 1, runs: vec![run] });
            break;
        }
        let (period, repeats) = group(rest);
        let (covered, after) = rest.split_at((period * repeats).min(rest.len()));
        // A run of one kind is a card without repeats.
        let (shown, repeats) = match period {
            1 => (covered, 1),
            _ => (covered.get(..period).unwrap_or(covered), repeats),
        };
        cards.push(Card { repeats, runs: runs(subject, kinds, shown) });
        rest = after;
    }
    cards
}

/// The repeating group that covers most of the rest, shortest first: its length and number of repeats.
fn group(rest: &[usize]) -> (usize, usize) {
    let mut best = (1, 1);
    for period in 1..=rest.len().min(MAX_PERIOD) {
        let first = rest.get(..period).unwrap_or(rest);
        let repeats = rest.chunks_exact(period).take_while(|chunk| *chunk == first).count();
        if repeats > 1 && repeats * period > best.0 * best.1 {
            best = (period, repeats);
        }
    }
    best
}

fn runs(subject: &Subject, kinds: &[LayerKind], sequence: &[usize]) -> Vec<LayerRun> {
    let equal = sequence.chunk_by(|a, b| a == b);
    equal
        .filter_map(|run| {
            let kind = kinds.get(*run.first()?)?;
            let (title, note) = subject.layer_words(*kind.layers.first()?);
            Some(LayerRun { count: run.len(), title, note, slots: slots(kind) })
        })
        .collect()
}

/// The slots that are filled in layers of a kind: `A B C D`.
pub(super) fn slots(kind: &LayerKind) -> String {
    let mut names: Vec<&str> = kind
        .body
        .nodes
        .iter()
        .filter_map(|node| {
            let NodeKind::Slot { name, .. } = &node.kind else { return None };
            Some(name.as_str())
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use super::group;

    #[test]
    fn the_group_that_covers_most_layers_is_taken() {
        let cases: [(&[usize], (usize, usize)); 5] = [
            (&[0], (1, 1)),
            (&[0, 0, 0], (1, 3)),
            (&[0, 0, 1, 0, 0, 1], (3, 2)),
            (&[0, 0, 0, 0, 1, 0], (1, 4)),
            (&[0, 1, 2], (1, 1)),
        ];
        for (sequence, expected) in cases {
            assert_eq!(group(sequence), expected, "{sequence:?}");
        }
    }
}
