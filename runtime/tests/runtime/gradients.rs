//! The compiler's backward pass compared with libtorch's autograd of the same plan's forward steps, and with finite
//! differences of its loss, in f64; then every way of running it compared with that.

use std::collections::{BTreeMap, BTreeSet};

use compiler::graph::Graph;
use compiler::kernel::{CrossEntropy, Kernel};
use compiler::op::{self, ScanKind};
use compiler::plan::{Input, Loss, Options, Output, Plan, Recompute, Sizes, TrainOptions, Value};
use compiler::plans;
use runtime::execute::{KernelRequest, Machine, Sums, Trainer, compute};
use runtime::weights::Weights;
use tch::{Device, Kind, Tensor};

use super::support::{
    DOUBLE, FAST, PLAIN, decimal, evaluator, quiet, relative, train_options, trainer,
};
use ::support::archs::{all, named};

const TIME: i64 = 9;

/// Both squared terms, so that every part of the loss is differentiated.
fn loss() -> Loss {
    Loss { nll_square: decimal("1e-2"), z_loss: decimal("3e-3"), ..Loss::CROSS_ENTROPY }
}

/// Tokens and targets, some ignored.
fn batch(graph: &Graph) -> (Tensor, Tensor) {
    let (batch, count) = (2, 2 * TIME);
    let tokens: Vec<i64> = (0..count).map(|i| (i * i * 7 + i * 3 + 5) % graph.vocab).collect();
    let targets: Vec<i64> =
        (0..count).map(|i| if i % 5 == 3 { -100 } else { (i * 11 + 2) % graph.vocab }).collect();
    let shaped = |ids: &[i64]| Tensor::from_slice(ids).reshape([batch, TIME]);
    (shaped(&tokens), shaped(&targets))
}

fn weights(graph: &Graph, machine: Machine) -> Weights {
    Weights::init(graph, 3).unwrap().to(machine.device, machine.kind).unwrap()
}

fn micro(graph: &Graph, options: &TrainOptions, machine: Machine) -> Sums {
    let (tokens, targets) = batch(graph);
    let trainer = Trainer::new(plans::train(graph, options), machine).unwrap();
    trainer.micro_batch(&weights(graph, machine), &tokens, &targets, 0.25).unwrap()
}

/// The gradients from libtorch's autograd of the evaluation plan, run step by step in plain tch.
fn by_autograd(
    graph: &Graph,
    ops: &mut BTreeSet<&'static str>,
    kernels: &mut BTreeSet<&'static str>,
) -> Vec<Tensor> {
    let machine = Machine { kernels: KernelRequest::REFERENCE, ..DOUBLE };
    // Unfused, so that every primitive's own kernel runs.
    let options = Options { fuse: false, ..Options::default() };
    let plan = plans::evaluate(graph, loss(), options);
    let (tokens, targets) = batch(graph);
    let leaves: Vec<Tensor> =
        weights(graph, machine).tensors.into_iter().map(|w| w.set_requires_grad(true)).collect();
    let mut values: BTreeMap<u32, Tensor> = BTreeMap::new();
    for (input, id) in &plan.inputs {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "a test fails on whatever else it meets"
        )]
        let value = match input {
            Input::Tokens => tokens.shallow_clone(),
            Input::Targets => targets.shallow_clone(),
            Input::Position => Tensor::from(0i64),
            Input::Param(param) => leaves[param.0 as usize].shallow_clone(),
            other => panic!("an evaluation plan asks for {other}"),
        };
        values.insert(id.0, value);
    }
    let sizes = Sizes { batch: 2, time: TIME, past: 0 };
    let mut total = Tensor::from(0.0);
    for step in &plan.steps {
        ops.extend(step.source.as_ref().map(|source| source.op));
        kernels.insert(step.kernel.name());
        let operands: Vec<&Tensor> = step.inputs.iter().map(|id| &values[&id.0]).collect();
        let types: Vec<&Value> = step.inputs.iter().map(|id| plan.value(*id).unwrap()).collect();
        let results = compute(&step.kernel, &types, &operands, machine, sizes).unwrap();
        if let Kernel::CrossEntropy(CrossEntropy { nll_square, z_loss }) = &step.kernel {
            // The kernel's own sum is a plain number; this one is differentiable.
            let counts = targets.ne(-100).to_kind(Kind::Double);
            let (nll, lse) = (&results[0], &results[1]);
            let terms = nll + nll.square() * nll_square.to_f64() + lse.square() * z_loss.to_f64();
            total = (terms * counts).sum(None::<Kind>);
            assert!((total.double_value(&[]) - results[2].double_value(&[])).abs() < 1e-10);
        }
        for (id, result) in step.outputs.iter().zip(results) {
            values.insert(id.0, result);
        }
    }
    Tensor::run_backward(&[total * 0.25], &leaves, false, false)
}

#[test]
fn autograd_of_the_same_steps_agrees_for_every_primitive() {
    quiet();
    let (mut ops, mut kernels) = (BTreeSet::new(), BTreeSet::new());
    for (name, compiled) in all() {
        let graph = &compiled.graph;
        let ours = micro(graph, &train_options(loss()), DOUBLE);
        let theirs = by_autograd(graph, &mut ops, &mut kernels);
        for ((param, ours), theirs) in graph.params().iter().zip(&ours.gradients).zip(&theirs) {
            let error = relative(ours, theirs);
            assert!(error < 1e-11, "{name}, {}: {error:e}", param.path);
        }
    }
    // Every primitive has made steps, but `f32`, which makes none while everything is f32, those that make none without a
    // weight, and `dropout`, which drops nothing in evaluation; a slot is no primitive.
    ops.extend(["ahead_loss", "aux_loss", "dropout", "f32"]);
    ops.remove("slot");
    let all: BTreeSet<&str> = op::ALL.iter().map(|op| op.name).collect();
    assert_eq!(ops, all);
    let scans: BTreeSet<&str> = ScanKind::ALL.iter().map(|scan| scan.definition().name).collect();
    assert!(kernels.is_superset(&scans), "{kernels:?}");
    let others: Vec<&str> = kernels.difference(&scans).copied().collect();
    assert_eq!(
        others,
        [
            "add",
            "argmax",
            "attention",
            "causal_conv",
            "concat",
            "cross_entropy",
            "embed",
            "expert_linear",
            "index",
            "l2_norm",
            "linear",
            "mix_heads",
            "mul",
            "ngram",
            "offset",
            "one_hot",
            "pointwise",
            "repeat_heads",
            "reshape",
            "rms_norm",
            "rope",
            "scale",
            "shift",
            "softmax",
            "split",
            "spread",
            "sum_channels",
            "top_k",
            "zeros",
        ]
    );
}

/// The slope of the loss along a direction, by central differences, compared with the gradient's component along it.
#[test]
fn finite_differences_agree() {
    quiet();
    for (name, compiled) in all() {
        let graph = &compiled.graph;
        let (tokens, targets) = batch(graph);
        let evaluator = evaluator(graph, loss(), DOUBLE);
        let at = weights(graph, DOUBLE);
        let gradients = trainer(graph, loss(), DOUBLE)
            .micro_batch(&at, &tokens, &targets, 1.0)
            .unwrap()
            .gradients;
        let direction = Weights::init(graph, 99).unwrap().to(Device::Cpu, Kind::Double).unwrap();
        for (n, param) in graph.params().iter().enumerate() {
            // A parameter with a constant rule has the same direction as value; shift it.
            let along = &direction.tensors[n] - 0.37;
            let value = |step: f64| {
                let mut moved = weights(graph, DOUBLE);
                moved.tensors[n] = &at.tensors[n] + &along * step;
                evaluator.evaluate(&moved, &tokens, &targets).unwrap().loss_sum
            };
            let step = 1e-5;
            let slope = (value(step) - value(-step)) / (2.0 * step);
            let want = (&gradients[n] * &along).sum(None::<Kind>).double_value(&[]);
            // Rounding of a loss near 100 by 2e-16 · 100 / 1e-5, and curvature · step².
            let allowed = 2e-6 * want.abs().max(slope.abs()) + 2e-7;
            assert!((slope - want).abs() <= allowed, "{name}, {}: {slope} for {want}", param.path);
        }
    }
}

#[test]
fn f32_and_every_fused_kernel_agree_with_f64() {
    quiet();
    for (name, compiled) in all() {
        let graph = &compiled.graph;
        let exact = micro(graph, &train_options(loss()), DOUBLE);
        for machine in [FAST, PLAIN] {
            let ours = micro(graph, &train_options(loss()), machine);
            let (a, b) = (ours.loss_sum().unwrap(), exact.loss_sum().unwrap());
            assert!((a / b - 1.0).abs() < 2e-6, "{name} on {machine:?}: loss {a}, not {b}");
            for (n, param) in graph.params().iter().enumerate() {
                let error = relative(&ours.gradients[n], &exact.gradients[n]);
                assert!(error < 1e-4, "{name} on {machine:?}, {}: {error:e}", param.path);
            }
        }
    }
}

fn same_bits(name: &str, graph: &Graph, a: &Sums, b: &Sums) {
    assert_eq!(a.loss_sum().unwrap().to_bits(), b.loss_sum().unwrap().to_bits(), "{name}");
    for ((param, a), b) in graph.params().iter().zip(&a.gradients).zip(&b.gradients) {
        assert!(a == b, "{name}, {}: {:e}", param.path, relative(a, b));
    }
}

#[test]
fn recomputing_layers_changes_no_bit() {
    quiet();
    for (name, compiled) in all() {
        let graph = &compiled.graph;
        let kept = micro(graph, &train_options(loss()), FAST);
        for recompute in [Recompute::Layers, Recompute::Selective] {
            let options = TrainOptions { recompute, ..train_options(loss()) };
            same_bits(name, graph, &kept, &micro(graph, &options, FAST));
        }
    }
}

#[test]
fn fusing_changes_rounding_only() {
    quiet();
    for (name, compiled) in all() {
        let graph = &compiled.graph;
        let fused = micro(graph, &train_options(loss()), DOUBLE);
        let common = Options { fuse: false, ..Options::default() };
        let options = TrainOptions { common, ..train_options(loss()) };
        let apart = micro(graph, &options, DOUBLE);
        for ((param, a), b) in graph.params().iter().zip(&fused.gradients).zip(&apart.gradients) {
            assert!(relative(a, b) < 1e-12, "{name}, {}", param.path);
        }
    }
}

#[test]
fn combining_adds_and_a_shared_gradient_is_not_added_twice() {
    quiet();
    // Both parameters are added to one sequence, so their gradients are one value of the plan.
    let text = "mixer twice(x; heads) {
           param a [dim] init ones   param b [dim] init ones
           linear wo (x + (a + b), dim)
         }
         arch twins { vocab 23  dim 12  norm_eps 1e-5  init lingua
           layers 1 of decoder { mixer twice { heads 1 } mlp swiglu { hidden 20 } } }";
    let compiled = super::support::arch(text, "twins");
    let graph = &compiled.graph;
    let trainer = trainer(graph, loss(), FAST);
    let (tokens, targets) = batch(graph);
    let weights = weights(graph, FAST);
    let one = || trainer.micro_batch(&weights, &tokens, &targets, 0.25).unwrap();
    let sum = trainer.combine(one(), one()).unwrap();
    assert_eq!(sum.counted().unwrap(), 2 * one().counted().unwrap());
    assert_eq!(sum.loss_sum().unwrap(), 2.0 * one().loss_sum().unwrap());
    for ((param, sum), one) in graph.params().iter().zip(&sum.gradients).zip(&one().gradients) {
        assert!(*sum == one * 2.0, "{}", param.path);
    }
}

#[test]
fn every_kernel_that_ran_is_on_the_record() {
    quiet();
    let compiled = named("grouped");
    let graph = &compiled.graph;
    let (tokens, targets) = batch(graph);
    let census = |plan: &Plan| plan.census();
    for machine in [FAST, PLAIN, DOUBLE] {
        let plans = plans::train(graph, &train_options(loss()));
        let want = census(&plans.micro);
        let trainer = Trainer::new(plans, machine).unwrap();
        assert_eq!(trainer.paths().iter().count(), 0);
        let weights = weights(graph, machine);
        for _ in 0..2 {
            trainer.micro_batch(&weights, &tokens, &targets, 1.0).unwrap();
        }
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for (kernel, path, times) in trainer.paths().iter() {
            *seen.entry(kernel).or_default() += times as usize;
            let fused = path.starts_with("fused/");
            assert!(!fused || machine == FAST, "{kernel} took {path} on {machine:?}");
            if ["rms_norm", "rope", "swiglu", "cross_entropy_grad", "causal_conv"].contains(&kernel)
            {
                assert_eq!(fused, machine == FAST, "{kernel} took {path} on {machine:?}");
            }
        }
        let doubled: BTreeMap<&str, usize> = want.into_iter().map(|(k, n)| (k, 2 * n)).collect();
        assert_eq!(seen, doubled);
    }
    let outputs = plans::train(graph, &train_options(loss())).micro.outputs;
    assert_eq!(outputs[0].0, Output::Loss);
}
