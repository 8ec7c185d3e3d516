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
                    let actions = schedule.step();
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
        Action::Compute { .. } => false,
        Action::Command | Action::Announce | Action::Norm | Action::Update => true,
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
            peak(&schedule, &plans.micro, sizes(experiment), 0).held
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
