//! Compares the nodes of two graphs.
//!
//! In: two graphs. Out: nodes added, removed and changed, each with its source line. Must stay true: the
//! list only explains the verdict; a node is identified by its computation, its parameters and its
//! operands, looking through slots, so that filling a slot is one added node and does not change the
//! nodes behind it; equal layers are listed once.

use std::collections::BTreeMap;

use dsl::Span;

use super::judge::{Place, Sources};
use crate::experiment::layer_sets;
use compiler::graph::{Body, Graph, Node, NodeKind, Out};
use compiler::program::Compiled;

/// How the second arm's graph differs in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Only the second arm has it.
    Added,
    /// Only the first arm has it.
    Removed,
    /// Both have it, with other configuration.
    Changed,
}

/// One node difference, with all layers that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeChange {
    /// The kind of difference.
    pub what: What,
    /// `layers.0..24`; empty outside the layers.
    pub layers: String,
    /// A description of the node: `slot A`, `linear mixer.wq`.
    pub node: String,
    /// The number of such nodes in each of the layers.
    pub times: usize,
    /// Configuration in the first arm; None if it has no such node.
    pub a: Option<String>,
    /// Configuration in the second arm; None if it has no such node.
    pub b: Option<String>,
    /// Line of the node in each arm.
    pub places: [Option<Place>; 2],
}

/// A node in words.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    name: String,
    text: String,
    span: Span,
}

type Difference = (What, Option<Told>, Option<Told>);

pub(super) fn changes(archs: [&Compiled; 2], sources: &Sources<'_>) -> Vec<NodeChange> {
    let [a, b] = archs.map(|arch| &arch.graph);
    let mut changes = Vec::new();
    let mut tell = |layers: &str, differences: &[Difference]| {
        let mut told: Vec<NodeChange> = Vec::new();
        let mut known: BTreeMap<_, usize> = BTreeMap::new();
        for (what, a, b) in differences {
            let name = a.as_ref().or(b.as_ref()).map_or(String::new(), |told| told.name.clone());
            let change = NodeChange {
                what: *what,
                layers: layers.to_owned(),
                node: name,
                times: 1,
                a: a.as_ref().map(|told| told.text.clone()),
                b: b.as_ref().map(|told| told.text.clone()),
                places: [a, b].map(|told| told.as_ref().map(|told| sources.arch(told.span))),
            };
            // Two nodes on one line, such as the rope of q and that of k, are listed once.
            let key = (change.what, change.a.clone(), change.b.clone(), change.places.clone());
            let at = *known.entry(key).or_insert(told.len());
            match told.get_mut(at) {
                Some(twin) => twin.times += 1,
                None => told.push(change),
            }
        }
        changes.extend(told);
    };
    tell("", &differences(&a.top, &b.top));
    // Layers with the same two bodies differ in the same nodes. Other layers may, by coincidence.
    let [bodies_a, bodies_b] = [a, b].map(layer_bodies);
    let mut pairs: BTreeMap<(*const Body, *const Body), Vec<usize>> = BTreeMap::new();
    for (layer, (x, y)) in bodies_a.iter().zip(&bodies_b).enumerate() {
        pairs.entry((std::ptr::from_ref(*x), std::ptr::from_ref(*y))).or_default().push(layer);
    }
    let mut kinds: Vec<(Vec<usize>, Vec<Difference>)> = Vec::new();
    for layers in pairs.into_values() {
        let bodies = layers.first().and_then(|n| Some((bodies_a.get(*n)?, bodies_b.get(*n)?)));
        let Some((x, y)) = bodies else { continue };
        let found = differences(x, y);
        match kinds.iter_mut().find(|(_, known)| *known == found) {
            Some((known, _)) => known.extend(layers),
            None => kinds.push((layers, found)),
        }
    }
    for (layers, _) in &mut kinds {
        layers.sort_unstable();
    }
    kinds.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (layers, found) in kinds {
        tell(&format!("layers.{}", layer_sets(&layers).join(" ")), &found);
    }
    let (fewer, more) = (bodies_a.len().min(bodies_b.len()), bodies_a.len().max(bodies_b.len()));
    if fewer < more {
        let what = if bodies_a.len() < bodies_b.len() { What::Added } else { What::Removed };
        let told = dsl::counted(more - fewer, "layer");
        changes.push(NodeChange {
            what,
            layers: format!("layers.{fewer}..{more}"),
            node: told,
            times: 1,
            a: None,
            b: None,
            places: [None, None],
        });
    }
    changes
}

fn layer_bodies(graph: &Graph) -> Vec<&Body> {
    graph.layers().map(|(_, body, _, _)| body.as_ref()).collect()
}

/// Compares nodes as multisets. An added and a removed node with one name count as changed.
fn differences(a: &Body, b: &Body) -> Vec<Difference> {
    if std::ptr::eq(a, b) {
        return Vec::new();
    }
    let [mut only_a, mut only_b] = [told(a), told(b)];
    let mut shared: BTreeMap<String, usize> = BTreeMap::new();
    let mut count: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for (side, list) in [&only_a, &only_b].into_iter().enumerate() {
        for node in list {
            count.entry(&node.text).or_default()[side] += 1;
        }
    }
    for (text, [in_a, in_b]) in count {
        shared.insert(text.to_owned(), in_a.min(in_b));
    }
    for list in [&mut only_a, &mut only_b] {
        let mut left = shared.clone();
        list.retain(|node| match left.get_mut(&node.text) {
            Some(n) if *n > 0 => {
                *n -= 1;
                false
            }
            Some(_) | None => true,
        });
    }
    let mut out = Vec::new();
    for node in only_a {
        let twin = only_b.iter().position(|other| other.name == node.name);
        match twin {
            Some(at) => out.push((What::Changed, Some(node), Some(only_b.remove(at)))),
            None => out.push((What::Removed, Some(node), None)),
        }
    }
    out.extend(only_b.into_iter().map(|node| (What::Added, None, Some(node))));
    out
}

fn told(body: &Body) -> Vec<Told> {
    let order = body.reachable();
    let nodes = order.iter().filter_map(|id| body.nodes.get(*id as usize));
    nodes.filter_map(|node| describe(body, node)).collect()
}

fn describe(body: &Body, node: &Node) -> Option<Told> {
    let span = node.span;
    match &node.kind {
        NodeKind::Input(_) | NodeKind::Param(_) | NodeKind::Layer { .. } => None,
        NodeKind::Op { primitive, attrs, state: _ } => {
            let attrs: Vec<String> =
                attrs.iter().map(|(key, value)| format!("{key} {value}")).collect();
            let params = params(body, node);
            let operands: Vec<String> =
                node.inputs.iter().filter_map(|out| operand(body, *out)).collect();
            let name = [&[primitive.name.to_owned()], params.0.as_slice()].concat().join(" ");
            let mut text = name.clone();
            if !attrs.is_empty() {
                text += &format!(" {{{}}}", attrs.join(", "));
            }
            for param in params.1 {
                text += &format!(" {param}");
            }
            text += &format!(" of {}", operands.join(", "));
            Some(Told { name, text, span })
        }
        NodeKind::Slot { name, fill, .. } => {
            let inside: Vec<String> = told(fill).into_iter().map(|node| node.text).collect();
            let operands: Vec<String> =
                node.inputs.iter().filter_map(|out| operand(body, *out)).collect();
            let text = format!("slot {name} over {}: {}", operands.join(", "), inside.join("; "));
            Some(Told { name: format!("slot {name}"), text, span })
        }
    }
}

/// Paths of a node's own parameters, and their descriptions.
fn params(body: &Body, node: &Node) -> (Vec<String>, Vec<String>) {
    let (mut names, mut texts) = (Vec::new(), Vec::new());
    for out in &node.inputs {
        let kind = body.nodes.get(out.node as usize).map(|node| &node.kind);
        if let Some(NodeKind::Param(id)) = kind
            && let Some(param) = body.params.get(id.0 as usize)
        {
            let dims: Vec<String> = param.shape.iter().map(i64::to_string).collect();
            texts.push(format!("[{}] {}", dims.join(","), param.init));
            if !param.path.is_empty() {
                names.push(param.path.clone());
            }
        }
    }
    (names, texts)
}

/// A description of an operand. Parameters are described elsewhere, and slots are looked through.
fn operand(body: &Body, out: Out) -> Option<String> {
    let node = body.nodes.get(out.node as usize)?;
    match &node.kind {
        NodeKind::Input(_) => Some("the input".to_owned()),
        NodeKind::Param(_) => None,
        NodeKind::Layer { index, .. } => Some(format!("layer {index}")),
        NodeKind::Slot { .. } => {
            node.inputs.get(out.port as usize).and_then(|inner| operand(body, *inner))
        }
        NodeKind::Op { primitive, .. } => {
            let params = params(body, node).0;
            let name = [&[primitive.name.to_owned()], params.as_slice()].concat().join(" ");
            let port = if node.types.len() > 1 { format!(".{}", out.port) } else { String::new() };
            Some(format!("{name}{port}"))
        }
    }
}
