//! Loss and update kernels, and their tests: AdamW by hand, clipping, sums of micro-batches.

use std::collections::BTreeMap;

use super::tensor::{Random, Tensor};
use super::{checked, decimal, graph, options, run};
use crate::graph::{Param, ParamId};
use crate::plan::{
    Decays, IGNORED, Input, Kernel, Loss, Muon, MuonScale, Output, ParamUpdate, Recompute,
    UpdateRule,
};
use crate::plans::train;

fn lse(row: &[f64]) -> f64 {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + libm::log(row.iter().map(|x| libm::exp(x - max)).sum())
}

pub(super) fn cross_entropy(
    logits: &Tensor,
    targets: &Tensor,
    nll_square: f64,
    z_loss: f64,
) -> Vec<Tensor> {
    let lse: Vec<f64> = logits.rows().map(lse).collect();
    let mut nll = vec![0.0; lse.len()];
    let (mut loss, mut counted) = (0.0, 0.0);
    for (n, (row, target)) in logits.rows().zip(&targets.data).enumerate() {
        if *target as i64 != IGNORED {
            nll[n] = lse[n] - row[*target as usize];
            loss += nll[n] + nll_square * nll[n] * nll[n] + z_loss * lse[n] * lse[n];
            counted += 1.0;
        }
    }
    vec![targets.like(nll), targets.like(lse), Tensor::number(loss), Tensor::number(counted)]
}

pub(super) fn cross_entropy_grad(x: &[&Tensor], nll_square: f64, z_loss: f64) -> Tensor {
    let [logits, targets, nll, lse, scale] = x else { panic!("{} operands", x.len()) };
    let mut dlogits = Vec::new();
    for (n, row) in logits.rows().enumerate() {
        let target = targets.data[n] as i64;
        for (i, x) in row.iter().enumerate() {
            let p = libm::exp(x - lse.data[n]);
            let hit = if i as i64 == target { 1.0 } else { 0.0 };
            let slope =
                (1.0 + 2.0 * nll_square * nll.data[n]) * (p - hit) + 2.0 * z_loss * lse.data[n] * p;
            dlogits.push(if target == IGNORED { 0.0 } else { scale.data[0] * slope });
        }
    }
    logits.like(dlogits)
}

pub(super) fn argmax(logits: &Tensor) -> Tensor {
    let best = |row: &[f64]| {
        row.iter()
            .enumerate()
            .fold((0, f64::NEG_INFINITY), |best, (i, x)| if *x > best.1 { (i, *x) } else { best })
    };
    let dims = logits.dims[..2].to_vec();
    Tensor { dims, data: logits.rows().map(|row| best(row).0 as f64).collect() }
}

pub(super) fn norm(gradients: &[&Tensor]) -> Tensor {
    let squares = gradients.iter().map(|g| g.data.iter().map(|x| x * x).sum::<f64>()).sum();
    Tensor::number(libm::sqrt(squares))
}

pub(super) fn adamw(x: &[&Tensor], [beta1, beta2, eps, decay, rate]: [f64; 5]) -> Vec<Tensor> {
    let [p, g, m, v, coefficient, lr, step] = x else { panic!("{} operands", x.len()) };
    let (lr, step) = (rate * lr.data[0], step.data[0]);
    let (mut p, mut m, mut v) = ((*p).clone(), (*m).clone(), (*v).clone());
    for i in 0..p.data.len() {
        let g = coefficient.data[0] * g.data[i];
        p.data[i] *= 1.0 - lr * decay;
        m.data[i] = beta1 * m.data[i] + (1.0 - beta1) * g;
        v.data[i] = beta2 * v.data[i] + (1.0 - beta2) * g * g;
        let mean = m.data[i] / (1.0 - libm::pow(beta1, step));
        let root = libm::sqrt(v.data[i]) / libm::sqrt(1.0 - libm::pow(beta2, step));
        p.data[i] -= lr * mean / (root + eps);
    }
    vec![p, m, v]
}

/// One matrix, [rows, columns].
pub(super) fn muon(x: &[&Tensor], muon: Muon, decay: f64, rate: f64) -> Vec<Tensor> {
    let [p, g, m, coefficient, lr] = x else { panic!("{} operands", x.len()) };
    let (lr, mu) = (rate * lr.data[0], muon.momentum.to_f64());
    let [rows, columns] = p.dims[..] else { panic!("{:?}", p.dims) };
    let mut m = (*m).clone();
    let mut u = m.clone();
    for i in 0..m.data.len() {
        let g = coefficient.data[0] * g.data[i];
        m.data[i] = mu * m.data[i] + (1.0 - mu) * g;
        u.data[i] = if muon.nesterov { (1.0 - mu) * g + mu * m.data[i] } else { m.data[i] };
    }
    let at = |x: &[f64], wide: bool, i: usize, j: usize| {
        if wide { x[i * columns + j] } else { x[j * columns + i] }
    };
    let wide = rows <= columns;
    let (short, long) = if wide { (rows, columns) } else { (columns, rows) };
    let norm = libm::sqrt(u.data.iter().map(|x| x * x).sum()) + 1e-7;
    let mut x: Vec<Vec<f64>> =
        (0..short).map(|i| (0..long).map(|j| at(&u.data, wide, i, j) / norm).collect()).collect();
    for _ in 0..5 {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let a: Vec<Vec<f64>> =
            x.iter().map(|one| x.iter().map(|other| dot(one, other)).collect()).collect();
        let b: Vec<Vec<f64>> = (0..short)
            .map(|i| (0..short).map(|j| -4.775 * a[i][j] + 2.0315 * dot(&a[i], &a[j])).collect())
            .collect();
        x = (0..short)
            .map(|i| {
                (0..long)
                    .map(|j| 3.4445 * x[i][j] + (0..short).map(|k| b[i][k] * x[k][j]).sum::<f64>())
                    .collect()
            })
            .collect();
    }
    let c = muon.scale.factor(rows as i64, columns as i64);
    let mut p = (*p).clone();
    for (at, p) in p.data.iter_mut().enumerate() {
        let (i, j) = (at / columns, at % columns);
        let step = if wide { x[i][j] } else { x[j][i] };
        *p = *p * (1.0 - lr * decay) - lr * c * step;
    }
    vec![p, m]
}

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
            let Kernel::AdamW { decay, beta1: _, beta2: _, eps: _, rate: _ } = &s.kernel else {
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
