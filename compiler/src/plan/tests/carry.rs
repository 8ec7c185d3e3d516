//! Tensors that pass between layers: the same numbers as one layer with all wires written out.

use std::collections::BTreeMap;

use super::{checked, graph, options, run, tokens};
use crate::graph::{Graph, ParamId};
use crate::kernel::tensor::{Random, Tensor};
use crate::plan::{Input, Loss, Output, Recompute};
use crate::plans::train;

/// The third layer reads what the first made and what the second changed.
const CARRIED: &str = "
  block piece(x) {
    carry values = linear v (x, 4) else { x = x + values * linear gate (x, 4) }
    carry sum = x
    sum = sum + silu(linear s (x, 4))
    x + linear w (sum, 4)
  }
  arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 3 of piece }";

const WRITTEN_OUT: &str = "
  block all(x) {
    values = linear v_0 (x, 4)
    sum = x + silu(linear s_0 (x, 4))
    x = x + linear w_0 (sum, 4)
    x = x + values * linear gate_1 (x, 4)
    sum = sum + silu(linear s_1 (x, 4))
    x = x + linear w_1 (sum, 4)
    x = x + values * linear gate_2 (x, 4)
    sum = sum + silu(linear s_2 (x, 4))
    x + linear w_2 (sum, 4)
  }
  arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 1 of all }";

/// `layers.2.w` and `layers.0.w_2` as `w_2`.
fn key(path: &str) -> String {
    let parts: Vec<&str> = path.split('.').collect();
    match parts.as_slice() {
        ["layers", _, name] if name.contains('_') => (*name).to_owned(),
        ["layers", layer, name] => format!("{name}_{layer}"),
        _ => path.to_owned(),
    }
}

/// Loss and gradients with values drawn by key.
fn step(graph: &Graph, recompute: Recompute) -> BTreeMap<String, Tensor> {
    let mut inputs = BTreeMap::new();
    for (n, param) in graph.top.params.iter().enumerate() {
        let seed = key(&param.path).bytes().fold(7, |seed, b| 31 * seed + u64::from(b));
        let mut random = Random(seed);
        let dims = param.shape.iter().map(|d| *d as usize).collect();
        let tensor = Tensor::from_fn(dims, |_| random.normal() * 0.5);
        inputs.insert(Input::Param(ParamId(n as u32)), tensor);
    }
    let mut random = Random(3);
    inputs.insert(Input::Tokens, tokens(graph, 2, 5, &mut random));
    inputs.insert(Input::Targets, tokens(graph, 2, 5, &mut random));
    inputs.insert(Input::Position, Tensor::number(0.0));
    inputs.insert(Input::GradScale, Tensor::number(0.1));
    let plan = train(graph, &options(true, recompute, Loss::CROSS_ENTROPY)).micro;
    let outputs = run(checked(&plan), &inputs);
    let named = graph.top.params.iter().enumerate().map(|(n, param)| {
        (key(&param.path), outputs[&Output::Gradient(ParamId(n as u32))].clone())
    });
    named.chain([("loss".to_owned(), outputs[&Output::Loss].clone())]).collect()
}

#[test]
fn carried_tensors_compute_what_one_written_out_layer_does() {
    let (carried, written_out) = (graph(CARRIED), graph(WRITTEN_OUT));
    assert_eq!(carried.layers().count(), 3);
    let want = step(&written_out, Recompute::Nothing);
    for recompute in [Recompute::Nothing, Recompute::Layers, Recompute::Selective] {
        let got = step(&carried, recompute);
        assert_eq!(got.keys().collect::<Vec<_>>(), want.keys().collect::<Vec<_>>());
        for (name, tensor) in &want {
            assert!(tensor.distance(&got[name]) < 1e-12, "{name}");
            assert!(tensor.data.iter().any(|x| *x != 0.0), "{name}");
        }
    }
}
