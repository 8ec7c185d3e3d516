//! Builds the plans of a graph: streaming forward, evaluation, training.
//!
//! All three use one lowering, so training and generation compute the same; passes run in the order written here.

mod update;

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::differentiate::differentiate;
use crate::fuse::fuse;
use crate::graph::{Graph, ParamId};
use crate::kernel;
use crate::lower::Lower;
use crate::number::{Ratio, Root};
use crate::plan::{
    Loss, MEANS, Options, Output, ParamUpdate, Phase, Plan, Recompute, Step, Stream, TERMS,
    TrainOptions, TrainPlan, UpdateRule, ValId, liveness,
};
use crate::recompute::selective;
use crate::specialise::specialise;
use crate::value::{DType, fixed};

pub use update::decayed;

/// Tokens [b, t], position, optional states → logits, optional states. Prefill, chunked prefill and
/// decoding all use this function.
pub fn forward(graph: &Graph, stream: Stream, options: Options) -> Plan {
    let graph = &*chosen(graph, options);
    let mut lower = Lower::new(graph, options.precision);
    lower.stream = stream;
    let logits = lower.forward();
    let logits = lower.builder.cast(logits, DType::F32);
    lower.builder.output(Output::Logits, logits);
    finished(lower, options)
}

/// Tokens, targets → loss, counted, nll, argmax.
pub fn evaluate(graph: &Graph, loss: Loss, options: Options) -> Plan {
    let graph = &*chosen(graph, options);
    let mut lower = Lower::new(graph, options.precision);
    let logits = lower.forward();
    let parts = cross_entropy(&mut lower, loss, logits);
    lower.builder.output(Output::Nll, parts.nll);
    let argmax = lower.builder.one(kernel::Argmax, &[logits]);
    lower.builder.output(Output::Argmax, argmax);
    finished(lower, options)
}

/// A training step in three parts.
pub fn train(graph: &Graph, options: &TrainOptions) -> TrainPlan {
    let micro = micro(graph, options);
    let combine = update::combine(&micro);
    TrainPlan { combine, update: update::update(graph, options), micro }
}

/// One micro-batch: loss and the gradient of every parameter.
fn micro(graph: &Graph, options: &TrainOptions) -> Plan {
    let TrainOptions { common, loss, optimizer: _, ref updates, recompute, dropout } = *options;
    let graph = &*chosen(graph, common);
    let mut lower = Lower::new(graph, common.precision);
    lower.recompute = recompute;
    lower.builder.loss = loss;
    lower.builder.weights = weights(graph, loss);
    lower.builder.drops = dropout;
    let logits = lower.forward();
    let CrossEntropy { nll, lse, targets } = cross_entropy(&mut lower, loss, logits);
    for (n, sum) in lower.builder.terms.into_iter().enumerate() {
        if let Some(sum) = sum {
            // As the loss: ranks add it in f64.
            let sum = lower.builder.cast(sum, DType::F64);
            lower.builder.output(Output::Term(n as u32), sum);
        }
    }
    lower.builder.phase = Phase::Backward;
    let scale = lower.builder.grad_scale();
    let kernel = lower.builder.cross_entropy_grad(Root::ONE);
    let seed = lower.builder.one(kernel, &[logits, targets, nll, lse, scale]);
    let flow = differentiate(&mut lower, logits, seed);
    for (n, param) in graph.top.params.iter().enumerate() {
        let id = ParamId(n as u32);
        let frozen = ParamUpdate::for_param(updates, n).rule == UpdateRule::Frozen;
        // The steps of a frozen parameter's gradient are removed, since nothing reads their result.
        let gradient = lower.used(id).filter(|_| !frozen).and_then(|value| flow.gradient(value));
        let gradient = gradient.unwrap_or_else(|| {
            // Elaboration refuses unused parameters, but a user may ignore its operand.
            lower.builder.one(kernel::Zeros { dims: fixed(&param.shape) }, &[])
        });
        lower.builder.output(Output::Gradient(id), gradient);
    }
    let mut plan = lower.builder.plan;
    prune(&mut plan, graph);
    if common.fuse {
        fuse(&mut plan, common.processor);
    }
    match recompute {
        Recompute::Nothing | Recompute::Layers => {}
        Recompute::Selective => selective(&mut plan),
    }
    liveness::finish(&mut plan);
    plan
}

/// The weight of each auxiliary loss: of `ahead_loss`, its share of a mean.
fn weights(graph: &Graph, loss: Loss) -> [Option<Root>; TERMS.len()] {
    let heads = graph.ahead_heads().max(1);
    let share = Root::rational(Ratio { num: 1, den: i128::from(heads) });
    let mut weights = loss.terms();
    for weight in weights.iter_mut().skip(MEANS.len()) {
        // A product with a root that does not fit counts each head in full; an experiment's weight is a decimal.
        *weight = weight.map(|weight| weight.mul(share).unwrap_or(weight));
    }
    weights
}

/// The graph, with the faster recurrences that its own are cases of.
fn chosen(graph: &Graph, options: Options) -> Cow<'_, Graph> {
    if options.fuse { specialise(graph) } else { Cow::Borrowed(graph) }
}

/// Removes steps whose results nothing reads: what an auxiliary loss would read that has no weight. A graph without
/// auxiliary losses has no such steps but those that its text asks for, which stay.
fn prune(plan: &mut Plan, graph: &Graph) {
    if !graph.has_terms() {
        return;
    }
    let mut read: BTreeSet<ValId> = plan.outputs.iter().map(|(_, id)| *id).collect();
    let mut kept: Vec<Step> = Vec::with_capacity(plan.steps.len());
    for step in std::mem::take(&mut plan.steps).into_iter().rev() {
        if step.outputs.iter().any(|id| read.contains(id)) {
            read.extend(&step.inputs);
            kept.push(step);
        }
    }
    kept.reverse();
    plan.steps = kept;
}

struct CrossEntropy {
    nll: ValId,
    lse: ValId,
    targets: ValId,
}

fn cross_entropy(lower: &mut Lower, loss: Loss, logits: ValId) -> CrossEntropy {
    lower.builder.phase = Phase::Loss;
    lower.builder.loss = loss;
    let (targets, kernel) = (lower.builder.targets(), lower.builder.cross_entropy());
    let [nll, lse, sum, counted] = lower.builder.emit(kernel, &[logits, targets]);
    lower.builder.output(Output::Loss, sum);
    lower.builder.output(Output::Counted, counted);
    CrossEntropy { nll, lse, targets }
}

fn finished(lower: Lower, options: Options) -> Plan {
    let graph = lower.graph;
    let mut plan = lower.builder.plan;
    prune(&mut plan, graph);
    if options.fuse {
        fuse(&mut plan, options.processor);
    }
    liveness::finish(&mut plan);
    plan
}
