//! Puts a graph in canonical order, without the nodes that no output needs.
//!
//! Texts with equal ids give graphs that differ only in spans, so every loop over nodes, parameters or states (sums,
//! digests, checkpoints, updates) runs in the manifest's order, never in the order in which a text declares them.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::carry;
use crate::graph::{Body, NodeKind, Out, ParamId, StateId};

/// A whole architecture's body, arranged.
pub(crate) fn arranged(top: Body) -> Body {
    let Arranged { mut body, .. } = arrange(carry::passed(top), &mut BTreeMap::new());
    number_paths(&mut body);
    body
}

/// An arranged body, with the old parameter and state of each new one.
struct Arranged<B = Body> {
    body: B,
    params: Vec<u32>,
    states: Vec<u32>,
}

/// Numbers by first use. A list is faster than a map for ten thousand layers.
struct Renumbered {
    order: Vec<u32>,
    numbers: Vec<Option<u32>>,
}

impl Renumbered {
    fn new(count: usize) -> Renumbered {
        Renumbered { order: Vec::new(), numbers: vec![None; count] }
    }

    fn get(&mut self, old: u32) -> u32 {
        let next = self.order.len() as u32;
        match self.numbers.get_mut(old as usize) {
            Some(Some(known)) => *known,
            Some(unknown) => {
                *unknown = Some(next);
                self.order.push(old);
                next
            }
            None => old,
        }
    }
}

/// Moves out the items with these numbers.
fn taken<T>(items: Vec<T>, order: &[u32]) -> Vec<T> {
    let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    order.iter().filter_map(|old| items.get_mut(*old as usize)?.take()).collect()
}

fn arrange(body: Body, known: &mut BTreeMap<*const Body, Arranged<Rc<Body>>>) -> Arranged {
    let mut params = Renumbered::new(body.params.len());
    let mut states = Renumbered::new(body.states.len());
    let order = body.reachable();
    let mut numbers = vec![0u32; body.nodes.len()];
    for (new, old) in order.iter().enumerate() {
        if let Some(number) = numbers.get_mut(*old as usize) {
            *number = new as u32;
        }
    }
    let mut nodes = taken(body.nodes, &order);
    // Keep the old bodies alive: a new allocation must not reuse an address that is still a key.
    let mut old_bodies = Vec::new();
    for node in &mut nodes {
        node.inputs.iter_mut().for_each(|input| *input = moved(*input, &numbers));
        match &mut node.kind {
            NodeKind::Input(_) => {}
            NodeKind::Param(id) => *id = ParamId(params.get(id.0)),
            NodeKind::Op { state, .. } => {
                if let Some(id) = state {
                    *id = StateId(states.get(id.0));
                }
            }
            NodeKind::Slot { fill: inner, params: ours, states: carried, .. }
            | NodeKind::Layer { body: inner, params: ours, states: carried, .. } => {
                let address = Rc::as_ptr(inner);
                if !known.contains_key(&address) {
                    let Arranged { body, params, states } = arrange(inner.as_ref().clone(), known);
                    known.insert(address, Arranged { body: Rc::new(body), params, states });
                }
                let Some(nested) = known.get(&address) else { continue };
                let used = nested.params.iter().filter_map(|id| ours.get(*id as usize));
                *ours = used.map(|id| ParamId(params.get(id.0))).collect();
                let used = nested.states.iter().filter_map(|id| carried.get(*id as usize));
                *carried = used.map(|id| StateId(states.get(id.0))).collect();
                old_bodies.push(std::mem::replace(inner, nested.body.clone()));
            }
        }
    }
    let body = Body {
        inputs: body.inputs,
        params: taken(body.params, &params.order),
        states: taken(body.states, &states.order),
        outputs: body.outputs.iter().map(|out| moved(*out, &numbers)).collect(),
        nodes,
    };
    Arranged { body, params: params.order, states: states.order }
}

fn moved(out: Out, numbers: &[u32]) -> Out {
    Out { node: numbers.get(out.node as usize).copied().unwrap_or(0), port: out.port }
}

/// Each call with the same path has its own state: `conv`, `conv#2`, counted in graph order.
fn number_paths(body: &mut Body) {
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for (path, _) in &mut body.states {
        let plain = plain(path);
        let times = times.entry(plain.clone()).or_insert(0);
        *times += 1;
        *path = if *times == 1 { plain } else { format!("{plain}#{times}") };
    }
}

/// A path without the suffixes that separated calls in text order, or before erasing.
fn plain(path: &str) -> String {
    let names = path.split('.').map(|name| name.split('#').next().unwrap_or(name));
    names.collect::<Vec<_>>().join(".")
}
