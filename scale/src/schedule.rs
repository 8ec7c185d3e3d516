//! The exchanges of one training step, as a list of actions that is the same on every rank.
//!
//! Ranks that follow the list never wait for one another in a circle. Micro-batch i is computed by rank i mod R.

mod order;

use compiler::plan::{DType, Plan};
use lab::experiment::Shard;

use crate::reduce::{Node, Order};
use crate::shard::{BLOCK, Shards};
use crate::timeline::{Segment, Timeline};

/// i64 numbers in the digest of a window.
pub const DIGEST: u64 = 4;
/// i64 numbers of a command of rank 0.
pub const COMMAND: u64 = 4;

/// How a run's ranks divide its steps.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// What each rank owns.
    pub shards: Shards,
    /// What ranks hold only a part of.
    pub shard: Shard,
    /// Micro-batches in a step.
    pub micro_batches: u64,
    /// Micro-batches that are added in sequence, before the tree.
    pub in_sequence: u64,
    /// Windows in a micro-batch.
    pub rows: u64,
    /// Ranks on each machine, if gradients are added on each machine before they leave it.
    pub node: Option<u64>,
    /// When parameters are needed and gradients complete.
    pub timeline: Timeline,
    /// By round, then machine: the number of sums that the machine's micro-batches become.
    parts: Vec<Vec<u64>>,
    padded: Padded,
}

/// The most that any rank has of something: what each sends where all send equally much.
#[derive(Clone, Debug, Default)]
struct Padded {
    /// Elements of a unit.
    units: Vec<u64>,
    /// Elements of a segment in f32, and in bf16.
    segments: Vec<(u64, u64)>,
    /// Blocks of gradients.
    blocks: u64,
}

/// How many of what a step has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Micro-batches in a step.
    pub micro_batches: u64,
    /// Micro-batches that are added in sequence, before the tree.
    pub in_sequence: u64,
    /// Windows in a micro-batch.
    pub rows: u64,
}

/// One thing that all ranks do in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Rank 0 tells the others which step is next.
    Command,
    /// All know what each told of its micro-batches in the step before, or tell it now in a process's first step.
    Announce,
    /// All begin to tell what they know of their micro-batches of the next step: counted targets and digests of windows.
    /// Nobody waits for it in this step.
    Tell,
    /// An exchange begins. Ranks go on without its result, until they wait for it.
    Begin(Transfer),
    /// The result of an exchange that began is needed now.
    Wait(Transfer),
    /// Whole parameters of a segment are no longer needed.
    Release {
        /// An index into the timeline's segments.
        segment: usize,
    },
    /// Compute these steps of the round's micro-batch.
    Compute {
        /// Micro-batches of earlier rounds are done.
        round: u64,
        /// The first step of the plan.
        from: usize,
        /// The step after the last one.
        to: usize,
    },
    /// All tell the losses of the round's micro-batches, and how long these took.
    Losses {
        /// The round of the micro-batches.
        round: u64,
    },
    /// Begin the first micro-batch of the next rank, to check that rank.
    Repeat,
    /// Take the digests of a unit's gradients of that micro-batch.
    Digest {
        /// The unit.
        unit: usize,
    },
    /// All tell the digests of their gradients: of their own first micro-batch, and of the next rank's.
    Agree,
    /// All tell the sums of squares of the gradient blocks that they own.
    Norm,
    /// Update what this rank updates.
    Update,
}

/// An exchange of tensors, while which ranks compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transfer {
    /// All get the parameters of a segment whole: those that are exchanged in this dtype.
    Gather {
        /// An index into the timeline's segments.
        segment: usize,
        /// The dtype of these parameters.
        dtype: DType,
    },
    /// A unit's gradients go to their owners, which add them.
    Scatter {
        /// The round of the micro-batches.
        round: u64,
        /// The unit.
        unit: usize,
        /// Who sends to whom.
        way: Way,
    },
    /// All get the unit's sums of gradients whole.
    Sums {
        /// The unit.
        unit: usize,
    },
    /// All get the unit's new weights whole.
    Weights {
        /// The unit.
        unit: usize,
    },
}

/// Who sends gradients to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Each rank to every owner.
    Flat,
    /// Each rank to the ranks of its machine: to the local rank that an owner elsewhere also has.
    Inside,
    /// Sums over a machine's micro-batches, between equal local ranks.
    Across,
}

/// The size of an exchange for one rank, in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// Elements for and from each rank.
    AllToAll {
        /// Elements for each rank.
        sent: Vec<u64>,
        /// Elements from each rank.
        received: Vec<u64>,
        /// Their dtype.
        dtype: DType,
    },
    /// Elements of each rank, for all ranks.
    AllGather {
        /// Elements of each rank.
        each: u64,
        /// Their dtype.
        dtype: DType,
    },
    /// Elements of rank 0, for all ranks.
    Broadcast {
        /// Number of elements.
        elements: u64,
        /// Their dtype.
        dtype: DType,
    },
}

impl Schedule {
    /// The schedule of a run whose micro-batches have this plan.
    pub fn new(
        shards: Shards,
        micro: &Plan,
        shard: Shard,
        Counts { micro_batches, in_sequence, rows }: Counts,
        node: Option<u64>,
    ) -> Schedule {
        let timeline = Timeline::new(micro, &shards);
        // One machine, or machines of one rank, have nothing to add first.
        let node = node.filter(|local| {
            *local > 1 && *local < shards.ranks() && shards.ranks().is_multiple_of(*local)
        });
        let (parts, padded) = (Vec::new(), Padded::default());
        let mut schedule = Schedule {
            shards,
            shard,
            micro_batches,
            in_sequence,
            rows,
            node,
            timeline,
            parts,
            padded,
        };
        schedule.padded = schedule.pad();
        if let Some(local) = schedule.node {
            let machines = schedule.ranks() / local;
            let sums_of = |round| {
                let count = |machine| schedule.parts(round, machine).len() as u64;
                (0..machines).map(count).collect()
            };
            schedule.parts = (0..schedule.rounds()).map(sums_of).collect();
        }
        schedule
    }

    fn pad(&self) -> Padded {
        let most =
            |elements: &dyn Fn(u64) -> u64| (0..self.ranks()).map(elements).max().unwrap_or(0);
        let segment = |segment: &Segment| {
            let most_in = |dtype| most(&|rank| self.owned_in(segment, dtype, rank));
            (most_in(DType::F32), most_in(DType::Bf16))
        };
        let units = 0..self.shards.units().len();
        Padded {
            units: units.map(|unit| most(&|rank| self.shards.owned(unit, rank))).collect(),
            segments: self.timeline.segments.iter().map(segment).collect(),
            blocks: most(&|rank| self.blocks(rank)),
        }
    }

    /// The shape of the sum over micro-batches.
    pub fn order(&self) -> Order {
        Order { count: self.micro_batches, in_sequence: self.in_sequence }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u64 {
        self.shards.ranks()
    }

    /// Rounds in which each rank computes at most one micro-batch.
    pub fn rounds(&self) -> u64 {
        self.micro_batches.div_ceil(self.ranks())
    }

    /// The ranks with a micro-batch in a round: the first ones.
    pub fn active(&self, round: u64) -> u64 {
        self.ranks().min(self.micro_batches.saturating_sub(round * self.ranks()))
    }

    /// The size of an action's exchange for a rank; `None` if nothing is sent.
    pub fn exchange(&self, action: Action, rank: u64) -> Option<Exchange> {
        let gather = |each, dtype| Some(Exchange::AllGather { each, dtype });
        match action {
            Action::Command => Some(Exchange::Broadcast { elements: COMMAND, dtype: DType::I64 }),
            Action::Tell => gather(1 + self.rounds() * (1 + DIGEST * self.rows), DType::I64),
            Action::Begin(transfer) => self.transfer(transfer, rank),
            // The loss, the counted targets, the seconds that the rank computed, and whether it was asked to stop.
            Action::Losses { round: _ } => gather(4, DType::I64),
            Action::Norm => gather(self.padded.blocks, DType::I64),
            Action::Agree => gather(2 * self.shards.params() as u64, DType::I64),
            Action::Announce
            | Action::Wait(_)
            | Action::Release { .. }
            | Action::Compute { .. }
            | Action::Update
            | Action::Repeat
            | Action::Digest { .. } => None,
        }
    }

    /// The size of a transfer for a rank.
    pub fn transfer(&self, transfer: Transfer, rank: u64) -> Option<Exchange> {
        let gather = |each, dtype| Some(Exchange::AllGather { each, dtype });
        match transfer {
            Transfer::Gather { segment, dtype } => {
                let (float, rounded) = *self.padded.segments.get(segment)?;
                gather(if dtype == DType::F32 { float } else { rounded }, dtype)
            }
            Transfer::Scatter { round, unit, way } => Some(self.scattered(round, unit, way, rank)),
            Transfer::Sums { unit } | Transfer::Weights { unit } => {
                gather(self.padded.units.get(unit).copied().unwrap_or(0), DType::F32)
            }
        }
    }

    /// Elements of a segment's parameters in this dtype that a rank owns.
    pub fn owned_in(&self, segment: &Segment, dtype: DType, rank: u64) -> u64 {
        let params = segment.params.iter().filter(|(_, known)| *known == dtype);
        params.map(|(param, _)| self.shards.length(*param, rank)).sum()
    }

    /// Blocks of gradients that a rank owns.
    pub fn blocks(&self, rank: u64) -> u64 {
        (0..self.shards.params()).map(|param| self.shards.length(param, rank).div_ceil(BLOCK)).sum()
    }

    fn scattered(&self, round: u64, unit: usize, way: Way, rank: u64) -> Exchange {
        let ranks = self.ranks();
        let active = self.active(round);
        let counts = |count: &dyn Fn(u64) -> u64| (0..ranks).map(count).collect::<Vec<u64>>();
        let (sent, received) = match (way, self.node) {
            (Way::Flat, _) | (Way::Inside | Way::Across, None) => {
                let owned = |other| self.shards.owned(unit, other);
                let sent = counts(&|other| if rank < active { owned(other) } else { 0 });
                let share_of_rank = owned(rank);
                (sent, counts(&|other| if other < active { share_of_rank } else { 0 }))
            }
            (Way::Inside, Some(local)) => {
                let same_machine = |other: u64| other / local == rank / local;
                let share = |other: u64| self.local_share(unit, other % local, local);
                let sent =
                    counts(&|to| if rank < active && same_machine(to) { share(to) } else { 0 });
                let share_of_rank = share(rank);
                (
                    sent,
                    counts(&|from| {
                        if from < active && same_machine(from) { share_of_rank } else { 0 }
                    }),
                )
            }
            (Way::Across, Some(local)) => {
                let equal = |other: u64| other % local == rank % local;
                let owned = |other| self.shards.owned(unit, other);
                let parts = |from: u64| self.count(round, from / local);
                let sent = counts(&|to| if equal(to) { parts(rank) * owned(to) } else { 0 });
                let share_of_rank = owned(rank);
                (sent, counts(&|from| if equal(from) { parts(from) * share_of_rank } else { 0 }))
            }
        };
        Exchange::AllToAll { sent, received, dtype: DType::F32 }
    }

    /// Bytes that a rank receives in an action, with `local` ranks on each machine.
    pub fn received(&self, action: Action, rank: u64, local: u64) -> Received {
        let (ranks, local) = (self.ranks(), local.clamp(1, self.ranks()));
        let start = rank / local * local;
        let machine = start..(start + local).min(ranks);
        // Ranks before `end`, without this one, on this machine and on others.
        let others = |end: u64| {
            let near = machine.end.min(end).saturating_sub(machine.start) - u64::from(rank < end);
            (near, end - near - u64::from(rank < end))
        };
        let times =
            |(near, far): (u64, u64), bytes: u64| Received { near: near * bytes, far: far * bytes };
        if let Action::Begin(Transfer::Scatter { round, unit, way }) = action {
            return match (way, self.node) {
                (Way::Flat, _) | (Way::Inside | Way::Across, None) => {
                    times(others(self.active(round)), 4 * self.shards.owned(unit, rank))
                }
                (Way::Inside, Some(node)) => {
                    let start = rank / node * node;
                    let end = (start + node).min(self.active(round)).max(start);
                    let from = (start..end).filter(|other| *other != rank);
                    let near = from.clone().filter(|other| machine.contains(other)).count() as u64;
                    let far = from.count() as u64 - near;
                    times((near, far), 4 * self.local_share(unit, rank % node, node))
                }
                (Way::Across, Some(node)) => {
                    let all = self.parts.get(round as usize).map_or(0, |parts| parts.iter().sum());
                    let machines = machine.clone().filter(|other| other % node == rank % node);
                    let near: u64 = machines.map(|other| self.count(round, other / node)).sum();
                    let of_this_rank = self.count(round, rank / node);
                    times((near - of_this_rank, all - near), 4 * self.shards.owned(unit, rank))
                }
            };
        }
        match self.exchange(action, rank) {
            Some(Exchange::AllGather { each, dtype }) => {
                times(others(ranks), each * dtype.bytes() as u64)
            }
            Some(Exchange::Broadcast { elements, dtype }) => {
                let is_near = machine.start == 0;
                let from = (u64::from(rank > 0 && is_near), u64::from(!is_near));
                times(from, elements * dtype.bytes() as u64)
            }
            Some(Exchange::AllToAll { .. }) | None => Received::default(),
        }
    }

    /// The number of sums that a machine's micro-batches of a round become.
    fn count(&self, round: u64, machine: u64) -> u64 {
        let count = self.parts.get(round as usize).and_then(|parts| parts.get(machine as usize));
        count.copied().unwrap_or(0)
    }

    /// Elements of a unit that the ranks with this local number own, on all machines.
    fn local_share(&self, unit: usize, at: u64, local: u64) -> u64 {
        let machines = self.ranks() / local;
        (0..machines).map(|machine| self.shards.owned(unit, machine * local + at)).sum()
    }

    /// The sums over a machine's micro-batches of a round: nodes of the tree over all micro-batches.
    pub fn parts(&self, round: u64, machine: u64) -> Vec<Node> {
        let local = self.node.unwrap_or(1);
        let start = round * self.ranks() + machine * local;
        self.order().nodes(start..(start + local).min(self.micro_batches).max(start))
    }
}

impl Action {
    /// Whether something is sent.
    pub fn exchanges(&self) -> bool {
        match self {
            Action::Command
            | Action::Tell
            | Action::Begin(_)
            | Action::Losses { .. }
            | Action::Agree
            | Action::Norm => true,
            Action::Announce
            | Action::Wait(_)
            | Action::Release { .. }
            | Action::Compute { .. }
            | Action::Update
            | Action::Repeat
            | Action::Digest { .. } => false,
        }
    }
}

impl Segment {
    /// Whether it has parameters that are exchanged in this dtype.
    pub fn has(&self, dtype: DType) -> bool {
        self.params.iter().any(|(_, known)| *known == dtype)
    }
}

impl Exchange {
    /// Bytes that a rank receives from others, by whether these are on its machine of `local` ranks.
    pub fn received(&self, rank: u64, ranks: u64, local: u64) -> Received {
        let bytes_from = |other: u64| {
            let elements = match self {
                Exchange::AllToAll { received, .. } => {
                    received.get(other as usize).copied().unwrap_or(0)
                }
                Exchange::AllGather { each, .. } => *each,
                Exchange::Broadcast { elements, .. } if other == 0 => *elements,
                Exchange::Broadcast { .. } => 0,
            };
            elements * self.dtype().bytes() as u64
        };
        let mut bytes = Received::default();
        for other in (0..ranks).filter(|other| *other != rank) {
            let is_near = other / local.max(1) == rank / local.max(1);
            *(if is_near { &mut bytes.near } else { &mut bytes.far }) += bytes_from(other);
        }
        bytes
    }

    /// The dtype of its elements.
    pub fn dtype(&self) -> DType {
        match self {
            Exchange::AllToAll { dtype, .. }
            | Exchange::AllGather { dtype, .. }
            | Exchange::Broadcast { dtype, .. } => *dtype,
        }
    }
}

/// Bytes that a rank receives from other ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// From ranks on the same machine.
    pub near: u64,
    /// From ranks on other machines.
    pub far: u64,
}

impl Received {
    /// All of them.
    pub fn total(self) -> u64 {
        self.near + self.far
    }
}

impl std::ops::AddAssign for Received {
    fn add_assign(&mut self, other: Received) {
        self.near += other.near;
        self.far += other.far;
    }
}
