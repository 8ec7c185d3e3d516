//! Classifies the fills of an arch's slots by their computation.
//!
//! In: a graph. Out: for each filled slot of a layer, whether its fill is a Canon layer. Must stay true:
//! only the graph decides; the name of a fill has no effect, nor does writing out its default
//! settings.

use std::collections::BTreeMap;

use compiler::graph::{Body, Graph, Node, NodeKind};

/// For each filled slot, by layer and name: whether the fill is exactly a Canon convolution.
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

/// Whether every fill of either graph is a Canon layer, including the head's.
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
        // A Canon layer contains none of these.
        NodeKind::Slot { .. } | NodeKind::Layer { .. } => Some(false),
        NodeKind::Param(_) | NodeKind::Input(_) => None,
    };
    let found: Vec<bool> = fill.nodes.iter().filter_map(computes).collect();
    found == [true]
}
