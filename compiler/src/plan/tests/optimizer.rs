//! Loss and update kernels, and their tests: AdamW by hand, clipping, sums of micro-batches.

use std::collections::BTreeMap;

use super::{checked, decimal, graph, options, run};
use crate::graph::{Param, ParamId};
use crate::kernel;
use crate::kernel::tensor::{Random, Tensor};
use crate::plan::{
    Decays, Input, Kernel, Loss, Muon, MuonScale, Output, ParamUpdate, Recompute, UpdateRule,
};
use crate::plans::train;

/// Singular values of an update are near 1: the matrix is nearly orthogonal, whatever the gradient's scale.
#[test]
fn muon_updates_matrices_by_nearly_orthogonal_ones() {
    let graph = graph(TEXT);
    let mut options = options(true, Recompute::Nothing, Loss::CROSS_ENTROPY);
    options.optimizer.weight_decay = decimal("0");
    let muon = Muon { momentum: decimal("0.95"), nesterov: true, scale: MuonScale::Keller };
    let rule = |param: &Param| match param.role == "linear" && param.path.starts_with("layers.") {
        true => UpdateRule::Muon(muon),
        false => UpdateRule::AdamW,
    };
    let params = &graph.top.params;
    options.updates =
        params.iter().map(|p| ParamUpdate { rule: rule(p), ..ParamUpdate::PLAIN }).collect();
    let plan = train(&graph, &options).update;
    let seconds = plan.inputs.iter().filter(|(input, _)| matches!(input, Input::SecondMoment(_)));
    let matrices = params.iter().filter(|p| rule(p) != UpdateRule::AdamW).count();
    assert!(matrices > 3);
    assert_eq!(seconds.count(), params.len() - matrices);
    let mut random = Random(5);
    let mut inputs = BTreeMap::from([
        (Input::LearningRate, Tensor::number(0.1)),
        (Input::StepNumber, Tensor::number(1.0)),
    ]);
    for (n, param) in params.iter().enumerate() {
        let id = ParamId(n as u32);
        let dims: Vec<usize> = param.shape.iter().map(|d| *d as usize).collect();
        let mut draw = |f: fn(f64) -> f64| Tensor::from_fn(dims.clone(), |_| f(random.normal()));
        inputs.insert(Input::Param(id), draw(|x| x));
        inputs.insert(Input::Gradient(id), draw(|x| 1e-3 * x));
        inputs.insert(Input::FirstMoment(id), draw(|_| 0.0));
        inputs.insert(Input::SecondMoment(id), draw(|_| 0.0));
    }
    let outputs = run(checked(&plan), &inputs);
    for (n, param) in params.iter().enumerate().filter(|(_, p)| rule(p) != UpdateRule::AdamW) {
        let id = ParamId(n as u32);
        let (before, after) = (&inputs[&Input::Param(id)], &outputs[&Output::Param(id)]);
        let [rows, columns] = before.dims[..] else { panic!("{}", param.path) };
        let squares = before.data.iter().zip(&after.data).map(|(p, q)| (p - q) * (p - q));
        let scale = 0.1 * MuonScale::Keller.factor(rows as i64, columns as i64);
        // The sum of the squares of the singular values, of which each is within 0.7 and 1.3.
        let mean = squares.sum::<f64>() / (scale * scale) / rows.min(columns) as f64;
        assert!((0.4..1.7).contains(&mean), "{}: {mean}", param.path);
    }
}

const TEXT: &str =
    "arch tiny { vocab 5  dim 4  norm_eps 1e-5  init lingua  layers 1 of mixer_only {
  mixer gated_deltanet { heads 2  value_dim 4  output_gate_rank 2 } }  canon A }";

#[test]
fn update_follows_the_plan_of_adamw() {
    let graph = graph(TEXT);
    let mut options = options(true, Recompute::Nothing, Loss::CROSS_ENTROPY);
    options.optimizer.decays = Decays::Matrices;
    options.optimizer.eps = decimal("1e-12");
    let plan = train(&graph, &options).update;
    let mut random = Random(3);
    let mut inputs = BTreeMap::from([
        (Input::LearningRate, Tensor::number(0.1)),
        (Input::StepNumber, Tensor::number(1.0)),
    ]);
    for (n, param) in graph.top.params.iter().enumerate() {
        let id = ParamId(n as u32);
        let dims: Vec<usize> = param.shape.iter().map(|d| *d as usize).collect();
        let mut draw = |f: fn(f64) -> f64| Tensor::from_fn(dims.clone(), |_| f(random.normal()));
        inputs.insert(Input::Param(id), draw(|x| x));
        inputs.insert(Input::Gradient(id), draw(|x| 3.0 * x));
        inputs.insert(Input::FirstMoment(id), draw(|_| 0.0));
        inputs.insert(Input::SecondMoment(id), draw(|_| 0.0));
    }
    let outputs = run(checked(&plan), &inputs);
    assert!(outputs[&Output::GradNorm].data[0] > 1.0);
    // With zero moments the first step is lr · sign(g), whatever the clipping, after the decay.
    for (n, param) in graph.top.params.iter().enumerate() {
        let id = ParamId(n as u32);
        let decayed = matches!(param.role.as_str(), "linear" | "embed");
        let (before, after) = (&inputs[&Input::Param(id)], &outputs[&Output::Param(id)]);
        let gradient = &inputs[&Input::Gradient(id)];
        for ((p, q), g) in before.data.iter().zip(&after.data).zip(&gradient.data) {
            let kept = if decayed { 1.0 - 0.1 * 0.1 } else { 1.0 };
            let want = p * kept - 0.1 * g.signum();
            assert!((q - want).abs() < 1e-5, "{}: {q} {want}", param.path);
        }
    }
    let decays: Vec<bool> = plan
        .steps
        .iter()
        .filter_map(|s| {
            let Kernel::AdamW(kernel::AdamW { decay, .. }) = &s.kernel else {
                return None;
            };
            Some(*decay == decimal("0.1"))
        })
        .collect();
    assert!(decays.contains(&true) && decays.contains(&false));
}

#[test]
fn combine_adds_everything_micro_gives() {
    let plans = train(&graph(TEXT), &options(true, Recompute::Nothing, Loss::CROSS_ENTROPY));
    let mut inputs = BTreeMap::new();
    for (n, (output, id)) in plans.micro.outputs.iter().enumerate() {
        let dims = plans.micro.values[id.0 as usize].dims.iter();
        let sizes = crate::plan::Sizes { batch: 1, time: 1, past: 0 };
        let dims: Vec<usize> = dims.map(|d| d.at(sizes) as usize).collect();
        inputs.insert(Input::Left(*output), Tensor::from_fn(dims.clone(), |i| (n + i) as f64));
        inputs.insert(Input::Right(*output), Tensor::from_fn(dims, |i| (10 * n + i) as f64));
    }
    let outputs = run(checked(&plans.combine), &inputs);
    assert_eq!(outputs.len(), plans.micro.outputs.len());
    for (n, (output, _)) in plans.micro.outputs.iter().enumerate() {
        let first = outputs[output].data[0];
        assert_eq!(first, 11.0 * n as f64, "{output}");
    }
}
