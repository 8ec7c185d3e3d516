//! A recurrence that is provably a case of a faster one becomes that one.
//!
//! A case follows from constants and from which values are equal, never from shapes, names or the values of parameters.
//! Only rounding differs, so the platform field that switches fused kernels switches this pass. The graph's identity is
//! taken before.
//!
//! `dplr_scan(q, k, v, a, b, g)` without a or without b is `gla_scan(q, k, v, g)`. With a = −exp(g) ⊙ x and k = b = β ⊙
//! x, where g and β have one value for each head, it is `delta_scan(q, x, v, β, g)`. A gate that is spread over the
//! channels of its head is one gate for `gla_scan`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::graph::{Body, Graph, Node, NodeKind, Out};
use crate::number::{Ratio, Root};
use crate::op::{self, Attr, Attrs, AttrsExt, Type};

/// Nodes that are followed to show that two values are equal.
const DEPTH: u32 = 16;

/// The graph with faster recurrences, or itself.
pub(crate) fn specialise(graph: &Graph) -> Cow<'_, Graph> {
    let mut seen = Vec::new();
    match body(&graph.top, &mut seen) {
        Some(top) => Cow::Owned(Graph { top, ..graph.clone() }),
        None => Cow::Borrowed(graph),
    }
}

/// The bodies of layers so far, with their replacements: equal layers stay one body.
type Seen = Vec<(Rc<Body>, Option<Rc<Body>>)>;

fn shared(from: &Rc<Body>, seen: &mut Seen) -> Option<Rc<Body>> {
    if let Some((_, known)) = seen.iter().find(|(known, _)| Rc::ptr_eq(known, from)) {
        return known.clone();
    }
    let faster = body(from, seen).map(Rc::new);
    seen.push((from.clone(), faster.clone()));
    faster
}

/// The body with other nodes; `None` if nothing changes.
fn body(from: &Body, seen: &mut Seen) -> Option<Body> {
    let mut changed: Vec<(usize, NodeKind, Vec<Out>)> = Vec::new();
    for (at, node) in from.nodes.iter().enumerate() {
        let inputs = || node.inputs.clone();
        match &node.kind {
            NodeKind::Op { primitive, attrs, state } => {
                let Some(faster) = faster_scan(from, primitive.name, attrs, node) else { continue };
                let Some(primitive) = op::find(faster.name) else { continue };
                let (attrs, state) = (attrs.clone(), *state);
                changed.push((at, NodeKind::Op { primitive, attrs, state }, faster.operands));
            }
            NodeKind::Layer { index, body, params, states } => {
                let Some(body) = shared(body, seen) else { continue };
                let (index, params, states) = (*index, params.clone(), states.clone());
                changed.push((at, NodeKind::Layer { index, body, params, states }, inputs()));
            }
            NodeKind::Slot { name, fill, params, states } => {
                let Some(fill) = shared(fill, seen) else { continue };
                let (name, params, states) = (name.clone(), params.clone(), states.clone());
                changed.push((at, NodeKind::Slot { name, fill, params, states }, inputs()));
            }
            NodeKind::Input(_) | NodeKind::Param(_) => {}
        }
    }
    if changed.is_empty() {
        return None;
    }
    let mut to = from.clone();
    for (at, kind, inputs) in changed {
        let Node { types, span, .. } = to.nodes[at].clone();
        to.nodes[at] = Node { kind, inputs, types, span };
    }
    // A state that nothing reads any more would be lost to decoding.
    (carried(from) == carried(&to)).then_some(to)
}

/// The nodes with states that the outputs need.
fn carried(body: &Body) -> BTreeSet<u32> {
    let needed = body.reachable().into_iter();
    needed
        .filter(|node| match &body.nodes[*node as usize].kind {
            NodeKind::Op { state, .. } => state.is_some(),
            NodeKind::Slot { states, .. } | NodeKind::Layer { states, .. } => !states.is_empty(),
            NodeKind::Input(_) | NodeKind::Param(_) => false,
        })
        .collect()
}

/// Another recurrence with the same result and state; the attributes stay.
struct FasterScan {
    name: &'static str,
    operands: Vec<Out>,
}

fn faster_scan(body: &Body, name: &str, attrs: &Attrs, node: &Node) -> Option<FasterScan> {
    match (name, node.inputs.as_slice()) {
        ("dplr_scan", &[q, k, v, a, b, g]) => {
            if is_zero(body, a) || is_zero(body, b) {
                let g = per_head(body, g).unwrap_or(g);
                return Some(FasterScan { name: "gla_scan", operands: vec![q, k, v, g] });
            }
            delta(body, [q, k, v, a, b, g])
        }
        ("gla_scan", &[q, k, v, g]) => {
            let g = per_head(body, g)?;
            let known = attrs.keys().all(|name| *name == "scale");
            known.then(|| FasterScan { name: "gla_scan", operands: vec![q, k, v, g] })
        }
        _ => None,
    }
}

/// k = b = β ⊙ x and a = −exp(g) ⊙ x, with β and g by head.
fn delta(body: &Body, [q, k, v, a, b, g]: [Out; 6]) -> Option<FasterScan> {
    let gate = per_head(body, g).filter(|gate| is_sequence(body, *gate))?;
    let (written, read) = (Product::from_value(body, b), Product::from_value(body, a));
    if !written.equals(&Product::from_value(body, k), body) {
        return None;
    }
    let minus = Root::rational(Ratio { num: -1, den: 1 });
    let ([one, two], [first, second]) = (written.two()?, read.two()?);
    if written.factor != Root::rational(Ratio { num: 1, den: 1 }) || read.factor != minus {
        return None;
    }
    for (beta, x) in [(one, two), (two, one)] {
        let Some(beta) = per_head(body, beta).filter(|beta| is_sequence(body, *beta)) else {
            continue;
        };
        for (decay, with) in [(first, second), (second, first)] {
            if same(body, with, x, DEPTH) && is_decay(body, decay, g, gate) {
                return Some(FasterScan {
                    name: "delta_scan",
                    operands: vec![q, x, v, beta, gate],
                });
            }
        }
    }
    None
}

/// A product of values and one number.
struct Product {
    factor: Root,
    values: Vec<Out>,
}

impl Product {
    fn from_value(body: &Body, out: Out) -> Product {
        let mut product =
            Product { factor: Root::rational(Ratio { num: 1, den: 1 }), values: Vec::new() };
        product.take(body, out, DEPTH);
        product
    }

    fn take(&mut self, body: &Body, out: Out, depth: u32) {
        match call(body, out).filter(|_| depth > 0) {
            Some(("mul", _, &[x, y])) => {
                self.take(body, x, depth - 1);
                self.take(body, y, depth - 1);
            }
            Some(("scale", attrs, &[x])) => match self.factor.mul(attrs.number("by")) {
                Some(factor) => {
                    self.factor = factor;
                    self.take(body, x, depth - 1);
                }
                None => self.values.push(out),
            },
            _ => self.values.push(out),
        }
    }

    /// Whether two products are the same, whatever the order of their values.
    fn equals(&self, other: &Product, body: &Body) -> bool {
        let mut left = other.values.clone();
        let mut values = self.values.iter();
        let all_match = values.all(|value| {
            let at = left.iter().position(|other| same(body, *value, *other, DEPTH));
            at.map(|at| left.swap_remove(at)).is_some()
        });
        all_match && left.is_empty() && self.factor == other.factor
    }

    fn two(&self) -> Option<[Out; 2]> {
        match self.values[..] {
            [x, y] => Some([x, y]),
            _ => None,
        }
    }
}

/// A primitive's name, attributes and operands, if a value is its result.
fn call(body: &Body, out: Out) -> Option<(&'static str, &Attrs, &[Out])> {
    let node = body.nodes.get(out.node as usize)?;
    let NodeKind::Op { primitive, attrs, state: None } = &node.kind else { return None };
    Some((primitive.name, attrs, node.inputs.as_slice()))
}

/// Whether a value is a product with 0.
fn is_zero(body: &Body, out: Out) -> bool {
    Product::from_value(body, out).factor.radicand.num == 0
}

/// The value of each head that is spread over all of its channels.
fn per_head(body: &Body, out: Out) -> Option<Out> {
    let (name, attrs, operands) = call(body, out)?;
    let &[value, _] = operands else { return None };
    let spreads = name == "spread" && attrs.get("kept") == Some(&Attr::Bool(false));
    let (from, to) = (body.ty(value), body.ty(out));
    (spreads && from.dims.len() == 1 && from.dims.first() == to.dims.first()).then_some(value)
}

/// Whether a value has one entry per head and token.
fn is_sequence(body: &Body, out: Out) -> bool {
    matches!(body.ty(out), Type { time: true, dims, .. } if dims.len() == 1)
}

/// Whether a value is exp(g), or exp of the gate that g spreads, spread as well.
fn is_decay(body: &Body, decay: Out, g: Out, gate: Out) -> bool {
    let exp_of = |value: Out, gate: Out| matches!(call(body, value), Some(("exp", _, &[x])) if same(body, x, gate, DEPTH));
    exp_of(decay, g) || per_head(body, decay).is_some_and(|decay| exp_of(decay, gate))
}

/// Whether two values are the same: one node, or equal calls of equal operands.
fn same(body: &Body, x: Out, y: Out, depth: u32) -> bool {
    if x == y {
        return true;
    }
    if x.port != y.port || depth == 0 {
        return false;
    }
    match (call(body, x), call(body, y)) {
        (Some((name, attrs, xs)), Some((other, others, ys))) => {
            name == other
                && attrs == others
                && xs.len() == ys.len()
                && xs.iter().zip(ys).all(|(x, y)| same(body, *x, *y, depth - 1))
        }
        _ => false,
    }
}
