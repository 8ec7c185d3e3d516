//! The order in which the runs of a comparison are carried out.
//!
//! In: a comparison. Out: its runs, shuffled by a key that is its lock's id. Must stay true: it is a permutation, the
//! same at every time; runs that are compared (one seed and point, all arms) follow one another in an order that no
//! arm has an advantage of, so that a machine that gets slower or warmer does not favour one; with a stopping rule the
//! seeds come in the order in which they are listed.

use super::{Comparison, Run, Stop};
use crate::digest::Digest;

const TAG: &str = "canonc.run-order.v1";

impl Comparison {
    /// Every run, in the order in which they are to be carried out.
    pub fn run_order(&self) -> Vec<&Run> {
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
