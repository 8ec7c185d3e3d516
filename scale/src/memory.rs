//! The memory of one rank in a training step.
//!
//! In: a schedule, the plan of a micro-batch. Out: the most bytes that a rank holds at once, by what holds them. Must stay
//! true: counts follow the actions in order, with the buffers of each exchange; libtorch, the program and what the
//! network library takes for itself are not in it.

use compiler::plan::{Input, Output, Plan, Sizes};
use lab::experiment::Shard;

use crate::schedule::{Action, Exchange, Schedule, Way};

/// Bytes per token of a window: an input and a target.
const TOKEN: i128 = 16;

/// Bytes by what holds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Weights that stay, and copies of them in bf16.
    pub weights: i128,
    /// AdamW's moments.
    pub moments: i128,
    /// Parameters of other ranks, while a segment needs them.
    pub gathered: i128,
    /// Activations and what kernels take for themselves.
    pub values: i128,
    /// Gradients that are not sent yet, or whole again.
    pub gradients: i128,
    /// Sums of gradients that this rank owns.
    pub sums: i128,
    /// Buffers of the exchange that is under way.
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

/// The moment at which a rank holds most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// What holds how much then.
    pub held: Held,
    /// What the ranks do then.
    pub action: Action,
}

/// The peak of a rank. `micro` is the plan of the schedule; with `checks`, some steps are checked by neighbours.
pub fn peak(schedule: &Schedule, micro: &Plan, sizes: Sizes, rank: u64, checks: bool) -> Peak {
    let mut walk = Walk::new(schedule, micro, sizes, rank);
    let actions = if checks { schedule.checked_step() } else { schedule.step() };
    for action in actions {
        walk.act(action);
    }
    walk.peak
}

struct Walk<'a> {
    schedule: &'a Schedule,
    rank: u64,
    /// By step of the plan, all bytes that it holds.
    live: Vec<i128>,
    /// Gradients by the step that makes them: the unit, and bytes.
    made: Vec<(usize, usize, i128)>,
    /// Bytes of gradients made so far, sent or not.
    ever: i128,
    held: Held,
    peak: Peak,
}

impl Walk<'_> {
    fn new<'a>(schedule: &'a Schedule, micro: &Plan, sizes: Sizes, rank: u64) -> Walk<'a> {
        let shards = &schedule.shards;
        let all = |rank: Option<u64>| -> i128 {
            let units = 0..shards.units().len();
            let of = |unit| rank.map_or(shards.elements(unit), |rank| shards.owned(unit, rank));
            4 * i128::from(units.map(of).sum::<u64>())
        };
        let (whole, own) = (all(None), all(Some(rank)));
        let rounded = micro.inputs.iter().filter(|(input, _)| matches!(input, Input::Rounded(_)));
        let rounded: i128 = rounded.map(|(_, id)| micro.bytes(*id, sizes)).sum();
        let (weights, moments) = match schedule.shard {
            Shard::None => (whole + rounded, 2 * whole),
            Shard::Optimizer => (whole + rounded, 2 * own),
            Shard::Full => (own, 2 * own),
        };
        let tokens = i128::from(sizes.batch) * i128::from(sizes.time);
        let windows = i128::from(schedule.rounds()) * tokens * TOKEN;
        let step_of = |id| micro.steps.iter().position(|step| step.outputs.contains(id));
        let gradients = micro.outputs.iter().filter_map(|(output, id)| match output {
            Output::Gradient(param) => {
                let unit = shards.unit_of(param.0 as usize);
                Some((step_of(id).unwrap_or(0), unit, micro.bytes(*id, sizes)))
            }
            Output::Loss
            | Output::Counted
            | Output::Logits
            | Output::Nll
            | Output::Argmax
            | Output::State(..)
            | Output::GradNorm
            | Output::Param(_)
            | Output::FirstMoment(_)
            | Output::SecondMoment(_) => None,
        });
        let held = Held { weights, moments, windows, ..Held::default() };
        Walk {
            schedule,
            rank,
            live: micro.live(sizes),
            made: gradients.collect(),
            ever: 0,
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
            | Action::Losses { .. }
            | Action::Norm
            | Action::Repeat
            | Action::Agree => {}
            Action::Digest { unit } => self.send(unit),
            Action::Gather { segment, dtype } => {
                let Some(segment) = self.schedule.timeline.segments.get(segment) else { return };
                let params = segment.params.iter().filter(|(_, known)| *known == dtype);
                let elements: u64 = params
                    .map(|(param, _)| {
                        let of = |rank| self.schedule.shards.length(*param, rank);
                        (0..self.schedule.ranks()).map(of).sum::<u64>()
                    })
                    .sum();
                self.gather(action, i128::from(elements) * i128::from(dtype.bytes()));
                self.held.gathered += i128::from(elements) * i128::from(dtype.bytes());
                self.note(action);
            }
            Action::Release { segment } => {
                let Some(segment) = self.schedule.timeline.segments.get(segment) else { return };
                for (param, dtype) in &segment.params {
                    let of = |rank| self.schedule.shards.length(*param, rank);
                    let elements: u64 = (0..self.schedule.ranks()).map(of).sum();
                    self.held.gathered -= i128::from(elements) * i128::from(dtype.bytes());
                }
            }
            Action::Compute { round, from, to } => self.compute(action, round, from, to),
            Action::Scatter { round, unit, way } => self.scatter(action, round, unit, way),
            Action::Sums { unit } => {
                let bytes = 4 * i128::from(self.schedule.shards.elements(unit));
                self.gather(action, bytes);
                self.held.gradients += bytes;
            }
            Action::Weights { unit } => {
                let bytes = 4 * i128::from(self.schedule.shards.elements(unit));
                self.gather(action, bytes);
            }
            Action::Update => {
                self.note(action);
                self.held.gradients = 0;
                self.held.sums = 0;
            }
        }
    }

    /// An exchange of padded parts, from which whole tensors of these bytes are copied.
    fn gather(&mut self, action: Action, whole: i128) {
        let Some(Exchange::AllGather { each, dtype }) = self.schedule.exchange(action, self.rank)
        else {
            return;
        };
        let part = i128::from(each) * i128::from(dtype.bytes());
        self.held.buffers = part * (1 + i128::from(self.schedule.ranks())) + whole;
        self.note(action);
        self.held.buffers = 0;
    }

    fn compute(&mut self, action: Action, round: u64, from: usize, to: usize) {
        if self.rank >= self.schedule.active(round) {
            return;
        }
        if from == 0 {
            self.ever = 0;
        }
        for step in from..to {
            let made = self.made.iter().filter(|(at, ..)| *at == step);
            let made: i128 = made.map(|(.., bytes)| bytes).sum();
            self.ever += made;
            self.held.gradients += made;
            self.held.values = self.live.get(step).copied().unwrap_or(0) - self.ever;
            self.note(action);
        }
        if to == self.schedule.timeline.steps {
            self.held.values = 0;
        }
    }

    fn scatter(&mut self, action: Action, round: u64, unit: usize, way: Way) {
        let Some(Exchange::AllToAll { sent, received, dtype }) =
            self.schedule.exchange(action, self.rank)
        else {
            return;
        };
        let bytes =
            |counts: &[u64]| i128::from(counts.iter().sum::<u64>()) * i128::from(dtype.bytes());
        self.held.buffers = bytes(&sent) + bytes(&received);
        self.note(action);
        self.held.buffers = 0;
        match way {
            // What was received is added before it is sent on.
            Way::Inside => return self.send(unit),
            Way::Flat => self.send(unit),
            Way::Across => {}
        }
        let before = round.checked_sub(1).map_or(0, |before| self.waiting(before));
        let own = 4 * i128::from(self.schedule.shards.owned(unit, self.rank));
        self.held.sums += own * (i128::from(self.waiting(round)) - i128::from(before));
    }

    /// The gradients of a unit are no longer held.
    fn send(&mut self, unit: usize) {
        let of = self.made.iter().filter(|(_, of, _)| *of == unit);
        let gradients: i128 = of.map(|(.., bytes)| bytes).sum();
        self.held.gradients -= gradients.min(self.held.gradients);
    }

    /// Sums that wait after a round.
    fn waiting(&self, round: u64) -> u64 {
        self.schedule.order().waiting((round + 1) * self.schedule.ranks())
    }
}
