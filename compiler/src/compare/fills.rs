//! What fills the slots of an arch, by what it computes.
//!
//! In: a graph. Out: for each filled slot of a layer whether its fill is a Canon layer. Must stay true:
//! told from the graph alone, so that neither the name of a fill nor which of its settings were written
//! says anything.

use std::collections::BTreeMap;

use crate::graph::{Body, Graph, Node, NodeKind};

/// Filled slots by layer and name: whether each is the Canon convolution and nothing else.
pub(crate) type Fills = BTreeMap<(usize, String), bool>;

pub(crate) fn fills(graph: &Graph) -> Fills {
    let mut found = Fills::new();
    let mut known: BTreeMap<*const Body, Vec<(String, bool)>> = BTreeMap::new();
    for (layer, body, ..) in graph.layers() {
        let slots = known.entry(std::rc::Rc::as_ptr(body)).or_insert_with(|| slots(body));
        for (name, canon) in slots {
            found.insert((layer as usize, name.clone()), *canon);
        }
    }
    found
}

/// Whether every fill of either graph, the head's too, is a Canon layer.
pub(super) fn only_canon(graph: &Graph) -> bool {
    let mut seen: Vec<*const Body> = Vec::new();
    let canon = |body: &Body| slots(body).iter().all(|(_, canon)| *canon);
    canon(&graph.top)
        && graph.layers().all(|(_, body, ..)| {
            let place = std::rc::Rc::as_ptr(body);
            if seen.last() == Some(&place) {
                return true;
            }
            seen.push(place);
            canon(body)
        })
}

fn slots(body: &Body) -> Vec<(String, bool)> {
    body.nodes.iter().filter_map(slot).collect()
}

fn slot(node: &Node) -> Option<(String, bool)> {
    match &node.kind {
        NodeKind::Slot { name, fill, .. } => Some((name.clone(), is_canon(fill))),
        NodeKind::Input(_) | NodeKind::Param(_) | NodeKind::Op { .. } | NodeKind::Layer { .. } => {
            None
        }
    }
}

fn is_canon(fill: &Body) -> bool {
    let computes = |node: &Node| match &node.kind {
        NodeKind::Op { primitive, .. } => Some(primitive.name == "canon"),
        // Nothing that a Canon layer holds.
        NodeKind::Slot { .. } | NodeKind::Layer { .. } => Some(false),
        NodeKind::Param(_) | NodeKind::Input(_) => None,
    };
    let found: Vec<bool> = fill.nodes.iter().filter_map(computes).collect();
    found == [true]
}
