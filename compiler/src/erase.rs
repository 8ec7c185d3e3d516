//! Erasure: a graph as if some slots had been empty. Erasing the slots of a Canon arch gives its base's graph and
//! manifest, byte for byte and path by path.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::arrange::arranged;
use crate::graph::{Body, Graph, NodeKind, Out};

/// Empties every slot that `erased` accepts; the layer is `None` for the head's slots.
pub fn erase(graph: &Graph, erased: &dyn Fn(Option<u32>, &str) -> bool) -> Graph {
    let mut done = BTreeMap::new();
    let top = erase_body(&graph.top, None, erased, &mut done);
    Graph { top: arranged(top), vocab: graph.vocab, dim: graph.dim }
}

/// Empties every slot of every layer.
pub fn erase_all(graph: &Graph) -> Graph {
    erase(graph, &|_, _| true)
}

type Done = BTreeMap<(*const Body, Vec<String>), Rc<Body>>;

fn erase_body(
    body: &Body,
    layer: Option<u32>,
    erased: &dyn Fn(Option<u32>, &str) -> bool,
    done: &mut Done,
) -> Body {
    let mut out = Body { nodes: Vec::with_capacity(body.nodes.len()), ..body.clone() };
    out.nodes.clear();
    // The new output for each output of the old body.
    let mut now: BTreeMap<Out, Out> = BTreeMap::new();
    let moved = |now: &BTreeMap<Out, Out>, o: &Out| now.get(o).copied().unwrap_or(*o);
    for (id, node) in body.nodes.iter().enumerate() {
        let id = id as u32;
        let inputs: Vec<Out> = node.inputs.iter().map(|o| moved(&now, o)).collect();
        let kind = match &node.kind {
            NodeKind::Slot { name, .. } if erased(layer, name) => {
                for (port, input) in inputs.iter().enumerate() {
                    now.insert(Out { node: id, port: port as u32 }, *input);
                }
                continue;
            }
            NodeKind::Layer { index, body, params, states } => {
                let names: Vec<String> = slot_names(body);
                let gone: Vec<String> =
                    names.into_iter().filter(|n| erased(Some(*index), n)).collect();
                let key = (Rc::as_ptr(body), gone);
                let inner = match done.get(&key) {
                    Some(inner) => inner.clone(),
                    None => {
                        let inner = Rc::new(erase_body(body, Some(*index), erased, done));
                        done.insert(key, inner.clone());
                        inner
                    }
                };
                NodeKind::Layer {
                    index: *index,
                    body: inner,
                    params: params.clone(),
                    states: states.clone(),
                }
            }
            kind @ (NodeKind::Input(_)
            | NodeKind::Param(_)
            | NodeKind::Op { .. }
            | NodeKind::Slot { .. }) => kind.clone(),
        };
        let new = out.push(kind, inputs, node.types.clone(), node.span);
        for port in 0..node.types.len() as u32 {
            now.insert(Out { node: id, port }, Out { node: new, port });
        }
    }
    out.outputs = body.outputs.iter().map(|o| moved(&now, o)).collect();
    out
}

fn slot_names(body: &Body) -> Vec<String> {
    let mut names: Vec<String> = body
        .nodes
        .iter()
        .filter_map(|n| match &n.kind {
            NodeKind::Slot { name, .. } => Some(name.clone()),
            NodeKind::Input(_)
            | NodeKind::Param(_)
            | NodeKind::Op { .. }
            | NodeKind::Layer { .. } => None,
        })
        .collect();
    names.sort();
    names.dedup();
    names
}
