//! The most bytes that one rank holds at once in a training step, by what holds them.
//!
//! Counts include the buffers of each exchange and the copies that Gloo makes; libtorch, the program and what NCCL takes for
//! itself are not in them.

use std::collections::BTreeMap;

use compiler::plan::{Input, Output, ParamUpdate, Plan, Sizes, UpdateRule};
use lab::experiment::Shard;

use crate::schedule::{Action, Exchange, Schedule, Transfer, Way};

/// Bytes per token of a window: an input and a target.
const TOKEN: i128 = 16;

/// Bytes by what holds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Weights that stay, and copies of them in bf16.
    pub weights: i128,
    /// The optimizer's moments.
    pub moments: i128,
    /// Parameters of other ranks, while a segment needs them.
    pub gathered: i128,
    /// Activations and what kernels take for themselves.
    pub values: i128,
    /// Gradients that are not sent yet, or whole again.
    pub gradients: i128,
    /// Sums of gradients that this rank owns.
    pub sums: i128,
    /// Buffers of the exchanges that are under way.
    pub buffers: i128,
    /// Windows of the step.
    pub windows: i128,
}

impl Held {
    /// All bytes.
    pub fn total(&self) -> i128 {
        let Held { weights, moments, gathered, values, gradients, sums, buffers, windows } = self;
        weights + moments + gathered + values + gradients + sums + buffers + windows
    }
}

/// The library that exchanges tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// On CPUs. It gathers into a tensor of its own, from which it copies.
    Gloo,
    /// On GPUs.
    Nccl,
}

/// The moment at which a rank holds most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// What holds how much then.
    pub held: Held,
    /// What the ranks do then.
    pub action: Action,
}

/// The peak of the rank that holds most: one with most elements, or one that computes in every round.
pub fn heaviest(
    schedule: &Schedule,
    micro: &Plan,
    updates: &[ParamUpdate],
    sizes: Sizes,
    checks: bool,
    network: Network,
) -> Peak {
    let owned = |rank: &u64| {
        let units = 0..schedule.shards.units().len();
        units.map(|unit| schedule.shards.owned(unit, *rank)).sum::<u64>()
    };
    let largest = (0..schedule.ranks()).max_by_key(owned).unwrap_or(0);
    let peak_of = |rank| peak(schedule, micro, updates, sizes, rank, checks, network);
    let (first, other) = (peak_of(0), peak_of(largest));
    if other.held.total() > first.held.total() { other } else { first }
}

/// The bytes of the moments that a rank keeps. `updates` says how each parameter is updated.
pub fn moments(schedule: &Schedule, updates: &[ParamUpdate], rank: u64) -> u64 {
    let shards = &schedule.shards;
    let bytes_of = |param: usize| {
        let elements = match schedule.shard {
            Shard::None => (0..schedule.ranks()).map(|rank| shards.length(param, rank)).sum(),
            Shard::Optimizer | Shard::Full => shards.length(param, rank),
        };
        4 * elements * ParamUpdate::for_param(updates, param).moments() as u64
    };
    (0..shards.params()).map(bytes_of).sum()
}

/// The peak of a rank. `micro` is the plan of the schedule, `updates` says how each parameter is updated; with `checks`,
/// some steps are checked by neighbours.
pub fn peak(
    schedule: &Schedule,
    micro: &Plan,
    updates: &[ParamUpdate],
    sizes: Sizes,
    rank: u64,
    checks: bool,
    network: Network,
) -> Peak {
    let mut walk = Walk::new(schedule, micro, updates, sizes, rank, network);
    let actions = if checks { schedule.checked_step() } else { schedule.step() };
    for action in actions {
        walk.act(action);
    }
    walk.peak
}

/// Bytes of the weights that a rank keeps, with their copies in bf16.
fn weights(
    schedule: &Schedule,
    micro: &Plan,
    updates: &[ParamUpdate],
    sizes: Sizes,
    rank: u64,
    network: Network,
) -> i128 {
    let shards = &schedule.shards;
    let bytes = |elements: &dyn Fn(usize) -> u64| {
        4 * i128::from((0..shards.units().len()).map(elements).sum::<u64>())
    };
    match schedule.shard {
        Shard::None | Shard::Optimizer => {
            let rounded =
                micro.inputs.iter().filter(|(input, _)| matches!(input, Input::Rounded(_)));
            let rounded: i128 = rounded.map(|(_, id)| micro.bytes(*id, sizes)).sum();
            bytes(&|unit| shards.elements(unit)) + rounded
        }
        Shard::Full => {
            // On GPUs AdamW writes what a rank owns in bf16 too.
            let pieces = micro.inputs.iter().map(|(input, _)| match (input, network) {
                (Input::Rounded(param), Network::Nccl)
                    if ParamUpdate::for_param(updates, param.0 as usize).rule
                        == UpdateRule::AdamW =>
                {
                    2 * i128::from(shards.length(param.0 as usize, rank))
                }
                (_, _) => 0,
            });
            bytes(&|unit| shards.owned(unit, rank)) + pieces.sum::<i128>()
        }
    }
}

/// Gradients of a micro-batch: the step that makes each, its unit, and bytes.
fn gradients(schedule: &Schedule, micro: &Plan, sizes: Sizes) -> Vec<(usize, usize, i128)> {
    let step_of = |id| micro.steps.iter().position(|step| step.outputs.contains(id));
    let gradients = micro.outputs.iter().filter_map(|(output, id)| match output {
        Output::Gradient(param) => {
            let unit = schedule.shards.unit_of(param.0 as usize);
            Some((step_of(id).unwrap_or(0), unit, micro.bytes(*id, sizes)))
        }
        Output::Loss
        | Output::Counted
        | Output::Term(_)
        | Output::Logits
        | Output::Nll
        | Output::Argmax
        | Output::State(..)
        | Output::GradNorm
        | Output::Param(_)
        | Output::FirstMoment(_)
        | Output::SecondMoment(_) => None,
    });
    gradients.collect()
}

struct Walk<'a> {
    schedule: &'a Schedule,
    rank: u64,
    network: Network,
    /// By step of the plan, all bytes that it holds.
    live: Vec<i128>,
    /// Gradients: the step that makes each, its unit, and bytes.
    gradients: Vec<(usize, usize, i128)>,
    /// Bytes of gradients made so far, sent or not.
    ever: i128,
    /// Bytes of the buffers of what is under way.
    under_way: BTreeMap<Transfer, i128>,
    held: Held,
    peak: Peak,
}

impl Walk<'_> {
    fn new<'a>(
        schedule: &'a Schedule,
        micro: &Plan,
        updates: &[ParamUpdate],
        sizes: Sizes,
        rank: u64,
        network: Network,
    ) -> Walk<'a> {
        let weights = weights(schedule, micro, updates, sizes, rank, network);
        let moments = i128::from(moments(schedule, updates, rank));
        let tokens = i128::from(sizes.batch) * i128::from(sizes.time);
        let windows = i128::from(schedule.rounds()) * tokens * TOKEN;
        let held = Held { weights, moments, windows, ..Held::default() };
        Walk {
            schedule,
            rank,
            network,
            live: micro.live(sizes),
            gradients: gradients(schedule, micro, sizes),
            ever: 0,
            under_way: BTreeMap::new(),
            held,
            peak: Peak { held, action: Action::Command },
        }
    }

    fn note(&mut self, action: Action) {
        if self.held.total() > self.peak.held.total() {
            self.peak = Peak { held: self.held, action };
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Command
            | Action::Announce
            | Action::Tell
            | Action::Losses { .. }
            | Action::Norm
            | Action::Repeat
            | Action::Agree => {}
            Action::Digest { unit } => self.send(unit),
            Action::Begin(transfer) => self.begin(transfer),
            Action::Wait(transfer) => self.wait(transfer),
            Action::Release { segment } => {
                let Some(segment) = self.schedule.timeline.segments.get(segment) else { return };
                for (param, dtype) in &segment.params {
                    self.held.gathered -= self.elements(*param) * i128::from(dtype.bytes());
                }
            }
            Action::Compute { round, from, to } => self.compute(action, round, from, to),
            Action::Update => {
                self.note(action);
                self.held.gradients = 0;
                self.held.sums = 0;
            }
        }
    }

    /// Elements of a parameter.
    fn elements(&self, param: usize) -> i128 {
        let ranks = 0..self.schedule.ranks();
        i128::from(ranks.map(|rank| self.schedule.shards.length(param, rank)).sum::<u64>())
    }

    /// The buffers of a transfer that is under way have this size.
    fn buffer(&mut self, transfer: Transfer, bytes: i128) {
        self.held.buffers += bytes - self.under_way.insert(transfer, bytes).unwrap_or(0);
    }

    /// A transfer has no buffers any more.
    fn end(&mut self, transfer: Transfer) {
        self.held.buffers -= self.under_way.remove(&transfer).unwrap_or(0);
    }

    fn begin(&mut self, transfer: Transfer) {
        let (sent, received) = self.sizes(transfer);
        let copied = match (transfer, self.network) {
            (Transfer::Scatter { .. }, _) | (_, Network::Nccl) => 0,
            (_, Network::Gloo) => received,
        };
        self.buffer(transfer, sent + received + copied);
        self.note(Action::Begin(transfer));
        match transfer {
            Transfer::Scatter { unit, way: Way::Flat | Way::Inside, .. } => self.send(unit),
            Transfer::Scatter { round, unit, way: Way::Across } => {
                self.end(Transfer::Scatter { round, unit, way: Way::Inside });
            }
            Transfer::Sums { unit } => self.held.sums -= self.owned(unit),
            Transfer::Gather { .. } | Transfer::Weights { .. } => {}
        }
    }

    fn wait(&mut self, transfer: Transfer) {
        let (_, received) = self.sizes(transfer);
        self.buffer(transfer, received);
        match transfer {
            // Whole tensors are copied from the parts of all ranks.
            Transfer::Gather { segment, dtype } => {
                let segment = self.schedule.timeline.segments.get(segment);
                let params = segment.into_iter().flat_map(|segment| &segment.params);
                let elements: i128 = params
                    .filter(|(_, known)| *known == dtype)
                    .map(|(param, _)| self.elements(*param))
                    .sum();
                self.held.gathered += elements * i128::from(dtype.bytes());
                self.note(Action::Wait(transfer));
            }
            Transfer::Sums { unit } => {
                self.held.gradients += 4 * i128::from(self.schedule.shards.elements(unit));
                self.note(Action::Wait(transfer));
            }
            Transfer::Weights { unit } => {
                let gathered = 4 * i128::from(self.schedule.shards.elements(unit));
                self.held.gathered += gathered;
                self.note(Action::Wait(transfer));
                self.held.gathered -= gathered;
            }
            // What was received is added where it is, and sent on.
            Transfer::Scatter { way: Way::Inside, .. } => return,
            Transfer::Scatter { round, unit, way: Way::Flat | Way::Across } => {
                let before = round.checked_sub(1).map_or(0, |before| self.waiting(before));
                let more = i128::from(self.waiting(round)) - i128::from(before);
                self.held.sums += self.owned(unit) * more;
                self.note(Action::Wait(transfer));
            }
        }
        self.end(transfer);
    }

    /// Bytes of a unit that this rank owns.
    fn owned(&self, unit: usize) -> i128 {
        4 * i128::from(self.schedule.shards.owned(unit, self.rank))
    }

    /// Bytes of the buffers that are sent from and received into.
    fn sizes(&self, transfer: Transfer) -> (i128, i128) {
        let bytes = |elements: u64, exchange: &Exchange| {
            i128::from(elements) * i128::from(exchange.dtype().bytes())
        };
        match self.schedule.transfer(transfer, self.rank) {
            Some(exchange @ Exchange::AllGather { each, .. }) => {
                (bytes(each, &exchange), bytes(each * self.schedule.ranks(), &exchange))
            }
            Some(ref exchange @ Exchange::AllToAll { ref sent, ref received, .. }) => {
                (bytes(sent.iter().sum(), exchange), bytes(received.iter().sum(), exchange))
            }
            Some(Exchange::Broadcast { .. }) | None => (0, 0),
        }
    }

    fn compute(&mut self, action: Action, round: u64, from: usize, to: usize) {
        if self.rank >= self.schedule.active(round) {
            return;
        }
        if from == 0 {
            self.ever = 0;
        }
        for step in from..to {
            let produced = self.gradients.iter().filter(|(at, ..)| *at == step);
            let produced: i128 = produced.map(|(.., bytes)| bytes).sum();
            self.ever += produced;
            self.held.gradients += produced;
            self.held.values = self.live.get(step).copied().unwrap_or(0) - self.ever;
            self.note(action);
        }
        if to == self.schedule.timeline.steps {
            self.held.values = 0;
        }
    }

    /// The gradients of a unit are no longer held.
    fn send(&mut self, unit: usize) {
        let gradients_of = self.gradients.iter().filter(|(_, known, _)| *known == unit);
        let gradients: i128 = gradients_of.map(|(.., bytes)| bytes).sum();
        self.held.gradients -= gradients.min(self.held.gradients);
    }

    /// Sums that wait after a round.
    fn waiting(&self, round: u64) -> u64 {
        self.schedule.order().waiting((round + 1) * self.schedule.ranks())
    }
}
