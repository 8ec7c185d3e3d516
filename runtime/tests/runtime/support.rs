//! Shared by the tests: archs from text, machines, comparisons with tolerance.

use ::support::programs::{TEXT, compiled_in};
use compiler::graph::Graph;
use compiler::plan::{Decays, Loss, Optimizer, Options, Recompute, Stream, TrainOptions};
use compiler::plans;
use compiler::program::{Compiled, Program, Std};
use dsl::Decimal;
use runtime::execute::{Evaluator, KernelRequest, Machine, Streamer, Trainer};
use tch::{Device, Kind, Tensor};

/// One thread: the machine may be shared, and idle threads of a pool spin.
pub(crate) fn quiet() {
    tch::set_num_threads(1);
}

pub(crate) const FAST: Machine =
    Machine { device: Device::Cpu, kind: Kind::Float, kernels: KernelRequest::FASTEST };
pub(crate) const PLAIN: Machine = Machine { kernels: KernelRequest::REFERENCE, ..FAST };
pub(crate) const DOUBLE: Machine = Machine { kind: Kind::Double, ..FAST };

/// The arch called `name` in a text.
pub(crate) fn arch(text: &str, name: &str) -> Compiled {
    let program = Program::new([(TEXT.to_owned(), text.to_owned())], Std::Embedded);
    assert!(!program.has_errors(), "{}\n{text}", program.render(&program.diagnostics));
    compiled_in(&program, TEXT, name)
}

pub(crate) fn decimal(text: &str) -> Decimal {
    Decimal::parse(text).unwrap()
}

pub(crate) fn train_options(loss: Loss) -> TrainOptions {
    TrainOptions {
        common: Options::default(),
        loss,
        optimizer: Optimizer {
            beta1: decimal("0.9"),
            beta2: decimal("0.95"),
            eps: decimal("1e-8"),
            weight_decay: decimal("0.1"),
            decays: Decays::All,
            clip: Some(decimal("1")),
        },
        updates: Vec::new(),
        recompute: Recompute::Nothing,
        dropout: false,
    }
}

pub(crate) fn trainer(graph: &Graph, loss: Loss, machine: Machine) -> Trainer {
    Trainer::new(plans::train(graph, &train_options(loss)), machine).unwrap()
}

pub(crate) fn evaluator(graph: &Graph, loss: Loss, machine: Machine) -> Evaluator {
    Evaluator::new(plans::evaluate(graph, loss, Options::default()), machine).unwrap()
}

pub(crate) fn streamer(graph: &Graph, machine: Machine) -> Streamer {
    let stream = Stream { state_in: true, state_out: true };
    Streamer::new(plans::forward(graph, stream, Options::default()), machine).unwrap()
}

/// max |a − b|, in f64.
pub(crate) fn furthest(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.size(), b.size());
    if a.numel() == 0 {
        return 0.0;
    }
    (a.to_kind(Kind::Double) - b.to_kind(Kind::Double)).abs().max().double_value(&[])
}

/// max |a − want| / max |want|; absolutely where `want` is zero throughout.
pub(crate) fn relative(a: &Tensor, want: &Tensor) -> f64 {
    let size = want.to_kind(Kind::Double).abs().max().double_value(&[]);
    furthest(a, want) / if size == 0.0 { 1.0 } else { size }
}
