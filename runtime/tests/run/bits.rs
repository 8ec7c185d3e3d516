//! Equal bits: two runs, an interrupted and resumed run, arms that share parameters and data, sums in any order.

use data::batch::Batch;
use records::checkpoint::Part;
use records::metrics::Record;
use records::run::Event;
use runtime::execute::Trainer;
use runtime::state::{State, gradients};
use runtime::train::{TrainOutcome, machine};

use super::support::*;

const LAST: u64 = 8;

#[test]
fn two_runs_of_one_lock_are_equal_in_every_byte() {
    let experiment = depo(&[]);
    let (one, two) = (Folder::finished(&experiment), Folder::finished(&experiment));
    assert_eq!(differing(&one.bits(LAST), &two.bits(LAST)), Vec::<String>::new());
    let text = |folder: &Folder| {
        let text = String::from_utf8(bytes(&folder.paths().attestation())).unwrap();
        text.split("[unsealed]").next().unwrap().to_owned()
    };
    assert_eq!(text(&one), text(&two));
    // They must not be equal just because nothing happened.
    let steps = steps(&one.records());
    assert_eq!(steps.len(), LAST as usize);
    assert!(
        steps.windows(2).all(|pair| pair[0].loss != pair[1].loss && pair[0].batch != pair[1].batch)
    );
    let other = Folder::finished(&depo(&[("init = 1", "init = 3")]));
    assert!(
        differing(&one.bits(LAST), &other.bits(LAST)).contains(&"weights.safetensors".to_owned())
    );
}

#[test]
fn a_run_resumed_from_anywhere_has_the_bits_of_an_uninterrupted_one() {
    let experiment = depo(&[]);
    let straight = Folder::finished(&experiment);
    let cut = Folder::new();
    for step in [1, 2, 4, 5, 7] {
        cut.stop_at(&experiment, step);
    }
    // Asked to stop at the step where it already is, it does nothing.
    let (end, observer) = cut.run(&experiment, Some(3), None);
    assert_eq!((end.unwrap(), observer.steps.len()), (TrainOutcome::Interrupted { step: 7 }, 0));
    cut.finish(&experiment);
    assert_eq!(differing(&straight.bits(LAST), &cut.bits(LAST)), Vec::<String>::new());
}

#[test]
fn a_run_stopped_before_its_first_step_leaves_a_checkpoint() {
    let experiment = depo(&[]);
    let straight = Folder::finished(&experiment);
    let folder = Folder::new();
    for _ in 0..2 {
        folder.stop_at(&experiment, 0);
        assert!(folder.checkpoint(0).join("weights.safetensors").exists());
        assert_eq!(folder.records().len(), 1);
    }
    let (end, observer) = folder.run(&experiment, None, None);
    assert!(matches!(end, Ok(TrainOutcome::Finished(_))), "{end:?}");
    assert_eq!(observer.steps.len(), LAST as usize);
    assert_eq!(differing(&straight.bits(LAST), &folder.bits(LAST)), Vec::<String>::new());
}

#[test]
fn steps_after_the_last_checkpoint_are_proved_again() {
    let experiment = depo(&[]);
    let straight = Folder::finished(&experiment);
    let folder = Folder::new();
    // The disk is full when step 6 is to be saved: five steps and their lines are there, the checkpoint of 3 too.
    let (end, _) = folder.run(&experiment, None, Some("checkpoint-full:4"));
    assert!(end.unwrap_err().message.contains("disk is full"));
    let (end, observer) = folder.run(&experiment, None, None);
    assert!(matches!(end, Ok(TrainOutcome::Finished(_))), "{end:?}");
    // Steps 4 to 6 and the evaluation after 4.
    assert!(
        observer.events.contains(&Event::Proved { step: 6, lines: 4 }),
        "{:?}",
        observer.events
    );
    let proofs = observer.events.iter().filter(|event| matches!(event, Event::Proved { .. }));
    assert_eq!(proofs.count(), 1, "it is told once: {:?}", observer.events);
    let attested = std::fs::read_to_string(folder.paths().attestation()).unwrap();
    assert!(attested.contains("\nprocesses = 2\nproved = 4\n"), "{attested}");
    assert_eq!(differing(&straight.bits(LAST), &folder.bits(LAST)), Vec::<String>::new());
}

#[test]
fn a_finished_run_says_so_and_touches_nothing() {
    let experiment = depo(&[]);
    let folder = Folder::finished(&experiment);
    let before = (folder.bits(LAST), bytes(&folder.paths().attestation()));
    let (end, observer) = folder.run(&experiment, None, None);
    assert!(matches!(end, Ok(TrainOutcome::Already(_))), "{end:?}");
    assert!(observer.steps.is_empty() && observer.events.is_empty());
    assert!((folder.bits(LAST), bytes(&folder.paths().attestation())) == before);
}

#[test]
fn arms_share_initial_parameters_and_batches() {
    let (base, canon) = (depo(&[]), experiment("small_canon", DEPO, &[]));
    let mut jobs = [&base, &canon].map(|experiment| job(experiment, None).unwrap());
    let machine = machine(&base.platform).unwrap();
    let [one, two] = [0, 1].map(|at: usize| State::initial(&jobs[at], machine).unwrap());
    let slots = [jobs[0].slots(), jobs[1].slots()];
    let mut shared = 0;
    for (index, slot) in slots[0].iter().enumerate() {
        let other = slots[1].iter().position(|other| other == slot).expect("the twin has it too");
        let (mut left, mut right) = (Vec::new(), Vec::new());
        one.read(Part::Weights, index, &mut left).unwrap();
        two.read(Part::Weights, other, &mut right).unwrap();
        assert_eq!(left, right, "{}", slot.path);
        shared += 1;
    }
    assert!(shared > 10 && slots[1].len() > slots[0].len());
    for step in 0..4 {
        let digests = |batches: Vec<Batch>| -> Vec<_> {
            batches.iter().flat_map(Batch::window_digests).collect()
        };
        let [one, two] = &mut jobs;
        assert_eq!(digests(one.batches(step).unwrap()), digests(two.batches(step).unwrap()));
    }
    // The logs of their runs must agree with that.
    let (one, two) = (Folder::finished(&base), Folder::finished(&canon));
    let (one, two) = (steps(&one.records()), steps(&two.records()));
    assert!(one.iter().zip(&two).all(|(one, two)| one.batch == two.batch && one.lr == two.lr));
    assert!(one.iter().zip(&two).all(|(one, two)| one.loss != two.loss));
}

#[test]
fn micro_batches_sum_to_equal_bits_in_any_order_of_arrival() {
    one_thread();
    let experiment = depo(&[("micro_batches = 2", "micro_batches = 8")]);
    let mut job = job(&experiment, None).unwrap();
    let machine = machine(&experiment.platform).unwrap();
    let trainer = Trainer::new(job.plans.clone(), machine).unwrap();
    let state = State::initial(&job, machine).unwrap();
    let batches = job.batches(0).unwrap();
    let counted: u64 = batches.iter().map(Batch::counted_targets).sum();
    let sums_of = |order: &[u64], in_sequence| {
        let weights = &state.weights;
        let sums = gradients(&trainer, weights, &batches, order, in_sequence, counted).unwrap();
        let mut bits = vec![sums.loss_sum().unwrap().to_bits()];
        for gradient in &sums.gradients {
            let flat = Vec::<f32>::try_from(gradient.reshape([-1])).unwrap();
            bits.extend(flat.iter().map(|value| u64::from(value.to_bits())));
        }
        bits
    };
    let sums = |order: &[u64]| sums_of(order, 1);
    let want = sums(&[0, 1, 2, 3, 4, 5, 6, 7]);
    for order in [[7, 6, 5, 4, 3, 2, 1, 0], [3, 0, 6, 1, 7, 2, 5, 4], [4, 5, 0, 7, 2, 3, 6, 1]] {
        assert!(sums(&order) == want, "{order:?}");
    }
    // Adding eight one after another gives other values, so they are equal because of the sum's shape.
    let one_by_one = batches.chunks(1).map(|batch| {
        let sums = gradients(&trainer, &state.weights, batch, &[0], 1, counted).unwrap();
        Vec::<f32>::try_from(sums.gradients[0].reshape([-1])).unwrap()
    });
    let running = one_by_one.reduce(|mut left, right| {
        left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
        left
    });
    let tree: Vec<u64> = want[1..].iter().take(running.as_ref().unwrap().len()).copied().collect();
    let running: Vec<u64> = running.unwrap().iter().map(|x| u64::from(x.to_bits())).collect();
    assert!(running != tree);
    // A lock can ask for that order, and it does not depend on the order of arrival.
    for order in [[0, 1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1, 0]] {
        assert!(sums_of(&order, 8)[1..].iter().take(running.len()).eq(&running), "{order:?}");
    }
}

#[test]
fn when_memory_runs_out_the_step_of_the_plan_is_named() {
    one_thread();
    let job = job(&depo(&[]), None).unwrap();
    let machine = machine(&depo(&[]).platform).unwrap();
    let trainer = Trainer::new(job.plans.clone(), machine).unwrap();
    let state = State::initial(&job, machine).unwrap();
    // One token, as a sequence of 2^44 of them: the input takes no memory, the first result more than there is.
    let tokens = tch::Tensor::zeros([1, 1], (tch::Kind::Int64, tch::Device::Cpu))
        .expand([1, 1 << 44], false);
    let error = trainer.micro_batch(&state.weights, &tokens, &tokens, 1.0).unwrap_err().to_string();
    assert!(
        error.starts_with("step 0 (forward, embed): memory ran out when it asked for"),
        "{error}"
    );
    assert!(error.contains("TiB") && error.contains("--dry-run"), "{error}");
}

/// However many micro-batches a step has, it asks its device for numbers once, and those are what the log gets.
#[test]
fn a_step_reads_once() {
    one_thread();
    for micro_batches in [1, 2, 8] {
        let experiment =
            depo(&[("micro_batches = 2", &format!("micro_batches = {micro_batches}"))]);
        let mut job = job(&experiment, None).unwrap();
        let machine = machine(&experiment.platform).unwrap();
        let trainer = Trainer::new(job.plans.clone(), machine).unwrap();
        let mut state = State::initial(&job, machine).unwrap();
        let before = runtime::kernels::transfer::readbacks();
        for step in 1..=3 {
            let logged = state.advance(&mut job, &trainer).unwrap();
            assert!(logged.loss.unwrap().is_finite() && logged.grad_norm > 0.0);
            assert_eq!(runtime::kernels::transfer::readbacks() - before, step);
        }
    }
}

#[test]
fn cosmetic_fields_change_no_bit_of_losses_and_weights() {
    let base = depo(&[]);
    let want = Folder::finished(&base);
    let changes: [(&str, &str); 4] = [
        ("every = 3", "every = 1"),
        ("every = 3", "every = 0\nkeep = 5"),
        ("[evaluation]\nevery = 4", "[evaluation]\nevery = 1"),
        ("[platform]", "[log]\nevery = 1\n[platform]"),
    ];
    for change in changes {
        let experiment = depo(&[change]);
        assert_eq!(experiment.digests, base.digests, "{change:?}");
        let folder = Folder::finished(&experiment);
        assert_eq!(steps(&folder.records()), steps(&want.records()), "{change:?}");
        let (mut bits, mut wanted) = (folder.bits(LAST), want.bits(LAST));
        // Only one of the logs has lines of evaluations.
        for file in ["metrics.jsonl", "checkpoint.toml"] {
            bits.remove(file);
            wanted.remove(file);
        }
        assert_eq!(differing(&wanted, &bits), Vec::<String>::new(), "{change:?}");
    }
}

#[test]
fn platform_fields_keep_three_steps_within_rounding() {
    let short = ("steps = 8", "steps = 3");
    let arch = |changes: &[(&str, &str)]| experiment("small_canon", DEPO, changes);
    let base = arch(&[short]);
    let want = steps(&Folder::finished(&base).records());
    let changes = [
        ("threads = 1", "threads = 1\nfuse = false"),
        ("threads = 1", "threads = 1\nrecompute = \"layers\""),
        ("threads = 1", "threads = 1\nrecompute = \"selective\""),
        ("threads = 1", "threads = 1\nkernels.canon = \"reference\""),
    ];
    for change in changes {
        let experiment = arch(&[short, change]);
        assert_eq!(experiment.id(), base.id(), "{change:?}");
        assert_ne!(experiment.digests.platform, base.digests.platform, "{change:?}");
        let got = steps(&Folder::finished(&experiment).records());
        for (want, got) in want.iter().zip(&got) {
            let close = |a: f64, b: f64| (a - b).abs() <= 2e-5 * a.abs().max(1.0);
            assert!(
                close(want.loss.unwrap(), got.loss.unwrap())
                    && close(want.grad_norm, got.grad_norm),
                "{change:?}: {want:?} {got:?}"
            );
            assert_eq!((want.batch, want.lr, want.counted), (got.batch, got.lr, got.counted));
        }
        assert_eq!(got.len(), 3);
    }
}

#[test]
fn evaluations_come_when_they_are_due_and_at_the_end() {
    let folder = Folder::finished(&depo(&[("steps = 8", "steps = 6")]));
    let places: Vec<String> = folder.records().iter().map(Record::title).collect();
    let evaluations: Vec<&String> = places.iter().filter(|place| place.contains("eval")).collect();
    assert_eq!(evaluations, ["the evaluation after step 4", "the evaluation after step 6"]);
    assert_eq!(places[0], "the start");
    let Some(Record::Evaluation(evaluation)) = folder.records().pop() else {
        panic!("the last line")
    };
    assert_eq!(evaluation.answers.keys().copied().collect::<Vec<_>>(), [1, 2]);
    assert!(evaluation.tokens.of >= evaluation.exact().of && evaluation.exact().of > 0);
    assert!(evaluation.nll.unwrap() > 0.0 && evaluation.counted > 0);
}
