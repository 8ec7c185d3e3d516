//! Equal bits on any number of ranks.

use std::sync::atomic::AtomicBool;

use records::fault::Faults;
use runtime::ranks::simulated::with_ranks;
use runtime::ranks::{Collectives, Member};
use runtime::train::{Options, TrainOutcome, follow, machine, train};

use super::support::*;

const LAST: u64 = 8;

/// Five micro-batches, and parameters of several blocks.
fn several() -> lab::experiment::Experiment {
    experiment("wide", DEPO, &[("micro_batches = 2", "micro_batches = 5")])
}

/// Trains to `stop_after`, or to the end.
fn run(
    folder: &Folder,
    recipe: &(dyn Fn() -> lab::experiment::Experiment + Sync),
    ranks: u64,
    divide_moments: bool,
    stop_after: Option<u64>,
) -> Option<TrainOutcome> {
    let path = folder.path();
    let ends = with_ranks(ranks, |simulated| {
        let rank = simulated.rank();
        let experiment = recipe();
        let mut job = job(&experiment, None).unwrap();
        let machine = machine(&experiment.platform).unwrap();
        let member = Member { ranks: std::rc::Rc::new(simulated), divide_moments };
        let stop = AtomicBool::new(false);
        if rank > 0 {
            follow(&mut job, machine, &member, &stop).unwrap();
            return None;
        }
        let faults = Faults::none();
        let options = Options { stop: &stop, stop_after, faults: &faults, ranks: Some(&member) };
        Some(train(&mut job, &path, machine, &options, &mut Told::default()).unwrap())
    });
    ends.into_iter().flatten().next()
}

#[test]
fn any_number_of_ranks_gives_the_bits_of_one() {
    let straight = Folder::finished(&several());
    for (ranks, divide_moments) in
        [(1, true), (2, false), (3, true), (4, false), (5, true), (7, true)]
    {
        let folder = Folder::new();
        let end = run(&folder, &several, ranks, divide_moments, None);
        assert!(matches!(end, Some(TrainOutcome::Finished(_))), "{end:?}");
        assert_eq!(
            differing(&straight.bits(LAST), &folder.bits(LAST)),
            Vec::<String>::new(),
            "{ranks} ranks"
        );
    }
}

#[test]
fn a_run_goes_on_with_another_number_of_ranks() {
    let straight = Folder::finished(&several());
    let folder = Folder::new();
    for (ranks, step) in [(3, 2), (1, 3), (4, 5), (2, 7)] {
        let end = run(&folder, &several, ranks, ranks != 4, Some(step));
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
            run(&folder, &recipe, 3, true, None);
            let differing = differing(&straight.bits(3), &folder.bits(3));
            assert_eq!(differing, Vec::<String>::new(), "{arch} in {policy}");
        }
    }
}
