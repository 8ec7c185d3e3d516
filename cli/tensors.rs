//! What a command may ask of libtorch, as the command line sees it.
//!
//! Must stay true: the command line's library names no tensor; `canonc-torch` carries the work out, and `canonc` starts
//! that program in its own place.

use std::path::Path;

use compiler::lock::Comparison;
use records::verify::Report;

use crate::args::{
    AnswerArgs, BenchArgs, CompareArgs, ForwardArgs, GenerateArgs, ReproduceArgs, RunArgs,
};
use crate::doctor::Fact;
use crate::fail::Outcome;

/// A piece of work that computes with tensors.
#[derive(Debug)]
pub enum Work<'a> {
    Run(&'a RunArgs),
    Reproduce(&'a ReproduceArgs),
    Bench(&'a BenchArgs),
    Forward(&'a ForwardArgs),
    Generate(&'a GenerateArgs),
    Answer(&'a AnswerArgs),
    /// `compare --time`: this many rounds of steps of each comparison's arms.
    StepTimes(&'a CompareArgs, &'a [Comparison], usize),
    /// `verify --replay`, before anything is read: the environment that the run's lock requires.
    PrepareReplay(&'a Path),
    /// `verify --replay`: this many steps of a run's folder, or all; what comes out is added to the report.
    Replay {
        folder: &'a Path,
        data: Option<&'a Path>,
        steps: Option<u64>,
        report: &'a mut Report,
    },
}

/// Who carries out [`Work`].
pub trait Tensors: Sync {
    fn carry_out(&self, work: Work<'_>) -> Outcome;

    /// What is known of libtorch on this machine.
    fn facts(&self) -> Vec<Fact>;
}
