//! The schedules of the published locks.
//!
//! In: the 64 locks of the release, on 1 to 512 ranks. Must stay true: every rank has the same exchanges in the same order;
//! what one sends is what another receives; every gradient has one owner; nothing whole outlives its layer.

#![expect(clippy::disallowed_methods, reason = "tests read committed locks")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use canonc_scale::device::Device;
use canonc_scale::memory::peak;
use canonc_scale::predict::{Question, predict, schedule, sizes};
use canonc_scale::schedule::{Action, Exchange, Schedule, Way};
use compiler::plan::{DType, TrainPlan};
use compiler::plans;
use lab::experiment::{Experiment, Shard};
use lab::lock::Lock;

const RANKS: [u64; 14] = [1, 2, 3, 4, 5, 7, 8, 13, 24, 64, 127, 128, 255, 512];

/// The experiments of the release, one for each graph, batch and number of devices; and how many there are in all.
fn published() -> (Vec<(Experiment, TrainPlan)>, usize) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../lockfiles");
    let mut locks: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    locks.sort();
    let mut all = 0;
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
        all += 1;
        let batch = &experiment.batch;
        let graph = experiment.arch.compiled.identity.graph.to_string();
        let key = (graph, batch.micro_batches, batch.sequences);
        different.entry(key).or_insert(experiment);
    }
    let plans = |experiment: &Experiment| {
        plans::train(&experiment.arch.compiled.graph, &experiment.train_options())
    };
    let planned = different.into_values().map(|experiment| {
        let plans = plans(&experiment);
        (experiment, plans)
    });
    (planned.collect(), all)
}

fn question(ranks: u64, shard: Shard, by_node: bool) -> Question {
    let device = Device::named("h100").unwrap();
    Question { ranks, shard, local: 8.min(ranks), by_node, device }
}

/// What a rank sends to and receives from each other one, of every exchange.
fn check_exchanges(schedule: &Schedule, actions: &[Action]) {
    let ranks = schedule.ranks();
    for action in actions {
        let of: Vec<Option<Exchange>> =
            (0..ranks).map(|rank| schedule.exchange(*action, rank)).collect();
        match &of[0] {
            None => assert!(of.iter().all(Option::is_none)),
            Some(Exchange::AllGather { .. } | Exchange::Broadcast { .. }) => {
                assert!(of.iter().all(|other| *other == of[0]), "{action:?}");
            }
            Some(Exchange::AllToAll { .. }) => {
                let counts = |exchange: &Option<Exchange>| match exchange {
                    Some(Exchange::AllToAll { sent, received, dtype: DType::F32 }) => {
                        (sent.clone(), received.clone())
                    }
                    other => panic!("{action:?}: {other:?}"),
                };
                let all: Vec<_> = of.iter().map(counts).collect();
                for (a, (sent, _)) in all.iter().enumerate() {
                    for (b, (_, received)) in all.iter().enumerate() {
                        assert_eq!(sent[b], received[a], "{action:?} from {a} to {b}");
                    }
                }
            }
        }
        for (rank, exchange) in (0..).zip(&of) {
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
        let Action::Scatter { round, unit, way } = *action else { continue };
        for rank in 0..schedule.ranks() {
            let exchange = schedule.exchange(*action, rank);
            let Some(Exchange::AllToAll { received, .. }) = exchange else { panic!() };
            arrived[unit] += match way {
                Way::Flat => received.iter().sum::<u64>(),
                Way::Inside => 0,
                // Each sum stands for the micro-batches of one machine.
                Way::Across => {
                    let local = schedule.node.unwrap();
                    let own = schedule.shards.owned(unit, rank);
                    let parts = |machine| schedule.parts(round, machine).len() as u64;
                    let machines = schedule.ranks() / local;
                    let sums: u64 = (0..machines).map(parts).sum();
                    assert_eq!(received.iter().sum::<u64>(), sums * own);
                    own * schedule.active(round)
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
    let mut whole = std::collections::BTreeSet::new();
    let (mut done, mut most) = (0, 0);
    for action in actions {
        match *action {
            Action::Gather { segment, .. } => {
                whole.insert(segment);
                most = most.max(whole.len());
            }
            Action::Release { segment } => {
                assert!(done > schedule.timeline.segments[segment].last);
                assert!(whole.remove(&segment));
            }
            Action::Compute { from, to, .. } => {
                assert_eq!(from, done);
                for (n, segment) in schedule.timeline.segments.iter().enumerate() {
                    if segment.first < to && segment.last >= from {
                        assert!(whole.contains(&n), "segment {n} of step {from} to {to}");
                    }
                }
                done = to;
            }
            Action::Scatter { unit, .. } => assert_eq!(done, schedule.timeline.complete[unit] + 1),
            Action::Losses { .. } => {
                assert_eq!(done, schedule.timeline.steps);
                assert!(whole.is_empty(), "{whole:?}");
                done = 0;
            }
            Action::Command
            | Action::Announce
            | Action::Norm
            | Action::Sums { .. }
            | Action::Update
            | Action::Weights { .. } => {}
            // As a micro-batch of its own.
            Action::Repeat => {}
            Action::Digest { unit } => assert_eq!(done, schedule.timeline.complete[unit] + 1),
            Action::Agree => {
                assert!(done == schedule.timeline.steps && whole.is_empty());
                done = 0;
            }
        }
    }
    // The current segment, the next one, and small ones in between.
    assert!(most <= 4, "{most} of {layers} layers are whole at once");
}

#[test]
fn every_rank_has_the_same_exchanges_and_every_gradient_one_owner() {
    let (published, all) = published();
    assert_eq!(all, 64);
    for (experiment, plans) in &published {
        let layers = experiment.arch.compiled.graph.layers().count() as u64;
        for ranks in RANKS.into_iter().filter(|ranks| *ranks <= experiment.batch.micro_batches) {
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
                    if shard == Shard::Full {
                        check_full(&schedule, &actions, layers);
                    }
                }
            }
        }
    }
}

/// Actions of the first round, and of two units and two segments.
fn few(schedule: &Schedule, actions: &[Action]) -> Vec<Action> {
    let last = schedule.shards.units().len() - 1;
    let kept = |action: &&Action| match action {
        Action::Scatter { round, unit, .. } => {
            (*round == 0 || *round + 1 == schedule.rounds()) && (*unit == 1 || *unit == last)
        }
        Action::Sums { unit } | Action::Weights { unit } => *unit <= 1,
        Action::Gather { segment, .. } | Action::Release { segment } => *segment <= 1,
        Action::Losses { round } => *round == 0,
        Action::Compute { .. } | Action::Digest { .. } => false,
        Action::Command
        | Action::Announce
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
    for (experiment, plans) in &published {
        let most = experiment.batch.micro_batches;
        let of = |ranks, shard| {
            let schedule = schedule(experiment, plans, &question(ranks, shard, false));
            peak(&schedule, &plans.micro, sizes(experiment), 0, true).held
        };
        let (none, full) = (of(most, Shard::None), of(most, Shard::Full));
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
    let (experiment, plans) = published.first().unwrap();
    let flat = predict(experiment, plans, &question(128, Shard::Optimizer, false));
    let by_node = predict(experiment, plans, &question(128, Shard::Optimizer, true));
    // Eight ranks share a machine's sums.
    let scattered = |p: &canonc_scale::predict::Prediction| p.received_by_all.far;
    assert!(scattered(&flat) > scattered(&by_node));
    assert!(flat.mfu > 0.0 && flat.mfu < flat.mfu_overlapped && flat.mfu_overlapped < 1.0);
}

/// splitmix64: a number from 0 to 1 for each key.
fn varying(key: u64) -> f64 {
    let mut x = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 27)) as f64 / u64::MAX as f64
}

/// When each rank is done with each action, if computing takes varying times: an exchange ends when all who take part have
/// come. A rank that dies is never done, and nor is who waits for it. Returns the last action that each rank finished.
fn simulate(
    schedule: &Schedule,
    actions: &[Action],
    seed: u64,
    dies: Option<(u64, usize)>,
) -> Vec<usize> {
    let ranks = schedule.ranks();
    let mut times = vec![0.0f64; ranks as usize];
    let mut finished = vec![0; ranks as usize];
    for (n, action) in actions.iter().enumerate() {
        if let Some((rank, _)) = dies.filter(|(_, at)| *at == n) {
            times[rank as usize] = f64::INFINITY;
        }
        let groups: Vec<Vec<usize>> = match (*action, schedule.node) {
            (Action::Scatter { way: Way::Inside, .. }, Some(local)) => (0..ranks / local)
                .map(|machine| {
                    (machine * local..(machine + 1) * local).map(|r| r as usize).collect()
                })
                .collect(),
            (Action::Scatter { way: Way::Across, .. }, Some(local)) => (0..local)
                .map(|at| (at..ranks).step_by(local as usize).map(|r| r as usize).collect())
                .collect(),
            (Action::Command, _) => {
                let leader = times[0];
                times.iter_mut().for_each(|time| *time = time.max(leader));
                Vec::new()
            }
            (action, _) if action.exchanges() => vec![(0..ranks as usize).collect()],
            _ => {
                for (rank, time) in times.iter_mut().enumerate() {
                    *time += varying(seed ^ (n as u64) << 20 ^ rank as u64);
                }
                Vec::new()
            }
        };
        for group in groups {
            let last = group.iter().map(|rank| times[*rank]).fold(0.0, f64::max);
            group.iter().for_each(|rank| times[*rank] = last);
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
    for (n, (experiment, plans)) in published.iter().enumerate() {
        let most = experiment.batch.micro_batches;
        for ranks in [3, 64, 127, 512].into_iter().filter(|ranks| *ranks <= most) {
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
                    // Nobody is more than a layer ahead: the next gather or scatter needs the rank that is gone.
                    let ahead = finished.iter().max().unwrap().saturating_sub(at);
                    assert!(ahead < 16, "{ranks}, {dies:?}: {ahead} actions later");
                }
            }
        }
    }
}
