//! `canonc run --dry-run`: memory, disk and time of a run.

use std::path::Path;

use lab::experiment::{Device, Experiment};
use records::job::{Estimate, Job, estimate, fits};
use records::platform::{memory_limit, peak_memory};
use records::progress::{bytes, rounded, span};
use records::run::Paths;
use runtime::execute::Machine;
use runtime::train::{Timing, TimingMethod, estimate_of_rank, time};

use super::epochs;
use cli::commands::run::RunArgs;
use cli::fail::{Exit, Failure, Outcome, shown};
use cli::forecast::{MemorySource, RunEstimate, RunState, Timed};
use cli::output;

/// Memory that the plan does not count (thread arenas, code pages), measured.
const UNPLANNED_BYTES: u64 = 8 << 20;

/// An evaluation's share of the time that training takes for the same tokens: forward, of forward and backward.
const FORWARD_SHARE: f64 = 1.0 / 3.0;

/// Times a step and shows what the run takes. Fails if the run does not fit into memory.
pub(super) fn show(
    experiment: &Experiment,
    folder: &Path,
    job: &mut Job,
    machine: Machine,
    ranks: Option<u32>,
    args: &RunArgs,
) -> Outcome {
    let flops =
        experiment.analysis.train_flops_per_token as f64 * experiment.batch.tokens_per_step as f64;
    let timing = time(job, machine, flops)?;
    let ranks = ranks.filter(|ranks| *ranks > 1);
    let needed = match ranks {
        None => estimate(job),
        Some(ranks) => {
            let platform = &experiment.platform;
            let local = u64::from(ranks);
            let node = platform.devices_per_node.map(u64::from);
            let node = node.or_else(|| args.by_node.then_some(local));
            estimate_of_rank(job, local, platform.shard, node)
        }
    };
    let fits = fits(&needed, memory_limit().as_ref()).map_err(Failure::from);
    let estimate = run_estimate(experiment, folder, job, timing, ranks, &needed);
    if args.json {
        output::json(&estimate.document())?;
        return fits.map(|()| Exit::Fine);
    }
    let epochs = match &needed.epochs {
        None => vec!["generated, never repeated".to_owned()],
        Some(sources) => sources.iter().map(epochs).collect(),
    };
    output::data(&text(experiment, &estimate, epochs))?;
    fits.map(|()| Exit::Fine)
}

fn run_estimate(
    experiment: &Experiment,
    folder: &Path,
    job: &Job,
    timing: Timing,
    ranks: Option<u32>,
    needed: &Estimate,
) -> RunEstimate {
    let on_cpu = experiment.platform.device == Device::Cpu;
    // The timed step left its peak behind; the rest is from the plans.
    let peak = peak_memory().filter(|_| on_cpu && timing.how == TimingMethod::Run);
    let (memory_bytes, memory_from) = match peak {
        Some(peak) => {
            let unplanned = if ranks.is_some() { 0 } else { UNPLANNED_BYTES };
            let with_step = peak.saturating_add(needed.memory_bytes + unplanned);
            (with_step.saturating_sub(needed.step_bytes), MemorySource::Measured)
        }
        None => (needed.memory_bytes, MemorySource::Plan),
    };
    let token_seconds = timing.step_seconds / experiment.batch.tokens_per_step.max(1) as f64;
    let training_seconds = timing.step_seconds * experiment.budget.steps as f64;
    let evaluation_seconds = FORWARD_SHARE * token_seconds * needed.evaluation_tokens as f64;
    RunEstimate {
        name: experiment.name.clone(),
        lock: experiment.id().to_string(),
        folder: shown(folder),
        state: match (Paths::new(folder).attestation(), Paths::new(folder).lock()) {
            (attestation, _) if attestation.exists() => RunState::Finished,
            (_, lock) if lock.exists() => RunState::Begun,
            (_, _) => RunState::New,
        },
        device: if on_cpu { "cpu" } else { "cuda" }.to_owned(),
        ranks,
        parameters: needed.parameters,
        steps: experiment.budget.steps,
        tokens: needed.tokens,
        memory_bytes,
        memory_from,
        state_bytes: needed.state_bytes,
        disk_bytes: needed.disk_bytes,
        step_seconds: timing.step_seconds,
        training_seconds,
        evaluation_seconds,
        written_answers: job.writing.is_some() || job.answering.is_some(),
        seconds: training_seconds + evaluation_seconds,
        timed: match timing.how {
            TimingMethod::Run => Timed::MicroBatches,
            TimingMethod::Flops => Timed::Flops,
        },
    }
}

/// The table of a dry run.
fn text(experiment: &Experiment, estimate: &RunEstimate, epochs: Vec<String>) -> String {
    let state = match estimate.state {
        RunState::New => "",
        RunState::Begun => " (begun)",
        RunState::Finished => " (finished: nothing is left to train)",
    };
    let mut rows = vec![
        ("lock", format!("{} ({})", experiment.name, experiment.id().short())),
        ("folder", format!("{}{state}", estimate.folder)),
        ("device", estimate.device.clone()),
        ("parameters", output::grouped(i128::from(estimate.parameters))),
        ("steps", output::grouped(i128::from(estimate.steps))),
        ("tokens", output::grouped(i128::from(estimate.tokens))),
    ];
    rows.extend(epochs.into_iter().map(|passes| ("epochs", passes)));
    rows.extend([
        ("memory", memory_text(estimate)),
        ("disk", format!("{} at most", bytes(estimate.disk_bytes))),
        ("time", time_text(experiment, estimate)),
    ]);
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    output::table(&rows, &[], 0)
}

fn memory_text(estimate: &RunEstimate) -> String {
    let each =
        estimate.ranks.map_or_else(String::new, |ranks| format!(" for each of {ranks} ranks"));
    let memory = format!(
        "{}{each} (weights and moments {})",
        bytes(estimate.memory_bytes),
        bytes(estimate.state_bytes)
    );
    match estimate.memory_from {
        MemorySource::Measured => {
            format!("{memory}, with libtorch; measured with a micro-batch and an update")
        }
        MemorySource::Plan => format!("{memory} by the plan, in addition to libtorch"),
    }
}

fn time_text(experiment: &Experiment, estimate: &RunEstimate) -> String {
    let RunEstimate { ranks, timed, step_seconds, seconds, .. } = estimate;
    let (least, how) = match timed {
        Timed::MicroBatches if ranks.is_some() => {
            ("", "in one process, from micro-batches timed just now")
        }
        Timed::MicroBatches => ("", "from micro-batches timed just now"),
        Timed::Flops => {
            ("at least ", "from FLOPs and the speed of a matrix product, timed just now")
        }
    };
    let speed = rounded(experiment.batch.tokens_per_step as f64 / step_seconds.max(1e-9));
    let evaluations = span(estimate.evaluation_seconds);
    let evaluations = match estimate.written_answers {
        false => format!("{evaluations} of it for evaluations"),
        true => format!("{evaluations} of it for evaluations, without the answers that they write"),
    };
    format!(
        "{least}{} ({} a step, {speed} tok/s; {evaluations}), {how}",
        span(*seconds),
        span(*step_seconds)
    )
}
