//! Compares every gradient rule to central differences of the plan's own loss.

use super::tensor::{Random, Tensor};
use super::{checked, compiled, decimal, graph, options, parameters, run, tokens};
use crate::graph::{Graph, ParamId};
use crate::op;
use crate::plan::{IGNORED, Input, Loss, Output, Recompute, train};
use crate::program::Std;

/// Blocks that together call every primitive, in every way that its rule distinguishes.
/// `x` is [batch, time, 6]; the result is the layer's.
pub(super) const PROBES: &[(&str, &str)] = &[
    ("add", "param p [6] init ones  linear w (x + x, 6) + p + (p + p)"),
    ("attention", "q = heads(linear q (x, 8), 4)  k = heads(linear k (x, 4), 2)  v = heads(linear v (x, 6), 2)
      linear o (merge(attention(q, k, v)), 6)"),
    ("attention", "q = heads(linear q (x, 8), 4)  k = heads(linear k (x, 2), 1)  v = heads(linear v (x, 3), 1)
      linear o (merge(attention(q, k, v, window = 2)), 6)"),
    ("canon", "canon c (x)"),
    ("canon", "canon c (x, kernel = 3, residual = false, activation = silu)"),
    ("canon", "canon c (x, kernel = 1)"),
    ("concat", "concat(linear a (x, 2), linear b (x, 4))"),
    ("delta_scan", "q = l2_norm(heads(linear q (x, 6), 2))  k = l2_norm(heads(linear k (x, 6), 2))
      beta = sigmoid(linear b (x, 2))  g = logsigmoid(linear g (x, 2))
      linear o (merge(delta_scan(q, k, heads(linear v (x, 8), 2), beta, g)), 6)"),
    ("embed", "x"),
    ("exp", "exp(x)"),
    ("f32", "f32(linear w (x, 6)) * f32(x)"),
    ("gla_scan", "g = heads(logsigmoid(linear g (x, 6)), 2)
      o = gla_scan(heads(linear q (x, 6), 2), heads(linear k (x, 6), 2), heads(linear v (x, 4), 2), g)
      linear o (merge(o), 6)"),
    ("heads", "linear o (merge(rms_norm n (heads(x, 3))), 6)"),
    ("l2_norm", "l2_norm(x)"),
    ("linear", "linear b (linear a (x, 5, bias = true), 6)"),
    ("logsigmoid", "logsigmoid(x)"),
    ("merge", "merge(heads(x, 2) * heads(linear w (x, 6), 2))"),
    ("mul", "param p [6] init ones  x * linear w (x, 6) * p * (p * p) + x * x"),
    ("repeat_heads", "linear o (merge(rms_norm n (repeat_heads(heads(x, 2), 3)) * heads(linear w (x, 18), 6)), 6)"),
    ("rms_norm", "rms_norm n (x)"),
    ("rope", "merge(rope(heads(x, 1))) * merge(rope(heads(linear w (x, 6), 1), theta = 100, layout = half, dims = 4))"),
    ("scale", "x * 0.25 - linear w (x, 6) / 4"),
    ("short_conv", "short_conv s (x) + short_conv t (x, kernel = 3, bias = true)"),
    ("sigmoid", "sigmoid(x)"),
    ("silu", "silu(x) + silu(linear g (x, 6)) * linear u (x, 6)"),
    ("softplus", "softplus(x)"),
    ("split", "a, b, c = split(linear w (x, 9), 3, 4, 2)  linear o (concat(c, b), 6)"),
    ("ssd_scan", "param A [4] init ones  param D [4] init ones
      y = ssd_scan(heads(linear x (x, 8), 4), softplus(linear dt (x, 4)), -exp(f32(A)),
        heads(linear b (x, 6), 2), heads(linear c (x, 6), 2), D)
      linear o (merge(y), 6)"),
];

/// The largest error of any gradient element, relative to its parameter's largest element.
fn worst(graph: &Graph, fuse: bool) -> f64 {
    let loss = Loss { nll_square: decimal("0.01"), z_loss: decimal("0.02") };
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
        for i in 0..gradient.data.len() {
            let loss = |by: f64| {
                let mut moved = inputs.clone();
                if let Some(tensor) = moved.get_mut(&Input::Param(id)) {
                    tensor.data[i] += by;
                }
                scale * run(&plan, &moved)[&Output::Loss].data[0]
            };
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
    for (op, body) in PROBES {
        let error = worst(&probe(body), false);
        assert!(error < 1e-6, "{op}: {error}");
    }
}

#[test]
fn every_primitive_is_probed() {
    for primitive in op::ALL {
        assert!(PROBES.iter().any(|(op, _)| *op == primitive.name), "{}", primitive.name);
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
        let of = |fuse, recompute| {
            let plan = train(&graph, &options(fuse, recompute, Loss::CROSS_ENTROPY)).micro;
            run(checked(&plan), &inputs)
        };
        let plain = of(false, Recompute::Nothing);
        // Recomputing runs the same kernels on the same numbers, so results are bitwise equal.
        assert_eq!(plain, of(false, Recompute::Layers), "{name}");
        assert_eq!(of(true, Recompute::Nothing), of(true, Recompute::Layers), "{name}");
        for (output, value) in of(true, Recompute::Nothing) {
            assert!(value.distance(&plain[&output]) < 1e-12, "{name}: {output}");
        }
    }
}
