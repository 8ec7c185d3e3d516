//! Compares every gradient rule to central differences of the plan's own loss.

use super::interpret::LossOfParameter;
use super::{checked, compiled, decimal, graph, options, parameters, run, tokens};
use crate::graph::{Graph, NodeKind, ParamId};
use crate::kernel::tensor::{Random, Tensor};
use crate::op::{self, Time};
use crate::plan::{IGNORED, Input, Loss, Options, Output, Recompute, Stream};
use crate::plans::{forward, train};
use crate::program::Std;

/// Every example of every primitive, with the primitive's name.
pub(super) fn probes() -> impl Iterator<Item = (&'static str, &'static str)> {
    op::ALL.iter().flat_map(|op| op.examples.iter().map(|body| (op.name, *body)))
}

/// The largest error of any gradient element, relative to its parameter's largest element.
fn worst(graph: &Graph, fuse: bool) -> f64 {
    let loss = Loss { nll_square: decimal("0.01"), z_loss: decimal("0.02"), ..Loss::CROSS_ENTROPY };
    let plan = train(graph, &options(fuse, Recompute::Nothing, loss)).micro;
    checked(&plan);
    let mut random = Random(7);
    let mut inputs = parameters(graph, &mut random);
    inputs.insert(Input::Tokens, tokens(graph, 2, 5, &mut random));
    let mut targets = tokens(graph, 2, 5, &mut random);
    targets.data[3] = IGNORED as f64;
    inputs.insert(Input::Targets, targets);
    inputs.insert(Input::Position, Tensor::number(0.0));
    let scale = 1.0 / 9.0;
    inputs.insert(Input::GradScale, Tensor::number(scale));
    let outputs = run(&plan, &inputs);
    assert_eq!(outputs[&Output::Counted], Tensor::number(9.0));
    let mut worst: f64 = 0.0;
    for (n, param) in graph.top.params.iter().enumerate() {
        let id = ParamId(n as u32);
        let gradient = &outputs[&Output::Gradient(id)];
        let largest = gradient.data.iter().fold(1e-3f64, |a, x| a.max(x.abs()));
        assert!(gradient.data.iter().any(|x| *x != 0.0), "{} has no gradient", param.path);
        let mut losses = LossOfParameter::new(&plan, &inputs, Input::Param(id));
        for i in 0..gradient.data.len() {
            let mut loss = |by: f64| scale * losses.moved(i, by);
            // A fourth-order formula: the error is proportional to h⁴.
            let h = 1e-4;
            let slope =
                (8.0 * (loss(h) - loss(-h)) - (loss(2.0 * h) - loss(-2.0 * h))) / (12.0 * h);
            let error = (slope - gradient.data[i]).abs() / largest;
            assert!(error < 1e-6, "{}[{i}]: {slope} {}", param.path, gradient.data[i]);
            worst = worst.max(error);
        }
    }
    worst
}

/// Compiles without std, because std's mixer `attention` has the primitive's name.
pub(super) fn probe(body: &str) -> Graph {
    let text = format!(
        "block probe(x) {{ {body} }}
         head out(x) {{ linear output (x, vocab) }}
         init all {{ embed ones  linear ones  bias ones  norm ones  canon ones  short_conv ones  short_conv_bias ones }}
         arch tiny {{ vocab 5  dim 6  norm_eps 1e-5  init all  layers 1 of probe  head out }}"
    );
    compiled(&text, Std::None)
}

#[test]
fn every_primitive_matches_finite_differences() {
    for (op, body) in probes() {
        let error = worst(&probe(body), false);
        assert!(error < 1e-6, "{op}: {error}");
    }
}

/// An example of each primitive that contains it, so that no rule is without a test; and a primitive declares how it
/// depends on time as its plan shows it: by a state, or by reading the position.
#[test]
fn every_primitive_has_examples_that_show_its_time() {
    for op in op::ALL {
        assert!(!op.examples.is_empty(), "{}", op.name);
        for body in op.examples {
            let graph = probe(body);
            let layer = graph.top.nodes.iter().find_map(|node| match &node.kind {
                NodeKind::Layer { body, .. } => Some(body),
                NodeKind::Input(_)
                | NodeKind::Param(_)
                | NodeKind::Op { .. }
                | NodeKind::Slot { .. } => None,
            });
            let mut inside = graph.top.nodes.iter().chain(layer.into_iter().flat_map(|l| &l.nodes));
            let stateful = inside.find_map(|node| match &node.kind {
                NodeKind::Op { primitive, state, .. } if primitive.name == op.name => {
                    Some(state.is_some())
                }
                NodeKind::Op { .. }
                | NodeKind::Input(_)
                | NodeKind::Param(_)
                | NodeKind::Slot { .. }
                | NodeKind::Layer { .. } => None,
            });
            assert_eq!(stateful, Some(op.time == Time::Stateful), "{}: {body}", op.name);
            let plan = forward(&graph, Stream::default(), Options::default());
            let positional = plan.input(Input::Position).is_some();
            // An example calls other primitives too, but only its own may read the position.
            assert_eq!(positional, op.time == Time::Positional, "{}: {body}", op.name);
        }
    }
}

/// Whole architectures: slots with every kind of fill, shared parameters, tied heads, all families.
const ARCHS: &[(&str, &str)] = &[
    ("llamacanon", "arch tiny { vocab 5  dim 8  norm_eps 1e-5  init lingua  head tied
      layers 2 of decoder { mixer attention { heads 2  kv_heads 1  qk_norm true  window 3 }
        mlp swiglu { hidden 4 } }  canon A, B, C, D }"),
    ("other fills", "block twice(x) { canon b (silu(canon a (x, kernel = 2))) }
      arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua
      layers 2 of share decoder { mixer attention { heads 1  rope nope }  mlp swiglu { hidden 4 } }
      fill A with twice  fill B with twice  fill D with rms_norm }"),
    ("gla", "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 1 of decoder {
      mixer gla { heads 2  gate_rank 2  output_gate_rank 2 }  mlp swiglu { hidden 4 } }  canon A, C, D }"),
    ("gated_deltanet", "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 1 of decoder {
      mixer gated_deltanet { heads 2  output_gate_rank 2 }  mlp swiglu { hidden 4 } }  canon A, B, C, D }"),
    ("mamba2", "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 1 of decoder {
      mixer mamba2 { heads 4  state 2  groups 2 }  mlp swiglu { hidden 4 } }  canon A, B, C, D }"),
    ("retention and simple_gla", "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers [
      decoder { mixer retention { heads 2 }  mlp swiglu { hidden 4 } },
      decoder { mixer simple_gla { heads 2 }  mlp swiglu { hidden 4 } } ]  canon A, B, C, D }"),
    ("hgrn2", "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers [
      decoder { mixer hgrn2 { heads 2 }  mlp swiglu { hidden 4 } },
      decoder { mixer hgrn2 { heads 2  bounded true }  mlp swiglu { hidden 4 } } ]  canon A, B, C, D }"),
    ("rwkv6", "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 1 of decoder {
      mixer rwkv6 { heads 2  mix_rank 2  decay_rank 2 }  mlp swiglu { hidden 4 } }  canon A, B, C, D }"),
    ("rwkv7", "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 1 of decoder {
      mixer rwkv7 { heads 2  decay_rank 2  rate_rank 2  gate_rank 2 }  mlp swiglu { hidden 4 } }
      canon A, B, C, D }"),
    ("kda", "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 1 of decoder {
      mixer kda { heads 2 }  mlp swiglu { hidden 4 } }  canon A, B, C, D }"),
    ("delta_product", "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers [
      decoder { mixer delta_product { heads 2  output_gate_rank 2 }  mlp swiglu { hidden 4 } },
      decoder { mixer delta_product { heads 2  output_gate_rank 2  gated false }  mlp swiglu { hidden 4 } } ]
      canon A, B, C, D }"),
    ("value_residual", "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers [
      2 of decoder { mixer value_residual { heads 2 }  mlp swiglu { hidden 4 } },
      decoder { mixer value_residual { heads 2  gated true }  mlp swiglu { hidden 4 } } ]  canon A, B, C, D }"),
    ("hyper", "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 2 of hyper {
      streams 3  mixer attention { heads 2 }  mlp swiglu { hidden 4 } }  canon A, B, C, D }"),
    ("first values", "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 2 of decoder {
      mixer rwkv7 { heads 2  decay_rank 2  rate_rank 2  gate_rank 2  value_rank 2 }  mlp swiglu { hidden 4 } }
      canon A, B, C, D }"),
    ("coupled bounds", "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 3 of decoder {
      mixer hgrn2 { heads 2  coupled true }  mlp swiglu { hidden 4 } }  canon A, B, C, D }"),
    ("n-grams", "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers [ ngram_embedding { rows 7 },
      decoder { mixer attention { heads 2 }  mlp swiglu { hidden 4 } } ] }"),
    ("gsa", "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 1 of decoder {
      mixer gsa { heads 2  slots 3 }  mlp swiglu { hidden 4 } }  canon A, B, C, D }"),
];

#[test]
fn whole_architectures_match_finite_differences() {
    for (name, text) in ARCHS {
        let error = worst(&graph(text), true);
        assert!(error < 1e-6, "{name}: {error}");
    }
}

#[test]
fn fusing_and_recomputing_change_no_gradient() {
    for (name, text) in ARCHS {
        let graph = graph(text);
        let mut random = Random(11);
        let mut inputs = parameters(&graph, &mut random);
        inputs.insert(Input::Tokens, tokens(&graph, 2, 7, &mut random));
        inputs.insert(Input::Targets, tokens(&graph, 2, 7, &mut random));
        inputs.insert(Input::Position, Tensor::number(0.0));
        inputs.insert(Input::GradScale, Tensor::number(1.0 / 14.0));
        let outputs = |fuse, recompute| {
            let plan = train(&graph, &options(fuse, recompute, Loss::CROSS_ENTROPY)).micro;
            run(checked(&plan), &inputs)
        };
        let plain = outputs(false, Recompute::Nothing);
        // Recomputing runs the same kernels on the same numbers, so results are bitwise equal.
        assert_eq!(plain, outputs(false, Recompute::Layers), "{name}");
        assert_eq!(outputs(true, Recompute::Nothing), outputs(true, Recompute::Layers), "{name}");
        for fuse in [false, true] {
            assert_eq!(
                outputs(fuse, Recompute::Nothing),
                outputs(fuse, Recompute::Selective),
                "{name}"
            );
        }
        for (output, value) in outputs(true, Recompute::Nothing) {
            assert!(value.distance(&plain[&output]) < 1e-12, "{name}: {output}");
        }
    }
}
