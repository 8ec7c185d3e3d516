//! The heads of a body: how far back from logits everything works on each token alone, so that logits and loss can be
//! computed for a few tokens at a time.

use std::collections::BTreeSet;

use compiler::graph::{Body, NodeKind, Out};
use compiler::op::{AttrsExt, Time};

/// The primitive whose other operand is a head's logits.
pub(super) const AHEAD: &str = "ahead_loss";

/// The function from hidden values to the logits of the token that is `ahead` places on.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) ahead: i64,
    pub(super) logits: Out,
    /// The hidden values that it reads.
    pub(super) inputs: Vec<Out>,
    /// The number of hidden values of the heads before it.
    pub(super) first: usize,
    /// The nodes between them.
    pub(super) nodes: BTreeSet<u32>,
}

/// The hidden values of all heads of a model, one after the other, and the heads: that of the next token, then those of
/// later ones.
pub(super) fn of(body: &Body) -> (Vec<Out>, Vec<Head>) {
    let Some(next) = body.outputs.first() else { return Default::default() };
    let mut logits = vec![(1, *next)];
    for node in &body.nodes {
        if let (NodeKind::Op { primitive, attrs, .. }, [_, more]) = (&node.kind, &node.inputs[..])
            && primitive.name == AHEAD
        {
            logits.push((attrs.int("ahead"), *more));
        }
    }
    let (mut hidden, mut heads) = (Vec::new(), Vec::new());
    for (ahead, logits) in logits {
        let (inputs, nodes) = cut(body, logits).unwrap_or_else(|| (vec![logits], BTreeSet::new()));
        let first = hidden.len();
        hidden.extend(&inputs);
        heads.push(Head { ahead, logits, inputs, first, nodes });
    }
    (hidden, heads)
}

/// What the projections to logits read, and the nodes from there on; `None` if one of these sees other tokens.
fn cut(body: &Body, logits: Out) -> Option<(Vec<Out>, BTreeSet<u32>)> {
    let vocab = body.nodes[logits.node as usize].types.get(logits.port as usize)?.dims.last()?;
    let (mut inputs, mut nodes) = (Vec::new(), BTreeSet::new());
    let mut left = vec![logits];
    while let Some(out) = left.pop() {
        if inputs.contains(&out) || !nodes.insert(out.node) {
            continue;
        }
        let node = &body.nodes[out.node as usize];
        match &node.kind {
            NodeKind::Param(_) => {}
            NodeKind::Op { primitive, .. } if primitive.name == AHEAD => {
                left.extend(node.inputs.first());
            }
            NodeKind::Op { primitive, .. }
                if primitive.name == "linear" && node.types.first()?.dims.last() == Some(vocab) =>
            {
                let (x, params) = node.inputs.split_first()?;
                if !inputs.contains(x) {
                    inputs.push(*x);
                }
                left.extend(params);
            }
            NodeKind::Op { primitive, state: None, .. }
                if primitive.time == Time::Pointwise
                    && !["aux_loss", "dropout"].contains(&primitive.name) =>
            {
                left.extend(&node.inputs);
            }
            NodeKind::Op { .. }
            | NodeKind::Input(_)
            | NodeKind::Slot { .. }
            | NodeKind::Layer { .. } => return None,
        }
    }
    // What a projection reads is not computed again.
    let outside: BTreeSet<u32> = inputs.iter().map(|input| input.node).collect();
    (!inputs.is_empty() && nodes.is_disjoint(&outside)).then_some((inputs, nodes))
}
