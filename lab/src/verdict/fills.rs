//! Classifies the fills of an arch's slots by their computation: the name of a fill has no effect, nor does writing out
//! its default settings.

use std::collections::BTreeMap;

use compiler::graph::{Body, Graph, Node, NodeKind};

/// For each filled slot, by layer and name: whether the fill is exactly a Canon convolution.
pub type Fills = BTreeMap<(usize, String), bool>;

/// The fills of every layer's slots.
pub fn fills(graph: &Graph) -> Fills {
    let mut fills = Fills::new();
    let mut known: BTreeMap<*const Body, Vec<(String, bool)>> = BTreeMap::new();
    for (layer, body, ..) in graph.layers() {
        let slots = known.entry(std::rc::Rc::as_ptr(body)).or_insert_with(|| slots(body));
        for (name, canon) in slots {
            fills.insert((layer as usize, name.clone()), *canon);
        }
    }
    fills
}

/// Whether every fill of either graph is a Canon layer, including the head's.
pub(super) fn only_canon(graph: &Graph) -> bool {
    let mut seen: Vec<*const Body> = Vec::new();
    let canon = |body: &Body| slots(body).iter().all(|(_, canon)| *canon);
    canon(&graph.top)
        && graph.layers().all(|(_, body, ..)| {
            let body_at = std::rc::Rc::as_ptr(body);
            if seen.last() == Some(&body_at) {
                return true;
            }
            seen.push(body_at);
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
    fill.nodes.iter().filter_map(computes).eq([true])
}
