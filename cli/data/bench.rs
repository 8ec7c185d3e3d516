//! Placeholder.
use crate::args::BenchTextArgs;
use crate::fail::{Exit, Outcome};

pub(super) fn bench(_: &BenchTextArgs) -> Outcome {
    Ok(Exit::Fine)
}
