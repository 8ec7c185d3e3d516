//! What scripts and processes of several ranks need.

use std::path::Path;

use lab::experiment::Experiment;

use crate::fail::{Failure, shown};

/// Refuses more ranks than a step has micro-batches.
pub fn enough_micro_batches(experiment: &Experiment, ranks: u32) -> Result<(), Failure> {
    let most = experiment.batch.micro_batches;
    if u64::from(ranks) <= most {
        return Ok(());
    }
    Err(Failure::bad_input(format!(
        "{ranks} ranks cannot share the {most} micro-batches of a step: each rank needs one"
    ))
    .help(format!("start at most {most} ranks, or lock more micro-batches of fewer sequences")))
}

/// A path as text for a script.
pub fn utf8(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| {
        Failure::bad_input(format!("`{}` is not UTF-8, which a script needs", shown(path)))
            .help("rename it")
    })
}
