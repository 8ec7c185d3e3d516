//! The schedules of the 64 locks of the release, on 1 to 512 ranks.
//!
//! Every rank has the same exchanges in the same order; what one sends is what another receives; every gradient has one owner;
//! nothing whole outlives its layer.

#![expect(clippy::disallowed_methods, reason = "tests read committed locks")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use compiler::plan::{DType, TrainPlan};
use compiler::plans;
use lab::experiment::{Experiment, Shard};
use lab::lock::Lock;
use scale::device::Device;
use scale::memory::{Network, peak};
use scale::predict::{Question, predict, schedule, sizes};
use scale::schedule::{Action, Exchange, Schedule, Transfer, Way};
use scale::timeline::Segment;

const RANKS: [u64; 14] = [1, 2, 3, 4, 5, 7, 8, 13, 24, 64, 127, 128, 255, 512];

/// The experiments of the release, one for each graph, batch and number of devices; and how many there are in all.
fn published() -> (Vec<Experiment>, usize) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../lockfiles");
    let mut locks: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    locks.sort();
    let mut count = 0;
    let mut different = BTreeMap::new();
    for path in locks {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.contains("-Nemo-") || name.starts_with("twin-") {
            continue;
        }
        let Lock::Experiment(experiment) =
            lab::lock::read_bytes(&name, &std::fs::read(&path).unwrap()).unwrap()
        else {
            panic!("{name} is no experiment");
        };
        count += 1;
        let batch = &experiment.batch;
        let graph = experiment.arch.compiled.identity.graph.to_string();
        let key = (graph, batch.micro_batches, batch.sequences);
        different.entry(key).or_insert(experiment);
    }
    (different.into_values().collect(), count)
}

fn planned(experiment: &Experiment) -> TrainPlan {
    plans::train(&experiment.arch.compiled.graph, &experiment.train_options())
}

fn question(ranks: u64, shard: Shard, by_node: bool) -> Question {
    let device = Device::named("h100").unwrap();
    Question { ranks, shard, local: 8.min(ranks), by_node, device }
}

/// What a rank sends to and receives from each other one, of every exchange.
fn check_exchanges(schedule: &Schedule, actions: &[Action]) {
    let ranks = schedule.ranks();
    for action in actions {
        let exchanges: Vec<Option<Exchange>> =
            (0..ranks).map(|rank| schedule.exchange(*action, rank)).collect();
        match &exchanges[0] {
            None => assert!(exchanges.iter().all(Option::is_none)),
            Some(Exchange::AllGather { .. } | Exchange::Broadcast { .. }) => {
                assert!(exchanges.iter().all(|other| *other == exchanges[0]), "{action:?}");
            }
            Some(Exchange::AllToAll { .. }) => {
                let counts = |exchange: &Option<Exchange>| match exchange {
                    Some(Exchange::AllToAll { sent, received, dtype: DType::F32 }) => {
                        (sent.clone(), received.clone())
                    }
                    other => panic!("{action:?}: {other:?}"),
                };
                let all: Vec<_> = exchanges.iter().map(counts).collect();
                for (a, (sent, _)) in all.iter().enumerate() {
                    for (b, (_, received)) in all.iter().enumerate() {
                        assert_eq!(sent[b], received[a], "{action:?} from {a} to {b}");
                    }
                }
            }
        }
        for (rank, exchange) in (0..).zip(&exchanges) {
            for local in [1, 8, ranks] {
                let got = exchange.as_ref().map(|e| e.received(rank, ranks, local));
                let quick = schedule.received(*action, rank, local);
                assert_eq!(quick, got.unwrap_or_default(), "{action:?} of {rank}, {local}");
            }
        }
    }
}

/// Each micro-batch's gradient of each element is sent to its one owner, once.
fn check_scatters(schedule: &Schedule, actions: &[Action]) {
    let mut arrived = vec![0u64; schedule.shards.units().len()];
    for action in actions {
        let Action::Begin(Transfer::Scatter { round, unit, way }) = *action else { continue };
        for rank in 0..schedule.ranks() {
            let exchange = schedule.exchange(*action, rank);
            let Some(Exchange::AllToAll { received, .. }) = exchange else { panic!() };
            arrived[unit] += match way {
                Way::Flat => received.iter().sum::<u64>(),
                Way::Inside => 0,
                // Each sum stands for the micro-batches of one machine.
                Way::Across => {
                    let local = schedule.node.unwrap();
                    let owned = schedule.shards.owned(unit, rank);
                    let parts = |machine| schedule.parts(round, machine).len() as u64;
                    let machines = schedule.ranks() / local;
                    let sums: u64 = (0..machines).map(parts).sum();
                    assert_eq!(received.iter().sum::<u64>(), sums * owned);
                    owned * schedule.active(round)
                }
            };
        }
    }
    for (unit, arrived) in arrived.iter().enumerate() {
        assert_eq!(*arrived, schedule.micro_batches * schedule.shards.elements(unit));
    }
}

/// Parameters are whole around every step that reads them, and gradients are sent when they are complete.
fn check_full(schedule: &Schedule, actions: &[Action], layers: u64) {
    let mut gathered = std::collections::BTreeSet::new();
    let (mut done, mut most) = (0, 0);
    for action in actions {
        match *action {
            Action::Begin(Transfer::Gather { segment, .. }) => {
                gathered.insert(segment);
                most = most.max(gathered.len());
            }
            Action::Release { segment } => {
                assert!(done > schedule.timeline.segments[segment].last);
                assert!(gathered.remove(&segment));
            }
            Action::Compute { to, .. } => done = to,
            Action::Losses { .. } | Action::Agree => {
                assert!(done == schedule.timeline.steps && gathered.is_empty(), "{gathered:?}");
                done = 0;
            }
            Action::Begin(_)
            | Action::Wait(_)
            | Action::Command
            | Action::Announce
            | Action::Tell
            | Action::Norm
            | Action::Update
            | Action::Repeat
            | Action::Digest { .. } => {}
        }
    }
    // The current segment, the next one, and small ones in between.
    assert!(most <= 4, "{most} of {layers} layers are whole at once");
}

/// Exchanges run while ranks compute: a segment's parameters begin to arrive before the segment ahead of it is computed, and
/// are waited for just before the first step that reads them; gradients leave when they are complete, and are waited for
/// when those of the next unit are. Nothing is waited for that did not begin, and nothing is left at the end.
fn check_overlap(schedule: &Schedule, actions: &[Action]) {
    let mut rank = OverlappingRank {
        schedule,
        under_way: BTreeMap::new(),
        arrived: std::collections::BTreeSet::new(),
        done: 0,
    };
    for action in actions {
        rank.act(*action);
    }
    assert!(rank.under_way.is_empty(), "{:?}", rank.under_way);
}

struct OverlappingRank<'a> {
    schedule: &'a Schedule,
    /// Exchanges that have begun, with the steps that were computed before.
    under_way: BTreeMap<Transfer, usize>,
    /// Gathers of parameters that are held.
    arrived: std::collections::BTreeSet<Transfer>,
    /// Steps of the plan that are computed.
    done: usize,
}

impl OverlappingRank<'_> {
    fn act(&mut self, action: Action) {
        let complete = &self.schedule.timeline.complete;
        match action {
            Action::Begin(transfer) => self.begin(transfer),
            Action::Wait(transfer) => self.wait(transfer),
            Action::Release { segment } => {
                self.arrived.retain(
                    |other| !matches!(other, Transfer::Gather { segment: s, .. } if *s == segment),
                );
            }
            Action::Compute { from, to, .. } => {
                assert_eq!(from, self.done);
                if self.schedule.shard == Shard::Full {
                    self.check_gathered(from, to);
                }
                self.done = to;
            }
            Action::Digest { unit } => assert_eq!(self.done, complete[unit] + 1),
            Action::Losses { .. } | Action::Agree => {
                assert_eq!(self.done, self.schedule.timeline.steps);
                assert!(self.under_way.is_empty(), "{:?}", self.under_way);
                self.done = 0;
            }
            Action::Command
            | Action::Announce
            | Action::Tell
            | Action::Norm
            | Action::Update
            | Action::Repeat => {
                assert!(self.under_way.is_empty(), "{action:?}: {:?}", self.under_way);
            }
        }
    }

    fn begin(&mut self, transfer: Transfer) {
        let complete = &self.schedule.timeline.complete;
        match transfer {
            // Gradients are sent when they are complete, and on to other machines when the next ones are.
            Transfer::Scatter { unit, way: Way::Flat | Way::Inside, .. } => {
                assert_eq!(self.done, complete[unit] + 1);
                let allowed = |other: &Transfer| match *other {
                    Transfer::Scatter { unit: other, way: Way::Flat | Way::Inside, .. } => {
                        complete[other] == complete[unit]
                    }
                    Transfer::Scatter { way: Way::Across, .. }
                    | Transfer::Gather { .. }
                    | Transfer::Sums { .. }
                    | Transfer::Weights { .. } => true,
                };
                assert!(
                    self.under_way.keys().all(allowed),
                    "gradients of two layers: {:?}",
                    self.under_way
                );
            }
            Transfer::Scatter { .. }
            | Transfer::Gather { .. }
            | Transfer::Sums { .. }
            | Transfer::Weights { .. } => {}
        }
        let before = self.under_way.insert(transfer, self.done);
        assert_eq!(before, None, "{transfer:?} begins twice");
    }

    fn wait(&mut self, transfer: Transfer) {
        let done = self.done;
        let began = self.under_way.remove(&transfer).expect("it has begun");
        match transfer {
            Transfer::Gather { segment, .. } => {
                // Not sooner than it is needed, and after all of the segment ahead, as far as there is one.
                let segments = &self.schedule.timeline.segments;
                assert_eq!(done, segments[segment].first);
                let ahead = segments[..segment].iter().map(|s| s.first).max();
                assert!(began <= ahead.unwrap_or(0), "{transfer:?} begins at {began}");
                self.arrived.insert(transfer);
            }
            Transfer::Scatter { .. } => {
                // Steps were computed since, unless there are none.
                let complete = &self.schedule.timeline.complete;
                let later = complete.iter().any(|last| last + 1 > began);
                assert!(done > began || !later, "{transfer:?} from {began} to {done}");
            }
            Transfer::Sums { .. } | Transfer::Weights { .. } => {}
        }
    }

    /// Whatever these steps read has arrived, and the parameters of the segment after it are here or on their way.
    fn check_gathered(&self, from: usize, to: usize) {
        let segments = &self.schedule.timeline.segments;
        let gathers = |segment: usize| {
            let has = move |dtype: &DType| segments.get(segment).is_some_and(|s| s.has(*dtype));
            let dtypes = [DType::F32, DType::Bf16].into_iter().filter(has);
            dtypes.map(move |dtype| Transfer::Gather { segment, dtype })
        };
        let read = |segment: &Segment| segment.first < to && segment.last >= from;
        for (n, _) in segments.iter().enumerate().filter(|(_, segment)| read(segment)) {
            for gather in gathers(n) {
                assert!(self.arrived.contains(&gather), "{n} at step {from} to {to}");
                for next in gathers(n + 1) {
                    assert!(
                        self.under_way.contains_key(&next)
                            || self.arrived.contains(&next)
                            || segments[n + 1].last < from,
                        "{next:?} at step {from} to {to}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_rank_has_the_same_exchanges_and_every_gradient_one_owner() {
    // Graphs cannot be shared between threads, so each reads the locks.
    let threads = std::thread::available_parallelism().unwrap().get();
    std::thread::scope(|scope| {
        for first in 0..threads {
            scope.spawn(move || {
                let (published, count) = published();
                assert_eq!(count, 64);
                let share = published.iter().enumerate().skip(first).step_by(threads);
                share.for_each(|(n, experiment)| check(n, experiment));
            });
        }
    });
}

/// The numbers of ranks to check the `n`-th experiment with: some of those that it allows, others for the next one. Each
/// number comes with several experiments, as they differ in little that schedules are made of; `CANONC_CASES=1` takes all.
fn some_of(n: usize, numbers: &[u64], experiment: &Experiment) -> impl Iterator<Item = u64> {
    let taken = move |place: usize| (n + place) % 4 < support::cases(4) as usize;
    let most = experiment.batch.micro_batches;
    let numbers = numbers.iter().copied().enumerate().filter(move |(_, ranks)| *ranks <= most);
    numbers.filter_map(move |(place, ranks)| taken(place).then_some(ranks))
}

/// Checks the schedules of the `n`-th experiment.
fn check(n: usize, experiment: &Experiment) {
    let plans = &planned(experiment);
    let layers = experiment.arch.compiled.graph.layers().count() as u64;
    for ranks in some_of(n, &RANKS, experiment) {
        for by_node in [false, true] {
            if by_node && (ranks <= 8 || ranks % 8 != 0) {
                continue;
            }
            for shard in Shard::ALL {
                let schedule = schedule(experiment, plans, &question(ranks, shard, by_node));
                let actions = schedule.checked_step();
                // All pairs of many ranks take long, and depend on the unit's sizes alone.
                let some: Vec<Action> = match ranks {
                    0..64 => actions.clone(),
                    _ => few(&schedule, &actions),
                };
                check_exchanges(&schedule, &some);
                if ranks < 64 || shard == Shard::Full {
                    check_scatters(&schedule, &actions);
                }
                check_overlap(&schedule, &actions);
                if shard == Shard::Full {
                    check_full(&schedule, &actions, layers);
                }
            }
        }
    }
}

/// Actions of the first round, and of two units and two segments.
fn few(schedule: &Schedule, actions: &[Action]) -> Vec<Action> {
    let last = schedule.shards.units().len() - 1;
    let kept = |action: &&Action| match action {
        Action::Begin(Transfer::Scatter { round, unit, .. }) => {
            (*round == 0 || *round + 1 == schedule.rounds()) && (*unit == 1 || *unit == last)
        }
        Action::Begin(Transfer::Sums { unit } | Transfer::Weights { unit }) => *unit <= 1,
        Action::Begin(Transfer::Gather { segment, .. }) | Action::Release { segment } => {
            *segment <= 1
        }
        Action::Losses { round } => *round == 0,
        Action::Wait(_) | Action::Compute { .. } | Action::Digest { .. } => false,
        Action::Command
        | Action::Announce
        | Action::Tell
        | Action::Repeat
        | Action::Agree
        | Action::Norm
        | Action::Update => true,
    };
    actions.iter().filter(kept).copied().collect()
}

#[test]
fn shares_of_a_rank_shrink_with_their_number() {
    let (published, _) = published();
    for experiment in &published {
        let plans = &planned(experiment);
        let most = experiment.batch.micro_batches;
        let held = |ranks, shard| {
            let schedule = schedule(experiment, plans, &question(ranks, shard, false));
            peak(&schedule, &plans.micro, &[], sizes(experiment), 0, true, Network::Nccl).held
        };
        let (none, full) = (held(most, Shard::None), held(most, Shard::Full));
        let parameters = experiment.analysis.parameters as i128;
        assert!(none.weights >= 4 * parameters && none.moments == 8 * parameters);
        let share = parameters / most as i128;
        assert!((full.weights - 4 * share).abs() < 4 * share, "{}: {full:?}", experiment.name);
        assert!(full.total() < none.total());
        // Of unsharded gradients, there are those of a layer at most, and of the layer before it.
        let layers = experiment.arch.compiled.graph.layers().count() as i128;
        assert!(full.gradients < 4 * 4 * parameters / layers, "{}: {full:?}", experiment.name);
    }
}

#[test]
fn more_ranks_receive_what_fewer_do() {
    let (published, _) = published();
    let experiment = published.first().unwrap();
    let plans = &planned(experiment);
    let flat = predict(experiment, plans, &question(128, Shard::Optimizer, false));
    let by_node = predict(experiment, plans, &question(128, Shard::Optimizer, true));
    // Eight ranks share a machine's sums.
    let scattered = |p: &scale::predict::Prediction| p.received_by_all.far;
    assert!(scattered(&flat) > scattered(&by_node));
    assert!(flat.mfu > 0.0 && flat.mfu < flat.mfu_overlapped && flat.mfu_overlapped < 1.0);
}

/// splitmix64: a number from 0 to 1 for each key.
fn varying(key: u64) -> f64 {
    let mut x = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 27)) as f64 / u64::MAX as f64
}

/// The ranks that exchange something with each other in an action.
fn groups(schedule: &Schedule, action: Action) -> Vec<Vec<usize>> {
    let ranks = schedule.ranks();
    let index = |ranks: &mut dyn Iterator<Item = u64>| ranks.map(|r| r as usize).collect();
    match (action, schedule.node) {
        (Action::Begin(Transfer::Scatter { way: Way::Inside, .. }), Some(local)) => (0..ranks
            / local)
            .map(|machine| index(&mut (machine * local..(machine + 1) * local)))
            .collect(),
        (Action::Begin(Transfer::Scatter { way: Way::Across, .. }), Some(local)) => {
            (0..local).map(|at| index(&mut (at..ranks).step_by(local as usize))).collect()
        }
        (action, _) => action.exchanges().then(|| index(&mut (0..ranks))).into_iter().collect(),
    }
}

/// When each rank is done with each action, if computing takes varying times: an exchange ends when all who take part have
/// begun it. A rank that dies is never done, and nor is who waits for it. Returns the last action that each rank finished.
fn simulate(
    schedule: &Schedule,
    actions: &[Action],
    seed: u64,
    dies: Option<(u64, usize)>,
) -> Vec<usize> {
    let ranks = schedule.ranks();
    let mut times = vec![0.0f64; ranks as usize];
    let mut finished = vec![0; ranks as usize];
    let mut ends: BTreeMap<Transfer, Vec<f64>> = BTreeMap::new();
    for (n, action) in actions.iter().enumerate() {
        if let Some((rank, _)) = dies.filter(|(_, at)| *at == n) {
            times[rank as usize] = f64::INFINITY;
        }
        // When an exchange ends for each rank that takes part.
        let mut together = times.clone();
        for group in groups(schedule, *action) {
            let last = group.iter().map(|rank| times[*rank]).fold(0.0, f64::max);
            group.iter().for_each(|rank| together[*rank] = last);
        }
        match *action {
            Action::Begin(transfer) => assert!(ends.insert(transfer, together).is_none()),
            Action::Wait(transfer) => {
                let ends = ends.remove(&transfer).expect("it has begun");
                times.iter_mut().zip(ends).for_each(|(time, end)| *time = time.max(end));
            }
            Action::Command => {
                let leader = times[0];
                times.iter_mut().for_each(|time| *time = time.max(leader));
            }
            Action::Announce | Action::Losses { .. } | Action::Agree | Action::Norm => {
                times = together;
            }
            // The next step waits for it.
            Action::Tell => {}
            Action::Release { .. }
            | Action::Compute { .. }
            | Action::Update
            | Action::Repeat
            | Action::Digest { .. } => {
                for (rank, time) in times.iter_mut().enumerate() {
                    *time += varying(seed ^ (n as u64) << 20 ^ rank as u64);
                }
            }
        }
        for (finished, time) in finished.iter_mut().zip(&times) {
            if time.is_finite() {
                *finished = n;
            }
        }
    }
    finished
}

#[test]
fn delays_block_nobody_and_after_a_death_nobody_updates() {
    let (published, _) = published();
    for (n, experiment) in published.iter().enumerate() {
        let plans = &planned(experiment);
        for ranks in some_of(n, &[3, 64, 127, 512], experiment) {
            for by_node in [false, true] {
                if by_node && ranks % 8 != 0 {
                    continue;
                }
                let schedule = schedule(experiment, plans, &question(ranks, Shard::Full, by_node));
                let actions = schedule.checked_step();
                let end = actions.len() - 1;
                let update = actions.iter().position(|action| *action == Action::Update).unwrap();
                let finished = simulate(&schedule, &actions, n as u64, None);
                assert!(finished.iter().all(|last| *last == end), "{ranks}");
                for part in 0..3 {
                    let at = 1 + (update - 2) * part / 3 + n % 7;
                    let victim = (n as u64 * 31 + part as u64 * 17) % ranks;
                    let dies = Some((victim, at));
                    let finished = simulate(&schedule, &actions, n as u64, dies);
                    assert!(finished.iter().all(|last| *last < update), "{ranks}, {dies:?}");
                    // Nobody is more than two layers ahead: what they wait for next needs the rank that is gone.
                    let ahead = finished.iter().max().unwrap().saturating_sub(at);
                    assert!(ahead < 32, "{ranks}, {dies:?}: {ahead} actions later");
                }
            }
        }
    }
}
