//! Equal bits on any number of ranks.

use std::sync::atomic::AtomicBool;

use compiler::plan::DType;
use lab::experiment::Shard;
use records::fault::Faults;
use runtime::ranks::simulated::{Call, with_ranks};
use runtime::ranks::{Collectives, Member};
use runtime::train::{Options, TrainOutcome, follow, machine, train};

use scale::schedule::{Exchange, Schedule};
use scale::shard::Shards;
use tch::Kind;

use super::support::*;

const LAST: u64 = 8;

/// Five micro-batches, and parameters of several blocks.
fn several() -> lab::experiment::Experiment {
    experiment("wide", DEPO, &[("micro_batches = 2", "micro_batches = 5")])
}

/// How ranks divide a run.
#[derive(Clone, Copy, Debug)]
struct Divided {
    ranks: u64,
    shard: Shard,
    node: Option<u64>,
}

fn flat(ranks: u64, shard: Shard) -> Divided {
    Divided { ranks, shard, node: None }
}

/// The collectives that a rank called.
type Calls = Vec<(Call, Kind)>;

/// Trains to `stop_after`, or to the end. Returns the calls of each rank, too.
fn run(
    folder: &Folder,
    recipe: &(dyn Fn() -> lab::experiment::Experiment + Sync),
    Divided { ranks, shard, node }: Divided,
    stop_after: Option<u64>,
) -> (Option<TrainOutcome>, Vec<Calls>) {
    let path = folder.path();
    let ends = with_ranks(ranks, |simulated| {
        let experiment = recipe();
        let mut job = job(&experiment, None).unwrap();
        let machine = machine(&experiment.platform).unwrap();
        let simulated = std::rc::Rc::new(simulated);
        let member = Member { ranks: simulated.clone(), shard, node };
        let stop = AtomicBool::new(false);
        let mut end = None;
        if simulated.rank() > 0 {
            follow(&mut job, machine, &member, &stop).unwrap();
        } else {
            let faults = Faults::none();
            let ranks = Some(&member);
            let options = Options { stop: &stop, stop_after, faults: &faults, ranks };
            let told = &mut Told::default();
            end = Some(train(&mut job, &path, machine, &options, told).unwrap());
        }
        (end, simulated.calls())
    });
    let (ends, calls): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    (ends.into_iter().flatten().next(), calls)
}

#[test]
fn any_number_of_ranks_gives_the_bits_of_one() {
    let straight = Folder::finished(&several());
    for divided in [
        flat(1, Shard::Optimizer),
        flat(1, Shard::Full),
        flat(2, Shard::None),
        flat(3, Shard::Optimizer),
        flat(3, Shard::Full),
        flat(4, Shard::None),
        flat(5, Shard::Full),
        flat(7, Shard::Optimizer),
        Divided { node: Some(2), ..flat(4, Shard::None) },
        Divided { node: Some(2), ..flat(4, Shard::Full) },
        Divided { node: Some(3), ..flat(6, Shard::Optimizer) },
        Divided { node: Some(2), ..flat(6, Shard::Full) },
    ] {
        let folder = Folder::new();
        let (end, calls) = run(&folder, &several, divided, None);
        assert!(matches!(end, Some(TrainOutcome::Finished(_))), "{end:?}");
        assert_eq!(
            differing(&straight.bits(LAST), &folder.bits(LAST)),
            Vec::<String>::new(),
            "{divided:?}"
        );
        as_scheduled(divided, &calls);
    }
}

/// Every rank called exactly what the schedule lists, in that order and in those sizes, once for each step.
fn as_scheduled(Divided { ranks, shard, node }: Divided, calls: &[Calls]) {
    let job = job(&several(), None).unwrap();
    let shards = Shards::new(&job.graph, ranks);
    let counts = (job.micro_batches, job.rows);
    let schedule = Schedule::new(shards, &job.plans.micro, shard, counts, node);
    for (rank, calls) in (0..).zip(calls) {
        let wanted: Calls = schedule
            .step()
            .into_iter()
            .filter_map(|action| schedule.exchange(action, rank))
            .map(|exchange| {
                let kind = match exchange.dtype() {
                    DType::F32 => Kind::Float,
                    DType::Bf16 => Kind::BFloat16,
                    DType::F64 => Kind::Double,
                    DType::I64 => Kind::Int64,
                };
                let signed = |counts: Vec<u64>| counts.iter().map(|n| *n as i64).collect();
                let call = match exchange {
                    Exchange::AllToAll { sent, received, .. } => {
                        Call::AllToAll(signed(sent), signed(received))
                    }
                    Exchange::AllGather { each, .. } => Call::AllGather(each as i64),
                    Exchange::Broadcast { elements, .. } => Call::Broadcast(elements as i64),
                };
                (call, kind)
            })
            .collect();
        let found = calls.windows(wanted.len()).filter(|calls| **calls == wanted).count();
        assert_eq!(found as u64, LAST, "rank {rank} of {ranks}, {shard:?}: {wanted:?}\n{calls:?}");
    }
}

#[test]
fn a_run_goes_on_with_another_number_of_ranks() {
    let straight = Folder::finished(&several());
    let folder = Folder::new();
    for (ranks, shard, step) in [
        (3, Shard::Optimizer, 2),
        (1, Shard::None, 3),
        (4, Shard::Full, 5),
        (2, Shard::Full, 6),
        (2, Shard::Optimizer, 7),
    ] {
        let (end, _) = run(&folder, &several, flat(ranks, shard), Some(step));
        assert_eq!(end, Some(TrainOutcome::Interrupted { step }));
    }
    folder.finish(&several());
    assert_eq!(differing(&straight.bits(LAST), &folder.bits(LAST)), Vec::<String>::new());
}

#[test]
fn every_family_in_f32_and_bf16() {
    for arch in ["wide", "wide_delta", "wide_gla", "wide_mamba"] {
        for policy in ["f32", "bf16"] {
            let changes = format!("[precision]\npolicy = \"{policy}\"\n[platform]");
            let recipe = || {
                let fewer = ("steps = 8", "steps = 3");
                let five = ("micro_batches = 2", "micro_batches = 5");
                experiment(arch, DEPO, &[five, fewer, ("[platform]", &changes)])
            };
            let straight = Folder::finished(&recipe());
            let folder = Folder::new();
            let divided = Divided { node: Some(2), ..flat(4, Shard::Full) };
            run(&folder, &recipe, divided, None);
            let differing = differing(&straight.bits(3), &folder.bits(3));
            assert_eq!(differing, Vec::<String>::new(), "{arch} in {policy}");
        }
    }
}
