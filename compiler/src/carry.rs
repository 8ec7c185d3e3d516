//! Layers with only the tensors that pass between them: a layer returns what a later one reads, and reads what its
//! results need.
//!
//! The order of a layer's operands and results follows from their use, never from a name or the order of a text, and
//! slots have no part in it, so that emptying one changes no order. Layers that were one body and pass the same tensors
//! on are one body again.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::graph::{Body, Node, NodeKind, Out, ParamId};

/// The layers' bodies, by the old body and the results that are kept of it, with the old inputs that are left.
type Trimmed = BTreeMap<(*const Body, Vec<u32>), (Rc<Body>, Vec<u32>)>;

/// Whether any layer reads or returns more than the stream.
pub(crate) fn carries(top: &Body) -> bool {
    top.nodes.iter().any(|node| {
        matches!(node.kind, NodeKind::Layer { .. })
            && (node.inputs.len() != 1 || node.types.len() != 1)
    })
}

/// The body with only the tensors that pass between layers.
pub(crate) fn passed(top: Body) -> Body {
    if !carries(&top) {
        return top;
    }
    let mut top = top;
    let mut wanted: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let want = |wanted: &mut BTreeMap<u32, Vec<u32>>, out: Out| {
        let ports = wanted.entry(out.node).or_default();
        if !ports.contains(&out.port) {
            ports.push(out.port);
        }
    };
    for leaf in leaves(&top, &top.outputs) {
        want(&mut wanted, leaf);
    }
    let mut known = Trimmed::new();
    // Keep the old bodies alive, since their addresses are keys.
    let mut old = Vec::new();
    for at in (0..top.nodes.len()).rev() {
        let Some(ports) = wanted.get(&(at as u32)).cloned() else { continue };
        let Some(Node { kind: NodeKind::Layer { body, .. }, .. }) = top.nodes.get(at) else {
            continue;
        };
        let key = (Rc::as_ptr(body), ports.clone());
        let (inner, inputs) = known
            .entry(key)
            .or_insert_with(|| {
                let (trimmed, inputs) = trimmed(body, &ports);
                (Rc::new(trimmed), inputs)
            })
            .clone();
        let Some(node) = top.nodes.get_mut(at) else { continue };
        node.inputs = inputs.iter().filter_map(|n| node.inputs.get(*n as usize)).copied().collect();
        node.types = ports.iter().filter_map(|n| node.types.get(*n as usize)).cloned().collect();
        if let NodeKind::Layer { body, .. } = &mut node.kind {
            old.push(std::mem::replace(body, inner));
        }
        let inputs = node.inputs.clone();
        for leaf in leaves(&top, &inputs) {
            want(&mut wanted, leaf);
        }
    }
    let moved = |out: &mut Out| {
        if let Some(ports) = wanted.get(&out.node)
            && let Some(port) = ports.iter().position(|port| *port == out.port)
        {
            out.port = port as u32;
        }
    };
    let layers: BTreeSet<u32> = (0u32..)
        .zip(&top.nodes)
        .filter(|(_, node)| matches!(node.kind, NodeKind::Layer { .. }))
        .map(|(at, _)| at)
        .collect();
    let inputs = top.nodes.iter_mut().flat_map(|node| &mut node.inputs);
    inputs.chain(&mut top.outputs).filter(|out| layers.contains(&out.node)).for_each(moved);
    top
}

/// A layer's body with these results, and which of its inputs they need.
fn trimmed(body: &Body, ports: &[u32]) -> (Body, Vec<u32>) {
    let mut body = body.clone();
    body.outputs =
        ports.iter().filter_map(|port| body.outputs.get(*port as usize)).copied().collect();
    let number = |out: &Out| match body.nodes.get(out.node as usize).map(|node| &node.kind) {
        Some(NodeKind::Input(number)) => Some(*number),
        Some(_) | None => None,
    };
    let used: Vec<u32> = leaves(&body, &body.outputs).iter().filter_map(number).collect();
    for node in &mut body.nodes {
        if let NodeKind::Input(number) = &mut node.kind
            && let Some(at) = used.iter().position(|used| used == number)
        {
            *number = at as u32;
        }
    }
    body.inputs =
        used.iter().filter_map(|number| body.inputs.get(*number as usize)).cloned().collect();
    (body, used)
}

/// The inputs and results of layers that values depend on, in order of first use; layers are not looked into.
fn leaves(body: &Body, outs: &[Out]) -> Vec<Out> {
    let mut leaves = Vec::new();
    // First through slots as if all were empty, from each result to its operand; then all of them.
    for all in [false, true] {
        let mut seen: BTreeSet<Out> = BTreeSet::new();
        let mut stack: Vec<Out> = outs.iter().rev().copied().collect();
        while let Some(out) = stack.pop() {
            // Only the results of slots and layers differ.
            let Some(node) = body.nodes.get(out.node as usize) else { continue };
            let apart = matches!(node.kind, NodeKind::Slot { .. } | NodeKind::Layer { .. });
            if !seen.insert(if apart { out } else { Out::first(out.node) }) {
                continue;
            }
            match &node.kind {
                NodeKind::Input(_) | NodeKind::Layer { .. } => {
                    if !leaves.contains(&out) {
                        leaves.push(out);
                    }
                }
                NodeKind::Slot { .. } if !all => {
                    stack.extend(node.inputs.get(out.port as usize));
                }
                NodeKind::Slot { .. } | NodeKind::Op { .. } | NodeKind::Param(_) => {
                    stack.extend(node.inputs.iter().rev());
                }
            }
        }
    }
    leaves
}

/// The first layer that the one after it does not read, if there is one; the head follows the last.
pub(crate) fn passed_over(top: &Body) -> Option<u32> {
    let mut before: Option<(u32, u32)> = None;
    for (at, node) in (0u32..).zip(&top.nodes) {
        let NodeKind::Layer { index, .. } = &node.kind else { continue };
        if let Some((layer, index)) = before
            && node.inputs.iter().all(|out| out.node != layer)
        {
            return Some(index);
        }
        before = Some((at, *index));
    }
    let (layer, index) = before?;
    let read = leaves(top, &top.outputs).iter().any(|out| out.node == layer);
    (!read).then_some(index)
}

/// Parameters of the top body that no result reads.
pub(crate) fn unread(top: &Body) -> BTreeSet<ParamId> {
    let mut known: BTreeMap<*const Body, Vec<bool>> = BTreeMap::new();
    let mut read = vec![false; top.params.len()];
    mark(top, &mut read, &mut known);
    (0u32..).zip(read).filter(|(_, read)| !read).map(|(id, _)| ParamId(id)).collect()
}

fn mark(body: &Body, read: &mut [bool], known: &mut BTreeMap<*const Body, Vec<bool>>) {
    let mut see = |id: &ParamId| {
        if let Some(read) = read.get_mut(id.0 as usize) {
            *read = true;
        }
    };
    for node in body.reachable() {
        match &body.nodes[node as usize].kind {
            NodeKind::Param(id) => see(id),
            NodeKind::Slot { fill: inner, params, .. }
            | NodeKind::Layer { body: inner, params, .. } => {
                let address = Rc::as_ptr(inner);
                if !known.contains_key(&address) {
                    let mut inside = vec![false; inner.params.len()];
                    mark(inner, &mut inside, known);
                    known.insert(address, inside);
                }
                let inside = known.get(&address).map_or(&[][..], Vec::as_slice);
                params.iter().zip(inside).filter(|(_, read)| **read).for_each(|(id, _)| see(id));
            }
            NodeKind::Input(_) | NodeKind::Op { .. } => {}
        }
    }
}
