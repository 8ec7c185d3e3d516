//! PASS Graph → Graph: everything in canonical order.
//!
//! In: a body as it was elaborated, or what erasing slots left of one. Out: the same computation
//! with nodes in canonical order, parameters and states numbered by first use in that order, and
//! without what no output needs. Must stay true: texts of equal id give equal graphs but for spans,
//! so every loop over nodes, parameters or states (sums, digests, checkpoints, updates) runs in one
//! order, which is the manifest's, and never in the order in which a text declares them.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::canonical::Numbers;
use crate::graph::{Body, NodeKind, Out, ParamId, StateId};

/// A whole architecture's body, arranged.
pub(crate) fn arranged(top: &Body) -> Body {
    let Arranged { body, .. } = arrange(top, &mut BTreeMap::new());
    let mut body = Rc::unwrap_or_clone(body);
    number_paths(&mut body);
    body
}

/// An arranged body, and which of its old parameters and states each new one was.
#[derive(Clone)]
struct Arranged {
    body: Rc<Body>,
    params: Vec<ParamId>,
    states: Vec<StateId>,
}

fn arrange(body: &Body, known: &mut BTreeMap<*const Body, Arranged>) -> Arranged {
    let mut params: Numbers<ParamId> = Numbers::new();
    let mut states: Numbers<StateId> = Numbers::new();
    let order = body.reachable();
    let mut places = vec![0u32; body.nodes.len()];
    let mut nodes = Vec::with_capacity(order.len());
    for old in order {
        let Some(node) = body.nodes.get(old as usize) else { continue };
        let mut node = node.clone();
        node.inputs.iter_mut().for_each(|input| *input = moved(*input, &places));
        match &mut node.kind {
            NodeKind::Input(_) => {}
            NodeKind::Param(id) => *id = ParamId(params.get(*id) as u32),
            NodeKind::Op { state, .. } => {
                if let Some(id) = state {
                    *id = StateId(states.get(*id) as u32);
                }
            }
            NodeKind::Slot { fill: inner, params: ours, states: carried, .. }
            | NodeKind::Layer { body: inner, params: ours, states: carried, .. } => {
                let place = Rc::as_ptr(inner);
                let nested = match known.get(&place) {
                    Some(nested) => nested.clone(),
                    None => {
                        let nested = arrange(inner, known);
                        known.insert(place, nested.clone());
                        nested
                    }
                };
                *ours = (nested.params.iter())
                    .filter_map(|id| ours.get(id.0 as usize))
                    .map(|id| ParamId(params.get(*id) as u32))
                    .collect();
                *carried = (nested.states.iter())
                    .filter_map(|id| carried.get(id.0 as usize))
                    .map(|id| StateId(states.get(*id) as u32))
                    .collect();
                *inner = nested.body;
            }
        }
        if let Some(place) = places.get_mut(old as usize) {
            *place = nodes.len() as u32;
        }
        nodes.push(node);
    }
    let (params, states) = (params.order, states.order);
    let body = Body {
        inputs: body.inputs.clone(),
        params: params.iter().filter_map(|id| body.params.get(id.0 as usize)).cloned().collect(),
        states: states.iter().filter_map(|id| body.states.get(id.0 as usize)).cloned().collect(),
        outputs: body.outputs.iter().map(|out| moved(*out, &places)).collect(),
        nodes,
    };
    Arranged { body: Rc::new(body), params, states }
}

fn moved(out: Out, places: &[u32]) -> Out {
    Out { node: places.get(out.node as usize).copied().unwrap_or(0), port: out.port }
}

/// Calls that share a path each have a state: `conv`, `conv#2`, counted in the order of the graph.
fn number_paths(body: &mut Body) {
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for (path, _) in &mut body.states {
        let plain = plain(path);
        let times = times.entry(plain.clone()).or_insert(0);
        *times += 1;
        *path = if *times == 1 { plain } else { format!("{plain}#{times}") };
    }
}

/// A path without the marks that told calls apart in the order of the text, or before erasing.
fn plain(path: &str) -> String {
    let names = path.split('.').map(|name| name.split('#').next().unwrap_or(name));
    names.collect::<Vec<_>>().join(".")
}
