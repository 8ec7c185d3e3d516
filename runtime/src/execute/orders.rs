//! Any legal order of a plan's steps, with memory poisoned as soon as nobody needs it, gives the same bits: what a plan
//! needs of streams and events is what `Plan::dependencies` says, and nothing reads what was given back.

use std::cell::RefCell;

use compiler::plan::{Input, Plan, Precision, Processor, Sizes, Streams, ValId};
use compiler::plans;
use tch::{Device, Kind, Tensor};

use super::dispatch::Context;
use super::{Executor, KernelRequest, Machine, choose, sharing, widen};
use crate::selftest::models::{self, Family, Size};
use crate::weights::Weights;

const CPU: Machine =
    Machine { device: Device::Cpu, kind: Kind::Float, kernels: KernelRequest::FASTEST };

/// Small numbers in a fixed order.
struct Draws(u64);

impl Draws {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % count
    }
}

/// A random order in which every step comes after its dependencies.
fn any_order(plan: &Plan, seed: u64) -> Vec<usize> {
    let dependencies = plan.dependencies();
    let mut draws = Draws(seed);
    let mut done = vec![false; plan.steps.len()];
    let mut order = Vec::new();
    while order.len() < plan.steps.len() {
        let ready: Vec<usize> = (0..plan.steps.len())
            .filter(|n| !done[*n] && dependencies[*n].iter().all(|first| done[*first]))
            .collect();
        let next = ready[draws.below(ready.len())];
        done[next] = true;
        order.push(next);
    }
    order
}

fn run(plan: &Plan, order: &[usize], sizes: Sizes, give: &dyn Fn(Input) -> Tensor) -> Vec<Tensor> {
    let _guard = tch::no_grad_guard();
    let (memory, consumes) = (plan.memory_of(), sharing::consumable(plan));
    let root = |id: ValId| memory[id.0 as usize].0 as usize;
    let mut values: Vec<Option<Tensor>> = plan.values.iter().map(|_| None).collect();
    // For each memory, how many steps still read a value in it; the caller reads for ever.
    let mut readers = vec![0usize; plan.values.len()];
    for step in &plan.steps {
        step.inputs.iter().for_each(|id| readers[root(*id)] += 1);
    }
    for (_, id) in &plan.outputs {
        readers[root(*id)] += 1;
    }
    for (input, id) in &plan.inputs {
        values[id.0 as usize] = Some(give(*input));
        readers[root(*id)] += 1;
    }
    let tables = RefCell::default();
    for n in order {
        let step = &plan.steps[*n];
        let types: Vec<_> = step.inputs.iter().map(|id| plan.value(*id).unwrap()).collect();
        let operands: Vec<&Tensor> =
            step.inputs.iter().map(|id| values[id.0 as usize].as_ref().unwrap()).collect();
        let kinds: Vec<Kind> =
            step.outputs.iter().map(|id| CPU.kind_of(plan.value(*id).unwrap().dtype)).collect();
        let choice = choose(&step.kernel, &types, CPU, false);
        let consumes_first = consumes[*n];
        let context = Context {
            machine: CPU,
            sizes,
            consumes_first,
            copy: None,
            tables: &tables,
            each: None,
        };
        let results = widen::run(&step.kernel, choice, &operands, &context, &kinds).unwrap();
        for (id, result) in step.outputs.iter().zip(results) {
            // A result that nobody reads.
            if readers[root(*id)] == 0 {
                poison(&result);
            }
            values[id.0 as usize] = Some(result);
        }
        for (i, id) in step.inputs.iter().enumerate() {
            readers[root(*id)] -= 1;
            let moved = i == 0 && consumes_first; // a result is in its memory now
            if readers[root(*id)] == 0 && !moved {
                poison(values[root(*id)].as_ref().unwrap());
            }
        }
    }
    plan.outputs.iter().map(|(_, id)| values[id.0 as usize].as_ref().unwrap().copy()).collect()
}

fn poison(tensor: &Tensor) {
    if tensor.is_floating_point() {
        let _ = tensor.shallow_clone().fill_(f64::NAN);
    }
}

#[test]
fn any_legal_order_gives_the_same_bits_though_freed_memory_is_poisoned() {
    let sizes = Sizes { batch: 2, time: 19, past: 0 };
    for family in Family::ALL {
        for precision in [Precision::F32, Precision::Bf16] {
            let graph = models::graph(family, Size::Small).unwrap();
            let plan = plans::train(&graph, &models::options(precision, Processor::Cpu)).micro;
            let weights = Weights::init(&graph, 1).unwrap();
            let ids = |seed: i64| {
                let all: Vec<i64> = (0..38).map(|i| (i * 31 + seed) % graph.vocab).collect();
                Tensor::from_slice(&all).reshape([2, 19])
            };
            #[expect(clippy::wildcard_enum_match_arm, reason = "a micro-batch has no others")]
            let give = |input: Input| match input {
                Input::Tokens => ids(3),
                Input::Targets => ids(5),
                Input::Position => Tensor::from(0i64),
                Input::GradScale => Tensor::from(1.0 / 38.0),
                Input::Param(id) => weights.tensors[id.0 as usize].shallow_clone(),
                Input::Rounded(id) => weights.rounded(id.0 as usize).unwrap(),
                other => panic!("{other}"),
            };
            let executor = Executor::new(plan.clone(), CPU).unwrap();
            let wanted = executor.run(|input| Ok(give(input))).unwrap();
            let as_written: Vec<usize> = (0..plan.steps.len()).collect();
            for seed in 0..3 {
                let order = if seed == 0 { as_written.clone() } else { any_order(&plan, seed) };
                assert!(seed == 0 || order != as_written);
                let got = run(&plan, &order, sizes, &give);
                for ((output, wanted), got) in wanted.iter().zip(&got) {
                    assert!(wanted.equal(got), "{} {precision:?}: {output}", family.name());
                }
            }
            // The plan runs on one stream, which orders everything.
            let count = plan.steps.len();
            let one = Streams { by_step: vec![0; count], waits: vec![Vec::new(); count] };
            assert_eq!(plan.check_streams(&one), Ok(()));
        }
    }
}
