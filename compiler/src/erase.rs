//! Erasure: a graph without the fills of some slots.
//!
//! In: a graph and slot names. Out: the graph as if those slots had been empty. Must stay true
//! (design, section 5): erasing the slots of a Canon arch gives its base's graph and manifest,
//! byte for byte and path by path.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::graph::{Body, Graph, NodeKind, Out, ParamId, StateId};

/// The graph with every slot that `erased` accepts emptied; `None` as layer for the head's slots.
pub fn erase(graph: &Graph, erased: &dyn Fn(Option<u32>, &str) -> bool) -> Graph {
    let mut done = BTreeMap::new();
    let top = erase_body(&graph.top, None, erased, &mut done);
    Graph { top: drop_unused(&top), vocab: graph.vocab, dim: graph.dim }
}

/// Every slot of every layer.
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
    // What each output of the old body is now.
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

/// A body without its unused parameters and states, and which of both it kept.
type Smaller = (Rc<Body>, Vec<usize>, Vec<usize>);

/// Removes the parameters and states that nothing reachable uses any more, nested bodies first.
pub(crate) fn drop_unused(body: &Body) -> Body {
    let reachable = body.reachable();
    let mut out = body.clone();
    let mut params: BTreeMap<ParamId, ParamId> = BTreeMap::new();
    let mut states: BTreeMap<StateId, StateId> = BTreeMap::new();
    let mut used_params = vec![false; body.params.len()];
    let mut used_states = vec![false; body.states.len()];
    let mut nested: BTreeMap<*const Body, Smaller> = BTreeMap::new();
    let mark = |flags: &mut Vec<bool>, i: u32| {
        if let Some(flag) = flags.get_mut(i as usize) {
            *flag = true;
        }
    };
    for id in &reachable {
        let Some(node) = out.nodes.get_mut(*id as usize) else { continue };
        match &mut node.kind {
            NodeKind::Input(_) => {}
            NodeKind::Param(p) => mark(&mut used_params, p.0),
            NodeKind::Op { state, .. } => {
                if let Some(s) = state {
                    mark(&mut used_states, s.0);
                }
            }
            NodeKind::Slot { fill: inner, params: ps, states: ss, .. }
            | NodeKind::Layer { body: inner, params: ps, states: ss, .. } => {
                let (small, kept, carried) = nested
                    .entry(Rc::as_ptr(inner))
                    .or_insert_with(|| {
                        let small = drop_unused(inner);
                        let kept = kept(inner, &small);
                        let carried = kept_states(inner, &small);
                        (Rc::new(small), kept, carried)
                    })
                    .clone();
                *inner = small;
                *ps = kept.iter().filter_map(|i| ps.get(*i)).copied().collect();
                *ss = carried.iter().filter_map(|i| ss.get(*i)).copied().collect();
                ps.iter().for_each(|p| mark(&mut used_params, p.0));
                ss.iter().for_each(|s| mark(&mut used_states, s.0));
            }
        }
    }
    out.params.clear();
    for (i, param) in body.params.iter().enumerate() {
        if used_params.get(i) == Some(&true) {
            params.insert(ParamId(i as u32), ParamId(out.params.len() as u32));
            out.params.push(param.clone());
        }
    }
    out.states.clear();
    for (i, state) in body.states.iter().enumerate() {
        if used_states.get(i) == Some(&true) {
            states.insert(StateId(i as u32), StateId(out.states.len() as u32));
            out.states.push(state.clone());
        }
    }
    for id in &reachable {
        let Some(node) = out.nodes.get_mut(*id as usize) else { continue };
        match &mut node.kind {
            NodeKind::Input(_) => {}
            NodeKind::Param(p) => *p = params.get(p).copied().unwrap_or(*p),
            NodeKind::Op { state, .. } => {
                if let Some(s) = state {
                    *s = states.get(s).copied().unwrap_or(*s);
                }
            }
            NodeKind::Slot { params: ps, states: ss, .. }
            | NodeKind::Layer { params: ps, states: ss, .. } => {
                ps.iter_mut().for_each(|p| *p = params.get(p).copied().unwrap_or(*p));
                ss.iter_mut().for_each(|s| *s = states.get(s).copied().unwrap_or(*s));
            }
        }
    }
    // Unreachable nodes go too, so that nothing names a parameter that is gone.
    compact(out, &reachable)
}

fn compact(body: Body, reachable: &[u32]) -> Body {
    let mut sorted = reachable.to_vec();
    sorted.sort_unstable();
    let place: BTreeMap<u32, u32> =
        sorted.iter().enumerate().map(|(new, old)| (*old, new as u32)).collect();
    let moved = |o: &Out| Out { node: place.get(&o.node).copied().unwrap_or(0), port: o.port };
    let mut nodes = Vec::with_capacity(sorted.len());
    for old in &sorted {
        if let Some(node) = body.nodes.get(*old as usize) {
            let mut node = node.clone();
            node.inputs = node.inputs.iter().map(moved).collect();
            nodes.push(node);
        }
    }
    Body { outputs: body.outputs.iter().map(moved).collect(), nodes, ..body }
}

/// Paths of parameters are unique in a body.
fn kept(before: &Body, after: &Body) -> Vec<usize> {
    let places: BTreeMap<&str, usize> =
        before.params.iter().enumerate().map(|(i, p)| (p.path.as_str(), i)).collect();
    after.params.iter().filter_map(|p| places.get(p.path.as_str()).copied()).collect()
}

fn kept_states(before: &Body, after: &Body) -> Vec<usize> {
    // States keep their order, and only whole slots go: match them greedily in order.
    let mut found = Vec::new();
    let mut from = 0;
    for state in &after.states {
        if let Some(at) = before.states.iter().skip(from).position(|s| s == state) {
            found.push(from + at);
            from += at + 1;
        }
    }
    found
}
