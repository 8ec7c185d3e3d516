//! Estimates the memory of the rank that needs most, if there are several.
//!
//! It follows from the plans and the schedule, without running anything. As in [`estimate`], the memory of libtorch and
//! of the program itself is not counted.

use compiler::plan::{Plan, Sizes};
use lab::experiment::{Device, Shard};
use records::job::{Estimate, Job, estimate};
use scale::memory::{Network, heaviest, moments};
use scale::schedule::{Exchange, Transfer};

use crate::state::schedule;

/// Bytes per element of the state.
const ELEMENT: u64 = 4;

/// Like [`estimate`], of the rank that needs most: `memory_bytes`, `host_bytes` and `state_bytes` are its own.
pub fn estimate_of_rank(job: &Job, ranks: u64, shard: Shard, node: Option<u64>) -> Estimate {
    let alone = estimate(job);
    let schedule = schedule(job, ranks, shard, node);
    let clamp = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let sizes = Sizes { batch: clamp(job.rows), time: clamp(job.seq_len), past: 0 };
    let network = match job.device {
        Device::Cpu => Network::Gloo,
        Device::Cuda => Network::Nccl,
    };
    let checks = (1..=job.steps).any(|step| job.cadence.checks_in(step));
    let peak = heaviest(&schedule, &job.plans.micro, &job.updates, sizes, checks, network);
    let bytes = |n: i128| u64::try_from(n).unwrap_or(0);
    let step = bytes(peak.held.total());
    let units = 0..schedule.shards.units().len();
    let owned = |rank| units.clone().map(|unit| schedule.shards.owned(unit, rank)).sum::<u64>();
    let total = ELEMENT * (0..ranks).map(owned).sum::<u64>();
    let part = ELEMENT * (0..ranks).map(owned).max().unwrap_or(0);
    let held = |plan: &Plan| {
        let memory = plan.memory(sizes);
        bytes(memory.inputs) + bytes(memory.peak)
    };
    let moments = (0..ranks).map(|rank| moments(&schedule, &job.updates, rank)).max().unwrap_or(0);
    // Weights are whole in an evaluation; of the last unit, all parts are still there, too.
    let (weights, gathered) = match shard {
        Shard::None | Shard::Optimizer => (total, 0),
        Shard::Full => {
            let parts = |unit| match schedule.transfer(Transfer::Weights { unit }, 0) {
                Some(Exchange::AllGather { each, .. }) => ELEMENT * each * (1 + 2 * ranks),
                Some(Exchange::AllToAll { .. } | Exchange::Broadcast { .. }) | None => 0,
            };
            (part, part + total + units.clone().map(parts).max().unwrap_or(0))
        }
    };
    let own_weights = if gathered > 0 { part } else { 0 };
    let evaluation = moments + own_weights + held(&job.evaluation);
    let most = step.max(evaluation).max(moments + gathered);
    Estimate {
        state_bytes: weights + moments,
        memory_bytes: most,
        host_bytes: match job.device {
            Device::Cpu => most,
            Device::Cuda => alone.host_bytes,
        },
        ..alone
    }
}
