//! Auxiliary losses: their sums, and the gradients of the whole training loss against finite differences.

use super::{checked, graph, options, parameters, run, tokens};
use crate::graph::ParamId;
use crate::kernel::tensor::{Random, Tensor};
use crate::number::{Ratio, Root};
use crate::plan::{Input, Loss, Options, Output, Recompute};
use crate::plans::{evaluate, train};

const TEXT: &str = "block layer(x) {
    z = linear router (x, 4)  p = channel_softmax(z)  w, e = top_k(p, 2)
    h = silu(expert_linear up (x, e, 3))
    y = mix_heads(expert_linear down (h, e, dim), w)
    x + aux_loss(aux_loss(y, p * 4, one_hot(e), balance), z * z, router_z) }
  arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 2 of layer }";

fn number(num: i128, den: i128) -> Root {
    Root::rational(Ratio { num, den })
}

/// A fourth-order difference for every element of every parameter, of loss and weighted terms together.
#[test]
fn weighted_terms_match_finite_differences() {
    let graph = graph(TEXT);
    let loss =
        Loss { balance: Some(number(1, 3)), router_z: Some(number(-1, 7)), ..Loss::CROSS_ENTROPY };
    let mut random = Random(5);
    let mut inputs = parameters(&graph, &mut random);
    inputs.insert(Input::Tokens, tokens(&graph, 2, 5, &mut random));
    inputs.insert(Input::Targets, tokens(&graph, 2, 5, &mut random));
    inputs.insert(Input::GradScale, Tensor::number(0.1));
    let plan = train(&graph, &options(true, Recompute::Nothing, loss)).micro;
    let outputs = run(checked(&plan), &inputs);
    // Two layers, each about two of four experts for a token.
    assert!((3.0..8.0).contains(&outputs[&Output::Term(0)].data[0]));
    for recompute in [Recompute::Layers, Recompute::Selective] {
        let other = train(&graph, &options(true, recompute, loss)).micro;
        assert_eq!(run(checked(&other), &inputs), outputs);
    }
    let value = |id: ParamId, i: usize, by: f64| {
        let mut moved = inputs.clone();
        moved.get_mut(&Input::Param(id)).unwrap().data[i] += by;
        let outputs = run(&plan, &moved);
        let term = |n| outputs[&Output::Term(n)].data[0];
        0.1 * outputs[&Output::Loss].data[0] + term(0) / 3.0 - term(1) / 7.0
    };
    for n in 0..graph.top.params.len() {
        let id = ParamId(n as u32);
        for (i, gradient) in outputs[&Output::Gradient(id)].data.iter().enumerate() {
            let at = |by: f64| value(id, i, by);
            let h = 1e-4;
            let slope = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h);
            let path = &graph.top.params[n].path;
            assert!((slope - gradient).abs() < 1e-7, "{path}[{i}]: {slope} {gradient}");
        }
    }
}

/// Without weights nothing computes them, nor what they alone read.
#[test]
fn terms_without_weight_leave_no_steps() {
    let graph = graph(TEXT);
    let names = |plan: &crate::plan::Plan| -> Vec<&str> {
        plan.steps.iter().map(|step| step.kernel.name()).collect()
    };
    let plain = train(&graph, &options(true, Recompute::Nothing, Loss::CROSS_ENTROPY)).micro;
    let scored = evaluate(&graph, Loss::CROSS_ENTROPY, Options::default());
    for plan in [&plain, &scored] {
        checked(plan);
        assert!(!names(plan).iter().any(|name| ["one_hot", "mean_tokens"].contains(name)));
        assert_eq!(plan.output(Output::Term(0)), None);
    }
    let one = Loss { balance: Some(number(1, 2)), ..Loss::CROSS_ENTROPY };
    let plan = train(&graph, &options(true, Recompute::Nothing, one)).micro;
    assert_eq!(names(checked(&plan)).iter().filter(|name| **name == "mean_tokens").count(), 4);
    assert!(plan.output(Output::Term(0)).is_some() && plan.output(Output::Term(1)).is_none());
}
