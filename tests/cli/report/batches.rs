//! Arms that read the same data name the same batches, or are not compared.

use std::fs;

use cli::compared;
use cli::finished_runs::FinishedRuns;
use lab::comparison::ComparisonRun;
use lab::lock::{self, Lock};

use super::OTHER_DATA;

/// Runs of one data seed read the same batches, whatever their locks say of each other.
#[test]
fn a_comparison_of_runs_that_read_other_batches_is_refused() {
    let dir = super::compared();
    let text = fs::read_to_string(dir.path().join("lockfiles/pair.lock")).unwrap();
    let Lock::Comparison(comparison) = lock::read("pair", &text).unwrap() else { panic!("{text}") };
    let (all, root) = (comparison.runs(), dir.path().join("runs"));
    let finished = FinishedRuns::under(&root);
    let check_data = |runs: &[&ComparisonRun]| {
        let read = compared::compared(&comparison, runs, &root.join("pair"), &finished).unwrap();
        compared::same_data(runs, &read).map_err(|failure| failure.message.unwrap())
    };
    let runs: Vec<&ComparisonRun> = all.clone();
    let message = check_data(&runs).unwrap_err();
    assert!(message.contains(&format!("at step {OTHER_DATA}")), "{message}");
    let honest: Vec<&ComparisonRun> = all.iter().copied().filter(|run| run.seed != 1).collect();
    check_data(&honest).unwrap();
}
