//! The interface between the command line and libtorch.
//!
//! Must stay true: the command line's library uses no tensor type; `canonc-torch` does the work, and `canonc` execs
//! that program.

use std::path::Path;

use lab::comparison::Comparison;
use records::verify::Report;

use crate::args::{
    AnswerArgs, BenchArgs, CompareArgs, EvalArgs, ForwardArgs, GenerateArgs, ReproduceArgs,
    RunArgs, SelftestArgs, ServeArgs,
};
use crate::doctor::Fact;
use crate::fail::Outcome;

/// Work that computes with tensors.
#[derive(Debug)]
pub enum Work<'a> {
    Run(&'a RunArgs),
    Reproduce(&'a ReproduceArgs),
    Bench(&'a BenchArgs),
    Selftest(&'a SelftestArgs),
    Forward(&'a ForwardArgs),
    Generate(&'a GenerateArgs),
    Serve(&'a ServeArgs),
    Answer(&'a AnswerArgs),
    Eval(&'a EvalArgs),
    /// `compare --time`: the given number of rounds of steps of each comparison's arms.
    StepTimes(&'a CompareArgs, &'a [Comparison], usize),
    /// `verify --replay`, before anything is read: sets the environment that the run's lock requires.
    PrepareReplay(&'a Path),
    /// `verify --replay`: trains this many steps of a run's folder, or all, and adds the result to the report.
    Replay {
        folder: &'a Path,
        data: Option<&'a Path>,
        steps: Option<u64>,
        report: &'a mut Report,
    },
}

/// Runs [`Work`].
pub trait Tensors: Sync {
    fn carry_out(&self, work: Work<'_>) -> Outcome;

    /// Facts about libtorch on this machine.
    fn facts(&self) -> Vec<Fact>;
}
