//! In: a job. Out: what running it takes: memory, disk, passes over the documents. Must stay true: from the plan's own
//! sizes, with nothing run; kernels' scratch memory and libtorch itself are not in it, and the caller says so.

use compiler::plan::Sizes;

use super::Job;
use crate::data::Windows;

/// What a run takes, besides time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub parameters: u64,
    /// Weights and both moments.
    pub state_bytes: u64,
    /// At its highest, in a step or an evaluation; the state included.
    pub memory_bytes: u64,
    /// The folder at its largest, while a checkpoint is written beside those kept.
    pub disk_bytes: u64,
    pub tokens: u64,
    /// How often every training document is read; `None` for generated data.
    pub epochs: Option<f64>,
}

/// Of one line of metrics, events and timings.
const LINE_BYTES: u64 = 400;

pub fn estimate(job: &Job) -> Estimate {
    let parameters: u64 = job.slots().iter().map(|slot| slot.elements() as u64).sum();
    let weights = parameters.saturating_mul(4);
    let sizes = Sizes { batch: clamp(job.rows), time: clamp(job.seq_len), past: 0 };
    let bytes = |n: i128| u64::try_from(n).unwrap_or(u64::MAX);
    let held = |plan: &compiler::plan::Plan| {
        let memory = plan.memory(sizes);
        bytes(memory.inputs).saturating_add(bytes(memory.peak))
    };
    // In order of arrival at most one sum of gradients waits at each level of the tree.
    let waiting = u64::from(job.micro_batches.checked_ilog2().unwrap_or(0));
    let moments = weights.saturating_mul(2);
    let step = held(&job.plans.micro).saturating_add(weights.saturating_mul(waiting));
    let memory = moments.saturating_add(step.max(held(&job.evaluation)));
    let state = weights.saturating_mul(3);
    let tokens = job
        .steps
        .saturating_mul(job.micro_batches)
        .saturating_mul(job.rows)
        .saturating_mul(job.seq_len);
    Estimate {
        parameters,
        state_bytes: state,
        memory_bytes: memory,
        disk_bytes: state
            .saturating_mul(job.cadence.keep as u64 + 1)
            .saturating_add(job.steps.saturating_mul(LINE_BYTES)),
        tokens,
        epochs: match &job.train {
            Windows::Task(_) => None,
            Windows::Text(windows) => Some(tokens as f64 / windows.tokens().max(1) as f64),
        },
    }
}

fn clamp(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
