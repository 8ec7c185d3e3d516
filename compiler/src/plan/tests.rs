//! Executes plans in f64 with a scalar interpreter that follows only the kernels' contracts: every gradient rule against
//! finite differences, streaming, and the passes.
//!
//! The interpreter reads only the plan, checks every shape the plan declares, and frees the values the plan drops.

mod ahead;
mod carry;
mod dropout;
mod golden;
mod aux;
mod gradients;
mod interpret;
mod optimizer;
mod passes;
mod specialise;
mod streaming;

use std::collections::BTreeMap;

use dsl::Decimal;

use self::interpret::run;
use super::{Decays, Input, Loss, Optimizer, Options, Plan, Recompute, TrainOptions};
use crate::graph::{Graph, ParamId};
use crate::kernel::tensor::{Random, Tensor};
use crate::program::{Program, Std};

/// The graph of the arch `tiny` in a text.
fn graph(text: &str) -> Graph {
    compiled(text, Std::Embedded)
}

fn compiled(text: &str, std: Std) -> Graph {
    let file = ("tiny.canon".to_owned(), text.to_owned());
    let program = Program::new([file], std);
    let (compiled, diagnostics) = program.compile("tiny.canon", "tiny");
    match compiled {
        Some(compiled) => compiled.graph,
        None => panic!(
            "{}{}\n{text}",
            program.render(&program.diagnostics),
            program.render(&diagnostics)
        ),
    }
}

fn decimal(text: &str) -> Decimal {
    Decimal::parse(text).unwrap_or(Decimal::ZERO)
}

fn options(fuse: bool, recompute: Recompute, loss: Loss) -> TrainOptions {
    let optimizer = Optimizer {
        beta1: decimal("0.9"),
        beta2: decimal("0.95"),
        eps: decimal("1e-8"),
        weight_decay: decimal("0.1"),
        decays: Decays::All,
        clip: Some(decimal("1")),
    };
    let common = Options { fuse, ..Options::default() };
    TrainOptions { common, loss, optimizer, updates: Vec::new(), recompute, dropout: false }
}

/// Random parameters of a graph, of order one, so that every path has a visible effect.
fn parameters(graph: &Graph, random: &mut Random) -> BTreeMap<Input, Tensor> {
    let mut inputs = BTreeMap::new();
    for (n, param) in graph.top.params.iter().enumerate() {
        let dims = param.shape.iter().map(|d| *d as usize).collect();
        let scale = if param.role == "norm" { (1.0, 0.3) } else { (0.0, 0.5) };
        let tensor = Tensor::from_fn(dims, |_| scale.0 + scale.1 * random.normal());
        inputs.insert(Input::Param(ParamId(n as u32)), tensor);
    }
    inputs
}

fn tokens(graph: &Graph, batch: usize, time: usize, random: &mut Random) -> Tensor {
    Tensor::from_fn(vec![batch, time], |_| random.below(graph.vocab as u64) as f64)
}

/// Asserts that a plan is valid.
fn checked(plan: &Plan) -> &Plan {
    if let Err(problem) = plan.check() {
        panic!("{problem}\n{}", plan.text());
    }
    plan
}
