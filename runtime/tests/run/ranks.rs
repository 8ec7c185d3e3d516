//! Equal bits on any number of ranks.

use std::sync::atomic::AtomicBool;

use compiler::plan::DType;
use lab::experiment::Shard;
use records::fault::Faults;
use runtime::ranks::simulated::{Call, Trouble, with_trouble};
use runtime::ranks::{Collectives, Member};
use runtime::train::{Options, TrainOutcome, follow, machine, train};

use scale::schedule::{Action, Counts, Exchange, Schedule};
use scale::shard::Shards;
use tch::Kind;

use super::groups::{GROUPS, MUON};
use super::support::*;

const LAST: u64 = 8;

/// Five micro-batches, and parameters of several blocks.
fn several() -> lab::experiment::Experiment {
    experiment("wide", DEPO, &[("micro_batches = 2", "micro_batches = 5")])
}

/// The same for half as many steps, with a checkpoint before the last one.
fn short() -> lab::experiment::Experiment {
    let changes = [("micro_batches = 2", "micro_batches = 5"), ("steps = 8", "steps = 4")];
    experiment("wide", DEPO, &changes)
}

/// The last step of [`short`].
const SHORT: u64 = 4;

/// How ranks divide a run, and what goes wrong.
#[derive(Clone, Copy, Debug)]
struct Divided {
    ranks: u64,
    shard: Shard,
    node: Option<u64>,
    trouble: Trouble,
    /// This rank computes a wrong gradient in this step.
    wrong: Option<(u64, u64)>,
}

fn flat(ranks: u64, shard: Shard) -> Divided {
    Divided { ranks, shard, node: None, trouble: Trouble::default(), wrong: None }
}

/// The collectives that a rank called.
type Calls = Vec<(Call, Kind)>;

/// The collectives that a rank began in order, and the most of them that were under way at a time.
type Began = (Calls, u64);

/// Trains to `stop_after`, or to the end. Returns the calls of each rank, too.
fn run(
    folder: &Folder,
    recipe: &(dyn Fn() -> lab::experiment::Experiment + Sync),
    divided: Divided,
    stop_after: Option<u64>,
) -> (Option<TrainOutcome>, Vec<Began>) {
    let (mut ends, calls) = tried(folder, recipe, divided, stop_after);
    for end in ends.iter_mut().skip(1) {
        assert!(end.is_ok(), "{end:?}");
    }
    (Some(ends.remove(0).unwrap().unwrap()), calls)
}

/// Like [`run`], with the outcome of each rank: that of rank 0 is the training's.
fn tried(
    folder: &Folder,
    recipe: &(dyn Fn() -> lab::experiment::Experiment + Sync),
    Divided { ranks, shard, node, trouble, wrong }: Divided,
    stop_after: Option<u64>,
) -> (Vec<Result<Option<TrainOutcome>, String>>, Vec<Began>) {
    let path = folder.path();
    let ends = with_trouble(ranks, trouble, |simulated| {
        let experiment = recipe();
        let mut job = job(&experiment, None).unwrap();
        let machine = machine(&experiment.platform).unwrap();
        let simulated = std::rc::Rc::new(simulated);
        let wrong_in = wrong.filter(|(rank, _)| *rank == simulated.rank()).map(|(_, step)| step);
        let member = Member { ranks: simulated.clone(), shard, node, wrong_in };
        let stop = AtomicBool::new(false);
        let end = if simulated.rank() > 0 {
            follow(&mut job, machine, &member, &stop, &path).map(|_| None)
        } else {
            let faults = Faults::none();
            let ranks = Some(&member);
            let options = Options { stop: &stop, stop_after, faults: &faults, ranks };
            let observer = &mut RecordingObserver::default();
            train(&mut job, &path, machine, &options, observer).map(Some)
        };
        let began = (simulated.calls(), simulated.most_under_way());
        (end.map_err(|error| error.message), began)
    });
    ends.into_iter().unzip()
}

#[test]
fn any_number_of_ranks_gives_the_bits_of_one() {
    let straight = Folder::finished(&short());
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
        let (end, calls) = run(&folder, &short, divided, None);
        assert!(matches!(end, Some(TrainOutcome::Finished(_))), "{end:?}");
        assert_eq!(
            differing(&straight.bits(SHORT), &folder.bits(SHORT)),
            Vec::<String>::new(),
            "{divided:?}"
        );
        as_scheduled(divided, &calls);
    }
}

/// Auxiliary losses are means over a micro-batch, so ranks change none of their bits.
#[test]
fn experts_and_their_losses_have_the_bits_of_one_rank() {
    let recipe = || experts(&[("micro_batches = 2", "micro_batches = 5")]);
    let straight = Folder::finished(&recipe());
    for divided in [flat(2, Shard::None), flat(3, Shard::Full)] {
        let folder = Folder::new();
        let (end, _) = run(&folder, &recipe, divided, None);
        assert!(matches!(end, Some(TrainOutcome::Finished(_))), "{end:?}");
        let differing = differing(&straight.bits(LAST), &folder.bits(LAST));
        assert_eq!(differing, Vec::<String>::new(), "{divided:?}");
    }
}

/// The loss of a second head is added like the first one's.
#[test]
fn a_second_head_has_the_bits_of_one_rank() {
    let recipe = || ahead("0.5", &[("micro_batches = 2", "micro_batches = 5")]);
    let straight = Folder::finished(&recipe());
    for divided in [flat(2, Shard::None), flat(3, Shard::Full)] {
        let folder = Folder::new();
        let (end, _) = run(&folder, &recipe, divided, None);
        assert!(matches!(end, Some(TrainOutcome::Finished(_))), "{end:?}");
        let differing = differing(&straight.bits(LAST), &folder.bits(LAST));
        assert_eq!(differing, Vec::<String>::new(), "{divided:?}");
    }
}

/// Dropout draws by window, whichever rank has it, and when a neighbour repeats it.
#[test]
fn dropout_has_the_bits_of_one_rank() {
    let check = ("[platform]", "[ranks]\ncheck_every = 2\n[platform]");
    let recipe = || dropping("dropping", &[("micro_batches = 2", "micro_batches = 5"), check]);
    let straight = Folder::finished(&recipe());
    for divided in [flat(2, Shard::None), flat(3, Shard::Full)] {
        let folder = Folder::new();
        let (end, _) = run(&folder, &recipe, divided, None);
        assert!(matches!(end, Some(TrainOutcome::Finished(_))), "{end:?}");
        let differing = differing(&straight.bits(LAST), &folder.bits(LAST));
        assert_eq!(differing, Vec::<String>::new(), "{divided:?}");
    }
}

/// Every rank began exactly what the schedule lists, in that order and in those sizes, once for each step; and as many
/// exchanges were under way at a time.
fn as_scheduled(Divided { ranks, shard, node, .. }: Divided, began: &[Began]) {
    let job = job(&short(), None).unwrap();
    let shards = Shards::new(&job.graph, ranks);
    let counts =
        Counts { micro_batches: job.micro_batches, in_sequence: job.in_sequence, rows: job.rows };
    let schedule = Schedule::new(shards, &job.plans.micro, shard, counts, node);
    let (mut under_way, mut most_at_a_time) = (0u64, 0);
    for step in 0..2 {
        for action in schedule.step() {
            under_way += u64::from(matches!(action, Action::Begin(_) | Action::Tell));
            // Announced is what the step before began to tell.
            let ends =
                matches!(action, Action::Wait(_)) || matches!(action, Action::Announce if step > 0);
            under_way -= u64::from(ends);
            let waits = matches!(action, Action::Losses { .. } | Action::Norm);
            most_at_a_time = most_at_a_time.max(under_way + u64::from(waits));
        }
    }
    assert!(most_at_a_time > 1, "{shard:?}");
    for (rank, (calls, most)) in (0..).zip(began) {
        assert_eq!(*most, most_at_a_time, "rank {rank} of {ranks}, {shard:?}");
        let mut rest = calls.as_slice();
        for step in 1..=SHORT {
            let mut actions = schedule.step();
            // A process tells of its first step in that step, and there is none after the last one.
            if step == SHORT {
                actions.retain(|action| *action != Action::Tell);
            }
            if step == 1 {
                let announced = actions.iter_mut().find(|action| **action == Action::Announce);
                *announced.unwrap() = Action::Tell;
            }
            let wanted = calls_of(&schedule, &actions, rank);
            let at = rest.windows(wanted.len()).position(|calls| *calls == wanted);
            let at = at.unwrap_or_else(|| {
                panic!("step {step}, rank {rank} of {ranks}, {shard:?}: {wanted:?}\n{rest:?}")
            });
            rest = &rest[at + wanted.len()..];
        }
    }
}

/// What a rank calls for these actions.
fn calls_of(schedule: &Schedule, actions: &[Action], rank: u64) -> Calls {
    let exchanges = actions.iter().filter_map(|action| schedule.exchange(*action, rank));
    exchanges
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
        .collect()
}

/// Parameters without moments, or with another learning rate, are divided as the others are.
#[test]
fn groups_of_parameters_are_divided_with_equal_bits() {
    let grouped =
        || experiment("wide", DEPO, &[("micro_batches = 2", "micro_batches = 5"), GROUPS]);
    let straight = Folder::finished(&grouped());
    for divided in [flat(2, Shard::None), flat(3, Shard::Optimizer), flat(3, Shard::Full)] {
        let folder = Folder::new();
        let (end, _) = run(&folder, &grouped, divided, Some(4));
        assert_eq!(end, Some(TrainOutcome::Interrupted { step: 4 }));
        // It goes on with other ranks, which get their parts of the state.
        let (end, _) = run(&folder, &grouped, flat(2, Shard::Full), Some(6));
        assert_eq!(end, Some(TrainOutcome::Interrupted { step: 6 }));
        folder.finish(&grouped());
        assert_eq!(
            differing(&straight.bits(LAST), &folder.bits(LAST)),
            Vec::<String>::new(),
            "{divided:?}"
        );
    }
}

/// Every rank updates whole matrices, from the whole sums of gradients.
#[test]
fn muon_has_the_bits_of_one_rank_on_several() {
    let muon = || experiment("wide", DEPO, &[("micro_batches = 2", "micro_batches = 5"), MUON]);
    let straight = Folder::finished(&muon());
    for divided in [flat(2, Shard::None), Divided { node: Some(2), ..flat(4, Shard::None) }] {
        let folder = Folder::new();
        let (end, _) = run(&folder, &muon, divided, Some(3));
        assert_eq!(end, Some(TrainOutcome::Interrupted { step: 3 }));
        let (end, _) = run(&folder, &muon, flat(3, Shard::None), None);
        assert!(matches!(end, Some(TrainOutcome::Finished(_))), "{end:?}");
        assert_eq!(
            differing(&straight.bits(LAST), &folder.bits(LAST)),
            Vec::<String>::new(),
            "{divided:?}"
        );
    }
}

#[test]
fn a_run_resumes_with_another_number_of_ranks() {
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
fn every_family_in_f32_and_bf16_with_other_ranks_at_each_of_three_resumes() {
    for arch in ["wide", "wide_delta", "wide_gla", "wide_mamba"] {
        for policy in ["f32", "bf16"] {
            let changes = format!("[precision]\npolicy = \"{policy}\"\n[platform]");
            let recipe = || {
                let fewer = ("steps = 8", "steps = 4");
                let five = ("micro_batches = 2", "micro_batches = 5");
                experiment(arch, DEPO, &[five, fewer, ("[platform]", &changes)])
            };
            let straight = Folder::finished(&recipe());
            let folder = Folder::new();
            let by_node = Divided { node: Some(2), ..flat(4, Shard::Full) };
            for (divided, stop_after) in [
                (flat(3, Shard::Optimizer), Some(1)),
                (by_node, Some(2)),
                (flat(2, Shard::None), Some(3)),
                (flat(5, Shard::Full), None),
            ] {
                run(&folder, &recipe, divided, stop_after);
            }
            let differing = differing(&straight.bits(4), &folder.bits(4));
            assert_eq!(differing, Vec::<String>::new(), "{arch} in {policy}");
        }
    }
}

#[test]
fn neighbours_that_are_added_in_sequence_are_so_on_any_number_of_ranks() {
    let recipe = |in_sequence: u64| {
        move || {
            let seven = format!("micro_batches = 7\nin_sequence = {in_sequence}");
            let fewer = ("steps = 8", "steps = 2");
            experiment("wide", DEPO, &[("micro_batches = 2", seven.as_str()), fewer])
        }
    };
    let tree = Folder::finished(&recipe(1)());
    for in_sequence in [3, 7] {
        let recipe = recipe(in_sequence);
        let straight = Folder::finished(&recipe());
        assert_ne!(straight.bits(2), tree.bits(2), "{in_sequence} changes bits");
        for divided in [
            flat(2, Shard::None),
            flat(7, Shard::Full),
            Divided { node: Some(2), ..flat(4, Shard::Optimizer) },
            Divided { node: Some(3), ..flat(6, Shard::Full) },
        ] {
            let folder = Folder::new();
            run(&folder, &recipe, divided, None);
            let differing = differing(&straight.bits(2), &folder.bits(2));
            assert_eq!(differing, Vec::<String>::new(), "{in_sequence}, {divided:?}");
        }
    }
}

/// Checks each step, of which there are few.
fn checked() -> lab::experiment::Experiment {
    let changes = [
        ("micro_batches = 2", "micro_batches = 5"),
        ("steps = 8", "steps = 4"),
        ("[platform]", "[ranks]\ncheck_every = 2\n[platform]"),
    ];
    experiment("wide", DEPO, &changes)
}

#[test]
fn a_rank_that_computes_wrongly_is_found_by_its_neighbour() {
    let straight = Folder::finished(&checked());
    let by_node = Divided { node: Some(2), ..flat(4, Shard::Full) };
    for divided in [flat(3, Shard::None), flat(3, Shard::Optimizer), flat(5, Shard::Full), by_node]
    {
        // Checks change no bit.
        let folder = Folder::new();
        let (end, _) = run(&folder, &checked, divided, None);
        assert!(matches!(end, Some(TrainOutcome::Finished(_))), "{end:?}");
        assert_eq!(differing(&straight.bits(4), &folder.bits(4)), Vec::<String>::new());

        let folder = Folder::new();
        let (ends, _) = tried(&folder, &checked, Divided { wrong: Some((2, 4)), ..divided }, None);
        let error = ends[0].as_ref().unwrap_err();
        // The test makes the first gradient wrong that is sent.
        let wanted =
            "ranks 1 and 2 compute different gradients of head.output for micro-batch 2 of step 4";
        assert_eq!(*error, wanted);
        assert!(ends[1..].iter().all(Result::is_ok), "{ends:?}");
        // The step is not in the log; the last checkpoint leads to the right end.
        let (end, _) = run(&folder, &checked, flat(2, Shard::Full), None);
        assert!(matches!(end, Some(TrainOutcome::Finished(_))), "{end:?}");
        assert_eq!(differing(&straight.bits(4), &folder.bits(4)), Vec::<String>::new());
    }
}

#[test]
fn delays_change_no_bit_and_a_death_or_a_cut_message_ends_all_and_is_named() {
    let recipe = || {
        let five = ("micro_batches = 2", "micro_batches = 5");
        experiment("wide", DEPO, &[five, ("steps = 8", "steps = 3")])
    };
    let straight = Folder::finished(&recipe());
    let by_node = Divided { node: Some(2), ..flat(4, Shard::Full) };
    for (n, divided) in
        [flat(3, Shard::None), flat(5, Shard::Full), by_node].into_iter().enumerate()
    {
        let folder = Folder::new();
        let slow = Trouble { delays: Some(n as u64), ..Trouble::default() };
        let (_, calls) = run(&folder, &recipe, Divided { trouble: slow, ..divided }, None);
        assert_eq!(differing(&straight.bits(3), &folder.bits(3)), Vec::<String>::new());
        let exchanges = calls[0].0.len() as u64;
        // One of four parts of the exchanges, another one for each division.
        for case in 0..u64::from(support::cases(4)) {
            let part = (case + n as u64) % 4;
            let (rank, at) = (1 + part % (divided.ranks - 1), 1 + exchanges * part / 4);
            let folder = Folder::new();
            let dies = Trouble { dies: Some((rank, at)), ..slow };
            let (ends, _) = tried(&folder, &recipe, Divided { trouble: dies, ..divided }, None);
            for (other, end) in (0..).zip(&ends).filter(|(other, _)| *other != rank) {
                let error = end.as_ref().unwrap_err();
                assert!(
                    error.contains(&format!("rank {rank} does not respond")),
                    "{other}: {error}"
                );
            }
            let cuts = Trouble { cuts: Some((rank, at)), ..Trouble::default() };
            let cut = Folder::new();
            let (ends, _) = tried(&cut, &recipe, Divided { trouble: cuts, ..divided }, None);
            let named = format!("a message of rank {rank} has");
            // Rank 0 reads nothing of what others give to a broadcast.
            let affected =
                ends.iter().filter(|end| end.as_ref().is_err_and(|why| why.contains(&named)));
            let finished = matches!(ends[0], Ok(Some(TrainOutcome::Finished(_))));
            assert!(affected.count() > 0 || finished, "{part}: {ends:?}");
            for (folder, finished) in [(folder, false), (cut, finished)] {
                if !finished {
                    folder.finish(&recipe());
                }
                assert_eq!(differing(&straight.bits(3), &folder.bits(3)), Vec::<String>::new());
            }
        }
    }
}

#[test]
fn an_evaluation_is_shared_like_a_step_and_gives_the_bits_of_one() {
    let last = ("steps = 8", "steps = 2");
    // Seven windows are four batches; 257 samples are two parts of what a model writes.
    let seven = ("every = 4\nwindows = 3", "every = 1\nwindows = 7");
    let samples = ("every = 4\nwindows = 3", "windows = 3\nsamples = 257");
    let written = |task: &str, arch, changes: &[(&str, &str)]| {
        experiment(arch, &recipe_of(task), &[&[last, samples], changes].concat())
    };
    let longer = [("seq_len = 32", "seq_len = 64")];
    // A window has a whole biography.
    let long = [("every = 1", "every = 2"), ("seq_len = 32", "seq_len = 600")];
    let recipes: [&(dyn Fn() -> lab::experiment::Experiment + Sync); 4] = [
        &|| experiment("wide", DEPO, &[last, seven]),
        &|| written("task = \"brevo\"\nbrevo.N = 3", "small_canon", &[]),
        &|| written("task = \"lano\"\nlano.config = \"cfg3f\"", "small_canon", &longer),
        &|| {
            let text = recipe_of("task = \"capo\"\ncapo.N = 5\ncapo.permute = true");
            experiment("small_text", &text, &[&[last, seven][..], &long].concat())
        },
    ];
    for (number, recipe) in recipes.into_iter().enumerate() {
        let straight = Folder::finished(&recipe());
        for divided in [flat(2, Shard::Full), flat(3, Shard::None)] {
            let folder = Folder::new();
            run(&folder, recipe, divided, None);
            let differing = differing(&straight.bits(2), &folder.bits(2));
            assert_eq!(differing, Vec::<String>::new(), "recipe {number}, {divided:?}");
        }
        let Some(records::metrics::Record::Evaluation(scored)) = straight.records().pop() else {
            panic!("recipe {number} ends without an evaluation")
        };
        assert_eq!(scored.measures.len(), [0, 0, 2, 2][number], "{scored:?}");
    }
}

#[test]
fn memory_that_runs_out_in_an_exchange_names_it() {
    for (shard, wanted) in [
        // The first exchange of tensors in a step.
        (
            Shard::Full,
            "exchange of the parameters of embed: memory ran out when it asked for 4.0 KiB",
        ),
        (
            Shard::None,
            "exchange of the gradients of head.output: memory ran out when it asked for 4.0 KiB",
        ),
    ] {
        let folder = Folder::new();
        let (_, calls) = run(&folder, &several, flat(2, shard), Some(1));
        let at = calls[0].0.iter().position(|(call, kind)| {
            *kind == Kind::Float && matches!(call, Call::AllGather(_)) == (shard == Shard::Full)
        });
        let at = at.unwrap() as u64;
        let fills = Trouble { fills: Some((1, at)), ..Trouble::default() };
        let divided = Divided { trouble: fills, ..flat(2, shard) };
        let (ends, _) = tried(&Folder::new(), &several, divided, Some(1));
        let error = ends[1].as_ref().unwrap_err();
        assert!(error.starts_with(wanted), "{error}");
        assert!(ends[0].as_ref().unwrap_err().contains("rank 1 does not respond"), "{ends:?}");
    }
}
