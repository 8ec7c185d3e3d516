//! The memory, disk space and passes over documents that a job needs, and whether it fits.
//!
//! Estimates come from the plan's own sizes, without running or allocating. They exclude libtorch and the program, so a job
//! that does not fit by this estimate surely does not fit.

use compiler::plan::Sizes;
use dsl::Problem;

use lab::experiment::Device;

use super::{Job, evaluations};
use crate::platform::MemoryLimit;
use crate::progress;
use data::Windows;
use data::text::SourceEpochs;

/// The resources a run needs, except time.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Number of parameters.
    pub parameters: u64,
    /// Bytes of the weights and moments.
    pub state_bytes: u64,
    /// Peak bytes on the device in a step or an evaluation, including the state.
    pub memory_bytes: u64,
    /// The part of `memory_bytes` that one micro-batch, its update and the windows of a step need.
    pub step_bytes: u64,
    /// The part of `memory_bytes` in this process: all on a CPU, else initial weights and windows.
    pub host_bytes: u64,
    /// Peak size of the folder, when a checkpoint is written in addition to those kept.
    pub disk_bytes: u64,
    /// Training tokens.
    pub tokens: u64,
    /// Tokens of all evaluations' windows; answers that a model writes are not among them.
    pub evaluation_tokens: u64,
    /// How often each source's training documents are read; `None` for generated data.
    pub epochs: Option<Vec<SourceEpochs>>,
}

/// Bytes per token of a window: an input and a target.
const TOKEN_BYTES: u64 = 16;

/// Number of prompt tokens read at once.
const WRITTEN_TOGETHER: i64 = 256;

/// Bytes per line of metrics, events and timings.
const LINE_BYTES: u64 = 400;

/// Estimates a job's memory and disk use from its plans; runs nothing.
pub fn estimate(job: &Job) -> Estimate {
    let slots = job.slots();
    let parameters: u64 = slots.iter().map(|slot| slot.elements() as u64).sum();
    let kept =
        slots.iter().map(|slot| (slot.elements() as u64).saturating_mul(slot.moments as u64));
    let moments = kept.fold(0u64, u64::saturating_add).saturating_mul(4);
    let weights = parameters.saturating_mul(4);
    let sizes = Sizes { batch: clamp(job.rows), time: clamp(job.seq_len), past: 0 };
    let bytes = |n: i128| u64::try_from(n).unwrap_or(u64::MAX);
    let held = |plan: &compiler::plan::Plan| {
        let memory = plan.memory(sizes);
        bytes(memory.inputs).saturating_add(bytes(memory.peak))
    };
    // In order of arrival, at most one sum of gradients waits at each level of the tree.
    let waiting = u64::from(job.micro_batches.checked_ilog2().unwrap_or(0));
    let micro = held(&job.plans.micro);
    let step = micro.saturating_add(weights.saturating_mul(waiting));
    // Writing answers needs a state for whole samples, with a piece of the prompt at a time; laws need whole windows.
    let writing = job.writing.as_ref().map_or(0, |plan| {
        let (window, piece) = (clamp(job.seq_len), clamp(job.seq_len).min(WRITTEN_TOGETHER));
        let (time, past) = if job.metrics.kl { (window, 0) } else { (piece, window - piece) };
        let memory = plan.memory(Sizes { time, past, ..sizes });
        bytes(memory.inputs).saturating_add(bytes(memory.peak))
    });
    let computing = moments.saturating_add(step.max(held(&job.evaluation)).max(writing));
    let update = held(&job.plans.update);
    let on_device = computing.max(update);
    let state = weights.saturating_add(moments);
    let step_tokens = job.micro_batches.saturating_mul(job.rows).saturating_mul(job.seq_len);
    let tokens = job.steps.saturating_mul(step_tokens);
    // All windows of a step exist before its first micro-batch runs.
    let windows = step_tokens.saturating_mul(TOKEN_BYTES);
    let tried = moments.saturating_add(micro).max(update);
    let (memory, tried, host) = match job.device {
        Device::Cpu => {
            let training = on_device.saturating_add(windows);
            (training, tried.saturating_add(windows), training)
        }
        Device::Cuda => (on_device, tried, weights.saturating_add(windows)),
    };
    Estimate {
        parameters,
        state_bytes: state,
        memory_bytes: memory,
        step_bytes: tried,
        host_bytes: host,
        disk_bytes: state
            // One of a stop, and one that is being written.
            .saturating_mul(job.cadence.keep.count as u64 + 2)
            .saturating_add(job.steps.saturating_mul(LINE_BYTES)),
        tokens,
        evaluation_tokens: evaluations(job.cadence.evaluation, job.steps)
            .saturating_mul(job.evaluation_windows)
            .saturating_mul(job.seq_len),
        epochs: match &job.train {
            Windows::Task(_) => None,
            Windows::Text(windows) => Some(windows.epochs(tokens)),
        },
    }
}

/// Refuses a job that needs more memory than this process can get, before allocating any.
pub fn fits(estimate: &Estimate, limit: Option<&MemoryLimit>) -> Result<(), Problem> {
    let Some(MemoryLimit { bytes, by }) = limit else { return Ok(()) };
    let Estimate { host_bytes, state_bytes, .. } = estimate;
    if host_bytes <= bytes {
        return Ok(());
    }
    let help = if state_bytes > bytes {
        "use a smaller arch, or a machine with more memory"
    } else {
        "lower batch.sequences and raise batch.micro_batches by as much, lower data.seq_len, or set \
         platform.recompute = \"layers\" in the recipe and build it again; or use a machine with more memory"
    };
    Err(Problem::machine(
        format!(
            "the run needs {} of memory (weights and moments {}), but {by} {}",
            progress::bytes(*host_bytes),
            progress::bytes(*state_bytes),
            progress::bytes(*bytes)
        ),
        help,
    ))
}

fn clamp(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_larger_than_memory_does_not_fit() {
        let estimate = |host_bytes, state_bytes| Estimate {
            parameters: 1,
            state_bytes,
            memory_bytes: host_bytes,
            step_bytes: host_bytes,
            host_bytes,
            disk_bytes: 0,
            tokens: 1,
            evaluation_tokens: 1,
            epochs: None,
        };
        let limit = MemoryLimit { bytes: 6 << 30, by: "this machine has" };
        let judged = |host, state| fits(&estimate(host, state), Some(&limit));
        assert_eq!(judged(6 << 30, 1 << 30), Ok(()));
        let error = judged(7 << 30, 1 << 30).unwrap_err();
        assert_eq!(error.kind, dsl::ProblemKind::Machine);
        assert_eq!(
            error.message,
            "the run needs 7.0 GiB of memory (weights and moments 1.0 GiB), but this machine has 6.0 GiB"
        );
        assert!(error.help.contains("batch.sequences"), "{error}");
        assert!(judged(9 << 30, 8 << 30).unwrap_err().help.contains("smaller arch"));
        assert_eq!(fits(&estimate(u64::MAX, 1), None), Ok(()));
    }
}
