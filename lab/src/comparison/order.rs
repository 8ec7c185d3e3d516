//! The execution order of a comparison's runs: a permutation with the lock's id as key.
//!
//! Runs that are compared (one seed and point, all arms) are neighbours, and no arm is always first, so that a machine that gets
//! slower or warmer favours none. With a stopping rule, seeds run in the order in which they are listed.

use super::{Comparison, ComparisonRun, Stop};
use compiler::digest::Digest;

const TAG: &str = "canonc.run-order.v1";

impl Comparison {
    /// Every run, in execution order.
    pub fn run_order(&self) -> Vec<&ComparisonRun> {
        let id = self.id();
        let draw = |what: &str| Digest::of(TAG, &format!("{id}\n{what}\n")).to_string();
        let in_order = match self.analysis.stop {
            Stop::Fixed => false,
            Stop::Sequential { .. } => true,
        };
        let mut runs = self.runs();
        runs.sort_by_cached_key(|run| {
            let block = draw(&format!("block {} {}", run.seed, run.point));
            let within = draw(&format!("run {}", run.experiment.name));
            (if in_order { run.seed } else { 0 }, block, within)
        });
        runs
    }
}
