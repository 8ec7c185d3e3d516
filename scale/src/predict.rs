//! Memory, bytes and seconds of a training step on stated devices.
//!
//! Bytes are exactly those of the schedule. Seconds are a model: each step of a plan takes the longer of its operations and
//! its memory traffic, each exchange its bytes over each kind of link. Nothing is measured.

use std::collections::BTreeMap;

use compiler::plan::{Plan, Precision, Sizes, TrainPlan};
use lab::experiment::{Experiment, Shard};

use crate::device::{Device, LINKS, MEMORY, PRODUCTS};
use crate::memory::{Network, Peak, heaviest};
use crate::schedule::{Action, Counts, Received, Schedule, Transfer};
use crate::shard::Shards;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// Number of ranks.
    pub ranks: u64,
    /// What they divide.
    pub shard: Shard,
    /// Ranks on a machine.
    pub local: u64,
    /// Whether gradients are added on each machine before they leave it.
    pub by_node: bool,
    /// The device of each rank.
    pub device: &'static Device,
}

/// What a step costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The peak of the rank that holds most.
    pub memory: Peak,
    /// Bytes that a rank receives: the most of any rank.
    pub received: Received,
    /// Bytes that all ranks receive.
    pub received_by_all: Received,
    /// Number of exchanges.
    pub exchanges: u64,
    /// Seconds by part.
    pub seconds: Seconds,
    /// Model operations of a step: forward and backward, attention counted causal, without recomputation.
    pub operations: f64,
    /// Tokens of a step.
    pub tokens: u64,
    /// The share of the devices' operations in bf16 or f32, as the experiment computes, if exchanges wait for
    /// computation and it for them.
    pub mfu: f64,
    /// The same if exchanges run while ranks compute, as the schedule lists them.
    pub mfu_overlapped: f64,
}

/// Seconds of a step by part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seconds {
    /// Forward and backward.
    pub compute: f64,
    /// Exchanges within machines.
    pub near: f64,
    /// Exchanges between machines.
    pub far: f64,
    /// Before the first bytes of exchanges.
    pub latency: f64,
    /// The update.
    pub update: f64,
    /// The whole step, where exchanges run one after another while ranks compute, and ranks wait as the schedule lists it.
    pub overlapped: f64,
}

impl Seconds {
    /// One part after another: exchanges wait for computation, and it for them.
    pub fn total(&self) -> f64 {
        let Seconds { compute, near, far, latency, update, overlapped: _ } = self;
        compute + near + far + latency + update
    }
}

/// The schedule of an experiment on so many ranks.
pub fn schedule(experiment: &Experiment, plans: &TrainPlan, question: &Question) -> Schedule {
    let Question { ranks, shard, local, by_node, device: _ } = *question;
    let shards = Shards::new(&experiment.arch.compiled.graph, ranks);
    let batch = &experiment.batch;
    let counts = Counts {
        micro_batches: batch.micro_batches,
        in_sequence: batch.in_sequence,
        rows: batch.sequences,
    };
    Schedule::new(shards, &plans.micro, shard, counts, by_node.then_some(local))
}

/// The sizes of a call with one micro-batch.
pub fn sizes(experiment: &Experiment) -> Sizes {
    let clamp = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    Sizes {
        batch: clamp(experiment.batch.sequences),
        time: clamp(experiment.data.seq_len),
        past: 0,
    }
}

/// What a step of the experiment costs.
pub fn predict(experiment: &Experiment, plans: &TrainPlan, question: &Question) -> Prediction {
    let Question { ranks, shard, local, by_node: _, device } = *question;
    let schedule = schedule(experiment, plans, question);
    let sizes = sizes(experiment);
    let (updates, checks) = (&experiment.updates, experiment.check_every > 0);
    let memory = heaviest(&schedule, &plans.micro, updates, sizes, checks, Network::Nccl);
    let actions = schedule.step();
    let BytesReceived { busiest, most, all } = received(&schedule, &actions, local);
    // A rank alone has nobody to exchange with.
    let exchanges = match ranks {
        1 => 0,
        _ => actions.iter().filter(|action| action.exchanges()).count() as u64,
    };
    let rate = match experiment.precision {
        Precision::Bf16 => device.bf16,
        Precision::F32 => device.f32,
    };
    let own_share = match shard {
        Shard::None => 1.0,
        Shard::Optimizer | Shard::Full => 1.0 / ranks as f64,
    };
    let micro = roofline(&plans.micro, sizes, rate, device);
    let update: f64 =
        own_share * roofline(&plans.update, sizes, device.f32, device).iter().sum::<f64>();
    let takes = |action| {
        let Received { near, far } = schedule.received(action, busiest, local);
        let links = (near as f64 / (device.near * LINKS)).max(far as f64 / (device.far * LINKS));
        if ranks == 1 { 0.0 } else { links + device.latency }
    };
    let seconds = Seconds {
        compute: schedule.rounds() as f64 * micro.iter().sum::<f64>(),
        near: most.near as f64 / (device.near * LINKS),
        far: most.far as f64 / (device.far * LINKS),
        latency: exchanges as f64 * device.latency,
        update,
        overlapped: overlapped(&actions, &micro, update, takes),
    };
    let analysis = &experiment.analysis;
    let tokens = experiment.batch.tokens_per_step;
    let operations = analysis.train_flops_per_token as f64 * tokens as f64;
    let mfu = |seconds: f64| operations / (ranks as f64 * rate * seconds);
    Prediction {
        memory,
        received: most,
        received_by_all: all,
        exchanges,
        operations,
        tokens,
        mfu: mfu(seconds.total()),
        mfu_overlapped: mfu(seconds.overlapped),
        seconds,
    }
}

/// The bytes that ranks receive.
struct BytesReceived {
    /// The rank that receives most.
    busiest: u64,
    most: Received,
    /// Of all ranks together.
    all: Received,
}

fn received(schedule: &Schedule, actions: &[Action], local: u64) -> BytesReceived {
    let (most, all) = (Received::default(), Received::default());
    let mut bytes = BytesReceived { busiest: 0, most, all };
    for rank in 0..schedule.ranks() {
        let mut received = Received::default();
        for action in actions {
            received += schedule.received(*action, rank, local);
        }
        bytes.all += received;
        if received.total() > bytes.most.total() {
            (bytes.busiest, bytes.most) = (rank, received);
        }
    }
    bytes
}

/// Seconds of each step of a plan, if it takes the longer of its operations and its memory traffic.
fn roofline(plan: &Plan, sizes: Sizes, rate: f64, device: &Device) -> Vec<f64> {
    let seconds = |step| {
        let work = plan.work(step, sizes);
        let computing = work.flops as f64 / (rate * PRODUCTS);
        computing.max(work.bytes as f64 / (device.memory * MEMORY))
    };
    plan.steps.iter().map(seconds).collect()
}

/// Seconds of these actions, if exchanges that have begun run one after another while a rank computes. `micro` has the
/// seconds of the plan's steps, and an exchange `takes` so long.
fn overlapped(
    actions: &[Action],
    micro: &[f64],
    update: f64,
    takes: impl Fn(Action) -> f64,
) -> f64 {
    // When the rank has done everything so far, and when the network is free.
    let (mut now, mut free) = (0.0f64, 0.0f64);
    let mut ends: BTreeMap<Transfer, f64> = BTreeMap::new();
    for action in actions {
        match *action {
            Action::Compute { from, to, .. } => {
                now += micro.get(from..to).unwrap_or_default().iter().sum::<f64>();
            }
            Action::Update => now += update,
            Action::Begin(transfer) => {
                free = free.max(now) + takes(*action);
                ends.insert(transfer, free);
            }
            Action::Wait(transfer) => now = now.max(ends.remove(&transfer).unwrap_or(now)),
            // The next step waits for it, not this one.
            Action::Tell => free = free.max(now) + takes(*action),
            Action::Command | Action::Losses { .. } | Action::Agree | Action::Norm => {
                free = free.max(now) + takes(*action);
                now = free;
            }
            Action::Announce | Action::Release { .. } | Action::Repeat | Action::Digest { .. } => {}
        }
    }
    now
}
