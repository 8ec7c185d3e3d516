//! Times of a training step, and contenders that take turns.

use std::time::Duration;

use bench::step::{StepShape, Stepper};
use bench::turns::take_turns;
use compiler::plan::{Precision, Processor, Step};
use compiler::plans;
use compiler::program::{Program, Std};
use runtime::execute::{KernelRequest, Machine};
use runtime::kernels::transfer::waits;
use runtime::selftest::models;

const ARCH: &str = "arch a { vocab 50   dim 16   norm_eps 1e-5   init lingua
    layers 1 of decoder { mixer attention { heads 2 } mlp swiglu { hidden 24 } } }";

fn stepper() -> (Stepper, usize) {
    let program = Program::new([("a.canon".to_owned(), ARCH.to_owned())], Std::Embedded);
    let graph = program.compile("a.canon", "a").0.unwrap().graph;
    let machine = Machine::new(false, false, KernelRequest::FASTEST).unwrap();
    let options = models::options(Precision::F32, Processor::Cpu);
    let shape = StepShape { batch: 1, seq_len: 8 };
    let stepper = Stepper::new(&graph, &options, shape, machine).unwrap();
    (stepper, plans::train(&graph, &options).micro.steps.len())
}

#[test]
fn the_device_is_waited_for_before_each_time_is_taken() {
    let (mut stepper, _) = stepper();
    let before = waits();
    stepper.advance(None).unwrap();
    assert_eq!(waits() - before, 2, "after forward and backward, and after the update");
}

#[test]
fn every_step_of_a_micro_batch_is_timed_within_it() {
    let (mut stepper, steps) = stepper();
    let mut times = Vec::new();
    let mut observer = |_: &Step, took: Duration| times.push(took);
    let (micro, _) = stepper.advance(Some(&mut observer)).unwrap();
    assert_eq!(times.len(), steps);
    let all: Duration = times.iter().sum();
    assert!(all <= micro, "{all:?} of {micro:?}");
}

#[test]
fn each_round_reverses_the_order() {
    let mut turns = Vec::new();
    let turn = |contender: &mut char| {
        turns.push(*contender);
        Ok::<(), ()>(())
    };
    take_turns(&mut ['a', 'b', 'c'], 3, |_| Ok(()), turn).unwrap();
    assert_eq!(turns.iter().collect::<String>(), "abccbaabc");
}
