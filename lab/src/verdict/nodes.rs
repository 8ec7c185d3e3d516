//! Compares the nodes of two graphs, to explain a verdict.
//!
//! A node is identified by its computation, its parameters and its operands, looking through slots, so that filling a slot
//! is one added node and does not change the nodes behind it. Equal layers are listed once.

use std::collections::BTreeMap;

use dsl::Span;

use super::model::{NodeChange, What};
use super::sources::Sources;
use crate::experiment::layer_sets;
use compiler::graph::{Body, Graph, Node, NodeKind, Out};
use compiler::program::Compiled;

/// A node in words.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Described {
    name: String,
    text: String,
    span: Span,
}

type Difference = (What, Option<Described>, Option<Described>);

pub(super) fn changes(archs: [&Compiled; 2], sources: &Sources<'_>) -> Vec<NodeChange> {
    let [a, b] = archs.map(|arch| &arch.graph);
    let mut changes = listed("", &differences(&a.top, &b.top), sources);
    let [bodies_a, bodies_b] = [a, b].map(layer_bodies);
    for (layers, differences) in layer_differences(&bodies_a, &bodies_b) {
        let layers = format!("layers.{}", layer_sets(&layers).join(" "));
        changes.extend(listed(&layers, &differences, sources));
    }
    let (fewer, more) = (bodies_a.len().min(bodies_b.len()), bodies_a.len().max(bodies_b.len()));
    if fewer < more {
        let what = if bodies_a.len() < bodies_b.len() { What::Added } else { What::Removed };
        changes.push(NodeChange {
            what,
            layers: format!("layers.{fewer}..{more}"),
            node: dsl::counted(more - fewer, "layer"),
            times: 1,
            a: None,
            b: None,
            places: [None, None],
        });
    }
    changes
}

/// Differences with their lines. Two nodes on one line, such as the rope of q and that of k, are listed once.
fn listed(layers: &str, differences: &[Difference], sources: &Sources<'_>) -> Vec<NodeChange> {
    let mut changes: Vec<NodeChange> = Vec::new();
    let mut known: BTreeMap<_, usize> = BTreeMap::new();
    for (what, a, b) in differences {
        let change = NodeChange {
            what: *what,
            layers: layers.to_owned(),
            node: a.as_ref().or(b.as_ref()).map_or(String::new(), |node| node.name.clone()),
            times: 1,
            a: a.as_ref().map(|node| node.text.clone()),
            b: b.as_ref().map(|node| node.text.clone()),
            places: [a, b].map(|node| node.as_ref().map(|node| sources.arch(node.span))),
        };
        let key = (change.what, change.a.clone(), change.b.clone(), change.places.clone());
        let at = *known.entry(key).or_insert(changes.len());
        match changes.get_mut(at) {
            Some(twin) => twin.times += 1,
            None => changes.push(change),
        }
    }
    changes
}

/// The differences of layers, once for all layers with the same ones. Layers with the same two bodies differ in the same
/// nodes; other layers may, by coincidence.
fn layer_differences(a: &[&Body], b: &[&Body]) -> Vec<(Vec<usize>, Vec<Difference>)> {
    let mut pairs: BTreeMap<(*const Body, *const Body), Vec<usize>> = BTreeMap::new();
    for (layer, (x, y)) in a.iter().zip(b).enumerate() {
        pairs.entry((std::ptr::from_ref(*x), std::ptr::from_ref(*y))).or_default().push(layer);
    }
    let mut kinds: Vec<(Vec<usize>, Vec<Difference>)> = Vec::new();
    for layers in pairs.into_values() {
        let bodies = layers.first().and_then(|n| Some((a.get(*n)?, b.get(*n)?)));
        let Some((x, y)) = bodies else { continue };
        let differences = differences(x, y);
        match kinds.iter_mut().find(|(_, known)| *known == differences) {
            Some((known, _)) => known.extend(layers),
            None => kinds.push((layers, differences)),
        }
    }
    for (layers, _) in &mut kinds {
        layers.sort_unstable();
    }
    kinds.sort_by(|(a, _), (b, _)| a.cmp(b));
    kinds
}

fn layer_bodies(graph: &Graph) -> Vec<&Body> {
    graph.layers().map(|(_, body, _, _)| body.as_ref()).collect()
}

/// Compares nodes as multisets. An added and a removed node with one name count as changed.
fn differences(a: &Body, b: &Body) -> Vec<Difference> {
    if std::ptr::eq(a, b) {
        return Vec::new();
    }
    let [mut only_a, mut only_b] = [described(a), described(b)];
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

fn described(body: &Body) -> Vec<Described> {
    let order = body.reachable();
    let nodes = order.iter().filter_map(|id| body.nodes.get(*id as usize));
    nodes.filter_map(|node| describe(body, node)).collect()
}

fn describe(body: &Body, node: &Node) -> Option<Described> {
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
            Some(Described { name, text, span })
        }
        NodeKind::Slot { name, fill, .. } => {
            let inside: Vec<String> = described(fill).into_iter().map(|node| node.text).collect();
            let operands: Vec<String> =
                node.inputs.iter().filter_map(|out| operand(body, *out)).collect();
            let text = format!("slot {name} over {}: {}", operands.join(", "), inside.join("; "));
            Some(Described { name: format!("slot {name}"), text, span })
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
