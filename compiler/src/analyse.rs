//! Derived facts of an architecture: parameters, FLOPs, memory, state per token. A multiply-add is two FLOPs; the
//! backward pass counts as twice the forward pass.

use crate::graph::{Body, Graph, NodeKind, ParamId};
use crate::op::{Context, State, Type};

/// Counts of an architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// Parameters of the whole model; a shared one counts once.
    pub parameters: i64,
    /// Those that a token uses: of experts, only the chosen ones.
    pub active: i64,
    /// Parameters except the token table and the output projection to the vocabulary.
    pub non_embedding: i64,
    /// Parameters in the fills of slots.
    pub canon: i64,
    /// Parameters in the mixers' own short convolutions.
    pub short_conv: i64,
    /// Tokens per sequence, on which some costs depend.
    pub seq_len: i64,
    /// Forward FLOPs per token at that sequence length; of experts, those of the chosen ones.
    pub flops_per_token: i128,
    /// Forward FLOPs per token if every expert were chosen.
    pub dense_flops_per_token: i128,
    /// Forward and backward FLOPs per token.
    pub train_flops_per_token: i128,
    /// Elements kept for the backward pass, per token, without recomputation.
    pub saved_per_token: i128,
    /// Elements of recurrent and convolution state per sequence, after `seq_len` tokens.
    pub state: i128,
    /// The part of `state` that each token adds.
    pub state_per_token: i128,
    /// Bytes of parameters, gradients and both AdamW moments in f32.
    pub optimizer_bytes: i128,
}

/// Counts parameters and adds up each primitive's costs, for sequences of this many tokens.
pub fn analyse(graph: &Graph, seq_len: i64) -> Analysis {
    let count = |keep: &dyn Fn(&crate::graph::Param) -> bool| -> i64 {
        graph.params().iter().filter(|p| keep(p)).map(|p| p.shape.iter().product::<i64>()).sum()
    };
    let parameters = count(&|_| true);
    let vocabulary = count(&|p| {
        p.shape.len() == 2
            && p.shape.first() == Some(&graph.vocab)
            && p.shape.get(1) == Some(&graph.dim)
            && !p.path.starts_with("layers.")
    });
    let canon = count(&|p| p.slot.is_some());
    let short_conv = count(&|p| p.role.starts_with("short_conv"));
    let Sum { flops, dense, saved } = body_cost(&graph.top, seq_len);
    let mut rows = vec![0; graph.params().len()];
    used_rows(&graph.top, &|id| id, &mut rows);
    let active = graph.params().iter().zip(rows).map(|(param, rows)| {
        let total = param.shape.first().copied().unwrap_or(1).max(1);
        param.shape.iter().product::<i64>() / total * rows.min(total)
    });
    let state = graph.top.states.iter().map(|(_, s)| i128::from(s.elements(seq_len))).sum();
    let grows = |s: &State| i128::from(s.elements(seq_len.saturating_add(1)) - s.elements(seq_len));
    let state_per_token = graph.top.states.iter().map(|(_, s)| grows(s)).sum();
    Analysis {
        parameters,
        active: active.sum(),
        non_embedding: parameters - vocabulary,
        canon,
        short_conv,
        seq_len,
        flops_per_token: flops,
        dense_flops_per_token: dense,
        train_flops_per_token: 3 * flops,
        saved_per_token: saved,
        state,
        state_per_token,
        optimizer_bytes: 16 * i128::from(parameters),
    }
}

/// Costs per token.
#[derive(Clone, Copy, Default)]
struct Sum {
    flops: i128,
    /// FLOPs if every row of every parameter were used.
    dense: i128,
    saved: i128,
}

impl std::ops::AddAssign for Sum {
    fn add_assign(&mut self, other: Sum) {
        self.flops += other.flops;
        self.dense += other.dense;
        self.saved += other.saved;
    }
}

/// Forward FLOPs and saved elements per token.
fn body_cost(body: &Body, seq_len: i64) -> Sum {
    let mut sum = Sum::default();
    let mut nested: std::collections::BTreeMap<*const Body, Sum> = Default::default();
    for id in body.reachable() {
        let Some(node) = body.nodes.get(id as usize) else { continue };
        match &node.kind {
            NodeKind::Input(_) | NodeKind::Param(_) => {}
            NodeKind::Op { primitive, attrs, .. } => {
                let inputs: Vec<Type> = node.inputs.iter().map(|o| body.ty(*o).clone()).collect();
                let cost = (primitive.cost)(attrs, &inputs, &node.types, Context { seq_len });
                // A node that depends on parameters alone runs once, not once per token.
                if node.types.iter().any(|t| t.time) {
                    let flops = i128::from(cost.flops);
                    let constant = inputs.iter().find(|ty| !ty.time);
                    let total = constant.and_then(|ty| ty.dims.first()).copied().unwrap_or(1);
                    let dense = match cost.rows {
                        Some(rows) => flops / i128::from(rows.max(1)) * i128::from(total),
                        None => flops,
                    };
                    sum += Sum { flops, dense, saved: i128::from(cost.saved) };
                }
            }
            NodeKind::Slot { fill: inner, .. } | NodeKind::Layer { body: inner, .. } => {
                sum += *nested
                    .entry(std::rc::Rc::as_ptr(inner))
                    .or_insert_with(|| body_cost(inner, seq_len));
            }
        }
    }
    sum
}

/// The most rows, along the first axis, that a token uses of each parameter of the whole graph.
fn used_rows(body: &Body, global: &dyn Fn(ParamId) -> ParamId, rows: &mut [i64]) {
    for id in body.reachable() {
        let Some(node) = body.nodes.get(id as usize) else { continue };
        match &node.kind {
            NodeKind::Input(_) | NodeKind::Param(_) => {}
            NodeKind::Op { primitive, attrs, .. } => {
                let inputs: Vec<Type> = node.inputs.iter().map(|o| body.ty(*o).clone()).collect();
                let cost = (primitive.cost)(attrs, &inputs, &node.types, Context { seq_len: 1 });
                let operands =
                    node.inputs.iter().filter_map(|out| body.nodes.get(out.node as usize));
                for operand in operands {
                    if let NodeKind::Param(id) = operand.kind
                        && let Some(known) = rows.get_mut(global(id).0 as usize)
                    {
                        *known = (*known).max(cost.rows.unwrap_or(i64::MAX));
                    }
                }
            }
            NodeKind::Slot { fill: inner, params, .. }
            | NodeKind::Layer { body: inner, params, .. } => {
                let outer = |id: ParamId| params.get(id.0 as usize).map_or(id, |id| global(*id));
                used_rows(inner, &outer, rows);
            }
        }
    }
}
