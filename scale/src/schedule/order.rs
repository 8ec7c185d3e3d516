//! The order of a step's actions.
//!
//! The parameters of a segment begin to arrive before the segment ahead of it is computed, and a unit's gradients are on their
//! way while those of the next one are computed. Whatever begins is waited for before its result is needed.

use compiler::plan::DType;
use lab::experiment::Shard;

use super::{Action, Schedule, Transfer, Way};
use crate::timeline::Segment;

const DTYPES: [DType; 2] = [DType::F32, DType::Bf16];

impl Schedule {
    /// Everything that all ranks do in one training step, in order.
    pub fn step(&self) -> Vec<Action> {
        self.actions(false)
    }

    /// Like [`Schedule::step`], where each rank also repeats the first micro-batch of the next one.
    pub fn checked_step(&self) -> Vec<Action> {
        self.actions(true)
    }

    fn actions(&self, checks: bool) -> Vec<Action> {
        let mut actions = vec![Action::Command, Action::Announce];
        // Whole sums would be held in addition to what the repeated micro-batch needs.
        let sums_later = checks && self.rounds() == 1;
        for round in 0..self.rounds() {
            actions.extend(self.round(round, sums_later));
            actions.push(Action::Losses { round });
            if checks && round == 0 {
                actions.extend(self.repeat());
            }
        }
        actions.push(Action::Tell);
        let units = 0..self.shards.units().len();
        match self.shard {
            Shard::None => {
                if sums_later {
                    actions.extend(one_ahead(units.map(|unit| Transfer::Sums { unit })));
                }
                actions.push(Action::Update);
            }
            Shard::Optimizer => {
                actions.extend([Action::Norm, Action::Update]);
                actions.extend(one_ahead(units.map(|unit| Transfer::Weights { unit })));
            }
            Shard::Full => actions.extend([Action::Norm, Action::Update]),
        }
        actions
    }

    /// A micro-batch on each rank, and what is exchanged while it is computed: with `sums_later`, no whole sums.
    fn round(&self, round: u64, sums_later: bool) -> Vec<Action> {
        let steps = self.timeline.steps;
        let segments: &[Segment] = match self.shard {
            Shard::None | Shard::Optimizer => &[],
            Shard::Full => &self.timeline.segments,
        };
        let gathers = |segment: usize| {
            let has = move |dtype: &DType| segments.get(segment).is_some_and(|s| s.has(*dtype));
            DTYPES.into_iter().filter(has).map(move |dtype| Transfer::Gather { segment, dtype })
        };
        let mut list = RoundActions {
            schedule: self,
            round,
            sums_later,
            from: 0,
            under_way: Vec::new(),
            actions: Vec::new(),
        };
        let (mut begun, mut arrived) = (0, 0);
        for step in 0..=steps {
            // The parameters of the next segment arrive while this one is computed.
            let needed = segments.iter().filter(|segment| segment.first <= step).count();
            while begun < segments.len().min(needed + 1) && (needed > 0 || step == 0) {
                list.compute(step);
                list.actions.extend(gathers(begun).map(Action::Begin));
                begun += 1;
            }
            while arrived < needed {
                list.compute(step);
                list.actions.extend(gathers(arrived).map(Action::Wait));
                arrived += 1;
            }
            let ends = |segment: &Segment| segment.last == step;
            for (segment, _) in segments.iter().enumerate().filter(|(_, s)| ends(s)) {
                list.compute((step + 1).min(steps));
                list.actions.push(Action::Release { segment });
            }
            let mut complete = self.timeline.completed_by(step).peekable();
            if complete.peek().is_some() {
                list.compute((step + 1).min(steps));
                list.advance();
            }
            for unit in complete {
                let way = if self.node.is_some() { Way::Inside } else { Way::Flat };
                list.begin(Transfer::Scatter { round, unit, way });
            }
        }
        list.compute(steps);
        while !list.under_way.is_empty() {
            list.advance();
        }
        list.actions
    }

    /// The first round again, with digests of gradients instead of sums.
    fn repeat(&self) -> Vec<Action> {
        let digests = |action| match action {
            // Each unit once.
            Action::Begin(Transfer::Scatter { unit, way: Way::Flat | Way::Inside, .. }) => {
                Some(Action::Digest { unit })
            }
            Action::Begin(Transfer::Scatter { .. }) | Action::Wait(Transfer::Scatter { .. }) => {
                None
            }
            Action::Begin(
                Transfer::Gather { .. } | Transfer::Sums { .. } | Transfer::Weights { .. },
            )
            | Action::Wait(
                Transfer::Gather { .. } | Transfer::Sums { .. } | Transfer::Weights { .. },
            )
            | Action::Command
            | Action::Announce
            | Action::Tell
            | Action::Release { .. }
            | Action::Compute { .. }
            | Action::Losses { .. }
            | Action::Repeat
            | Action::Digest { .. }
            | Action::Agree
            | Action::Norm
            | Action::Update => Some(action),
        };
        let mut actions = vec![Action::Repeat];
        actions.extend(self.round(0, true).into_iter().filter_map(digests));
        actions.push(Action::Agree);
        actions
    }
}

/// Exchanges, each of which is on its way while the result of the one before it is copied.
fn one_ahead(transfers: impl Iterator<Item = Transfer>) -> Vec<Action> {
    let (mut actions, mut before) = (Vec::new(), None);
    for transfer in transfers {
        actions.push(Action::Begin(transfer));
        actions.extend(before.replace(transfer).map(Action::Wait));
    }
    actions.extend(before.map(Action::Wait));
    actions
}

/// The actions of a round as they are listed.
struct RoundActions<'a> {
    schedule: &'a Schedule,
    round: u64,
    /// Whether whole sums are not exchanged in this round.
    sums_later: bool,
    /// The first step of the plan that is not listed.
    from: usize,
    /// Gradients and sums that are waited for later.
    under_way: Vec<Transfer>,
    actions: Vec<Action>,
}

impl RoundActions<'_> {
    /// Computes the steps before this one.
    fn compute(&mut self, to: usize) {
        if to > self.from {
            self.actions.push(Action::Compute { round: self.round, from: self.from, to });
            self.from = to;
        }
    }

    fn begin(&mut self, transfer: Transfer) {
        self.actions.push(Action::Begin(transfer));
        self.under_way.push(transfer);
    }

    /// Waits for what is under way, and begins what follows it.
    fn advance(&mut self) {
        for transfer in std::mem::take(&mut self.under_way) {
            self.actions.push(Action::Wait(transfer));
            if let Some(next) = self.after(transfer) {
                self.begin(next);
            }
        }
    }

    fn after(&self, transfer: Transfer) -> Option<Transfer> {
        match transfer {
            Transfer::Scatter { round, unit, way: Way::Inside } => {
                Some(Transfer::Scatter { round, unit, way: Way::Across })
            }
            // With the last micro-batches, sums are complete.
            Transfer::Scatter { unit, way: Way::Flat | Way::Across, .. } => {
                let complete = self.round + 1 == self.schedule.rounds();
                let is_whole = match self.schedule.shard {
                    Shard::None => true,
                    Shard::Optimizer | Shard::Full => false,
                };
                (complete && is_whole && !self.sums_later).then_some(Transfer::Sums { unit })
            }
            Transfer::Gather { .. } | Transfer::Sums { .. } | Transfer::Weights { .. } => None,
        }
    }
}
