//! Heads that predict later tokens: their losses, the gradients of the whole training loss against finite differences, and
//! plans that have nothing of them.

use std::collections::BTreeMap;

use super::{checked, graph, options, parameters, run, tokens};
use crate::graph::{Graph, ParamId};
use crate::kernel::tensor::{Random, Tensor};
use crate::number::{Ratio, Root};
use crate::plan::{
    IGNORED, Input, Loss, Options, Output, Plan, Recompute, Stream, TERMS, ahead_term,
};
use crate::plans::{evaluate, forward, train};

/// Two heads share the projection; each has its own layer, with a state.
const TEXT: &str = "
  block more(x) { x + linear w (short_conv c (silu(rms_norm n (x))), dim) }
  head several(x) {
    share output = linear
    h = rms_norm norm (x)
    logits = output(h, vocab)
    logits = ahead_loss(logits, output(more second (h), vocab), 2)
    ahead_loss(logits, linear apart (more third (x), vocab, bias = true), 3) }
  block layer(x) { x + linear w (short_conv c (x), dim) }
  arch tiny { vocab 5  dim 4  norm_eps 1e-5  init all  head several  layers 2 of layer }
  init all { embed normal(1)  linear normal(1)  bias ones  norm ones  short_conv normal(1) }";

fn arch() -> Graph {
    graph(TEXT)
}

fn given(graph: &Graph) -> BTreeMap<Input, Tensor> {
    let mut random = Random(5);
    let mut inputs = parameters(graph, &mut random);
    inputs.insert(Input::Tokens, tokens(graph, 2, 6, &mut random));
    let mut targets = tokens(graph, 2, 6, &mut random);
    targets.data[3] = IGNORED as f64;
    inputs.insert(Input::Targets, targets);
    inputs.insert(Input::GradScale, Tensor::number(0.1));
    inputs
}

fn weighted() -> Loss {
    let ahead = Some(Root::rational(Ratio { num: 3, den: 5 }));
    Loss { nll_square: super::decimal("0.01"), ahead, ..Loss::CROSS_ENTROPY }
}

fn count(plan: &Plan, name: &str) -> usize {
    plan.steps.iter().filter(|step| step.kernel.name() == name).count()
}

fn term_of(ahead: i64) -> Output {
    let name = ahead_term(ahead).unwrap();
    Output::Term(TERMS.iter().position(|term| *term == name).unwrap() as u32)
}

#[test]
fn weighted_losses_match_finite_differences() {
    let graph = arch();
    assert_eq!(graph.ahead_heads(), 2);
    let inputs = given(&graph);
    let plan = train(&graph, &options(true, Recompute::Nothing, weighted())).micro;
    // No logits exist as a whole, of no head.
    assert_eq!([count(&plan, "head_loss_grad"), count(&plan, "cross_entropy")], [3, 0]);
    let outputs = run(checked(&plan), &inputs);
    for fuse in [false, true] {
        for recompute in [Recompute::Nothing, Recompute::Layers, Recompute::Selective] {
            let other = train(&graph, &options(fuse, recompute, weighted())).micro;
            let other = run(checked(&other), &inputs);
            let same =
                |(output, value): (&Output, &Tensor)| value.distance(&outputs[output]) < 1e-12;
            assert!(other.iter().all(same), "{recompute:?}");
        }
    }
    let value = |id: ParamId, i: usize, by: f64| {
        let mut moved = inputs.clone();
        moved.get_mut(&Input::Param(id)).unwrap().data[i] += by;
        let outputs = run(&plan, &moved);
        let sum = |output| outputs[&output].data[0];
        0.1 * (sum(Output::Loss) + 0.6 * (sum(term_of(2)) + sum(term_of(3))) / 2.0)
    };
    for (n, param) in graph.top.params.iter().enumerate() {
        let id = ParamId(n as u32);
        let gradient = &outputs[&Output::Gradient(id)].data;
        assert!(gradient.iter().any(|g| *g != 0.0), "{}", param.path);
        for (i, gradient) in gradient.iter().enumerate() {
            let at = |by: f64| value(id, i, by);
            let h = 1e-4;
            let slope = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h);
            assert!((slope - gradient).abs() < 1e-6, "{}[{i}]: {slope} {gradient}", param.path);
        }
    }
}

/// A head's loss is that of an arch whose only head it is, with the targets moved by hand.
#[test]
fn a_heads_loss_is_of_the_tokens_that_it_predicts() {
    let graph = arch();
    let inputs = given(&graph);
    let outputs =
        run(&train(&graph, &options(true, Recompute::Nothing, weighted())).micro, &inputs);
    for (ahead, last) in [
        (2, "output(more second (h), vocab)"),
        (3, "linear apart (more third (x), vocab, bias = true)"),
    ] {
        let h = if ahead == 2 { "share output = linear  h = rms_norm norm (x) " } else { "" };
        let (before, rest) = TEXT.split_once("head several(x) {").unwrap();
        let (_, after) = rest.split_once("block layer").unwrap();
        let head = format!("head several(x) {{ {h} {last} }}");
        let one = self::graph(&format!("{before}{head}  block layer{after}"));
        let mut single: BTreeMap<Input, Tensor> = one
            .top
            .params
            .iter()
            .enumerate()
            .map(|(n, param)| {
                let at = graph.top.params.iter().position(|p| p.path == param.path).unwrap();
                let value = inputs[&Input::Param(ParamId(at as u32))].clone();
                (Input::Param(ParamId(n as u32)), value)
            })
            .collect();
        single.insert(Input::Tokens, inputs[&Input::Tokens].clone());
        let targets = &inputs[&Input::Targets];
        let by = ahead as usize - 1;
        let moved = (0..2).flat_map(|row| {
            let row = &targets.data[6 * row..][..6];
            row[by..].iter().copied().chain(std::iter::repeat_n(IGNORED as f64, by))
        });
        single.insert(Input::Targets, targets.like(moved.collect()));
        let loss = Loss { ahead: None, ..weighted() };
        let alone = run(&evaluate(&one, loss, Options::default()), &single);
        assert!(alone[&Output::Loss].distance(&outputs[&term_of(ahead)]) < 1e-12, "{ahead}");
    }
}

/// Without a weight, and in evaluation and decoding, nothing of the other heads is computed, nor are there states of them.
#[test]
fn without_weight_only_the_first_head_is_computed() {
    let graph = arch();
    let plain = train(&graph, &options(true, Recompute::Nothing, Loss::CROSS_ENTROPY)).micro;
    let scored = evaluate(&graph, weighted(), Options::default());
    for plan in [&plain, &scored] {
        checked(plan);
        assert_eq!(count(plan, "shift_targets"), 0);
        assert_eq!(count(plan, "pointwise"), 0);
        assert_eq!(plan.output(term_of(2)), None);
    }
    let stream = Stream { state_in: true, state_out: true };
    let decoding = forward(&graph, stream, Options::default());
    checked(&decoding);
    let states = |plan: &Plan| {
        let states = plan.outputs.iter().filter(|(output, _)| matches!(output, Output::State(..)));
        states.count()
    };
    assert_eq!((states(&decoding), graph.top.states.len()), (2, 4));
    assert_eq!(count(&decoding, "linear"), 3);
    // The gradients of the others are 0.
    let outputs = run(&plain, &given(&graph));
    for (n, param) in graph.top.params.iter().enumerate() {
        let zero = outputs[&Output::Gradient(ParamId(n as u32))].data.iter().all(|g| *g == 0.0);
        let other = ["second", "third", "apart"].iter().any(|name| param.path.contains(name));
        assert_eq!(zero, other, "{}", param.path);
    }
}
