//! Steps trained again: the faults that only this can find, and the report when it was not done.

use std::fs;
use std::sync::atomic::AtomicBool;

use compiler::digest::Digest;
use lab::experiment::Experiment;
use records::checkpoint::{Part, name_of};
use records::fault::Faults;
use records::job::{Job, PLAN_TAG, plan_text};
use records::metrics::Record;
use records::verify::{Inputs, Remake, Subject, VerifyReport, verify};
use runtime::execute::{KernelRequest, Machine};
use runtime::replay::{Amount, Observer, Platform, Replay, RunPoint, replay};
use runtime::reproduce::{Reproduction, against, reproduce};
use runtime::train::{Options, TrainOutcome, machine, train};

use super::forger::Forger;
use super::support::*;

pub(super) fn replayed(folder: &Folder, experiment: &Experiment, amount: Amount) -> Replay {
    let job = job(experiment, None).unwrap();
    let machine = machine(&experiment.platform).unwrap();
    replay(&folder.paths(), job, machine, amount, &mut Silent).unwrap()
}

struct Silent;

impl Observer for Silent {}

pub(super) fn reproduced(folder: &Folder, experiment: &Experiment) -> Reproduction {
    let job = job(experiment, None).unwrap();
    let machine = machine(&experiment.platform).unwrap();
    reproduce(&folder.paths(), job, machine, &mut Silent).unwrap()
}

fn reported(folder: &Folder, replay: &Replay) -> VerifyReport {
    let mut report = verify(&folder.path(), Inputs::default(), Remake::Spread).unwrap();
    assert!(report.trusts(Subject::Losses) && report.trusts(Subject::Training), "{report:?}");
    replay.tell(&mut report);
    report
}

/// Trains `job` in the folder, ignoring the folder's lock.
fn trained(folder: &Folder, mut job: Job, machine: Machine) {
    let stop = AtomicBool::new(false);
    let options = Options { stop: &stop, stop_after: None, faults: &Faults::none(), ranks: None };
    let end = train(&mut job, &folder.path(), machine, &options, &mut RecordingObserver::default());
    assert!(matches!(end, Ok(TrainOutcome::Finished(_))), "{end:?}");
}

/// Changes records and updates everything above them.
fn forge(folder: &Folder, experiment: &Experiment, change: impl FnMut(&mut Record)) {
    Forger::at(&folder.path(), experiment).records(change);
}

fn halve(step: u64) -> impl Fn(&mut Record) {
    move |record| {
        if let Record::Step(found) = record
            && found.step == step
        {
            found.loss = found.loss.map(|loss| loss / 2.0);
        }
    }
}

/// A run that was secretly trained with another weight decay than its lock's.
fn other_decay(changes: &[(&str, &str)]) -> (Folder, Experiment) {
    let experiment = depo(changes);
    let mut with: Vec<(&str, &str)> = changes.to_vec();
    with.push(("weight_decay = 0.1", "weight_decay = 0.3"));
    let mut patched = job(&experiment, None).unwrap();
    patched.plans = job(&depo(&with), None).unwrap().plans;
    let folder = Folder::new();
    trained(&folder, patched, machine(&experiment.platform).unwrap());
    let plan = plan_text(&experiment).unwrap();
    fs::write(folder.paths().plan(), &plan).unwrap();
    Forger::at(&folder.path(), &experiment)
        .reattest(|attestation| attestation.plan = Digest::of(PLAN_TAG, &plan));
    (folder, experiment)
}

#[test]
fn a_run_replayed_in_full_leaves_no_loss_on_trust() {
    let experiment = depo(&[]);
    let folder = Folder::finished(&experiment);
    let replay = replayed(&folder, &experiment, Amount::All);
    assert_eq!(replay.differences, []);
    assert_eq!((replay.steps, replay.of_steps), (8, 8));
    assert_eq!((replay.evaluations, replay.of_evaluations), (2, 2));
    assert_eq!(replay.stretches, [(1, 6), (7, 8)]);
    assert_eq!(replay.reached, [6, 8]);
    assert!(replay.is_whole());
    let report = reported(&folder, &replay);
    assert_eq!((&report.broken, &report.undecided), (&vec![], &vec![]));
    assert!(!report.trusts(Subject::Losses) && !report.trusts(Subject::Training), "{report:?}");
    // Three steps from the start and two from the checkpoint of step 6 leave three on trust.
    let some = replayed(&folder, &experiment, Amount::Steps(5));
    assert_eq!((some.steps, some.stretches.clone()), (5, vec![(1, 3), (7, 8)]));
    assert_eq!(some.reached, [8]);
    let report = reported(&folder, &some);
    assert!(report.trusts(Subject::Losses) && report.trusts(Subject::Training), "{report:?}");
    let closing = report.closing();
    let (done, trusted) = closing.split_once("taken on trust").unwrap();
    assert!(done.contains("losses and gradient norms (5 of 8 steps)"), "{closing}");
    assert!(trusted.contains("losses and gradient norms (3 of 8 steps)"), "{closing}");
    assert!(
        done.contains("(to 1 of 2 checkpoints)") && trusted.contains("(the rest)"),
        "{closing}"
    );
}

#[test]
fn a_halved_loss_is_found_wherever_its_step_is_replayed() {
    let experiment = depo(&[]);
    for step in [1, 4, 7, 8] {
        let folder = Folder::finished(&experiment);
        forge(&folder, &experiment, halve(step));
        // No digest can detect it.
        assert_eq!(
            verify(&folder.path(), Inputs::default(), Remake::Every).unwrap().broken,
            Vec::<String>::new()
        );
        let replay = replayed(&folder, &experiment, Amount::All);
        let [difference] = replay.differences.as_slice() else { panic!("{replay:?}") };
        assert!(difference.text.starts_with(&format!("step {step}: loss was ")), "{difference:?}");
        assert!(difference.text.contains("only the log is wrong"), "{difference:?}");
        assert_eq!(reported(&folder, &replay).broken.len(), 1);
        let again = reproduced(&folder, &experiment);
        let first = again.first.unwrap();
        assert_eq!(first.point, RunPoint::Step(step));
        assert!(matches!(first.tensor, Some((_, None))), "{first:?}");
        assert!(first.reasons[0].contains("only the log is wrong"), "{first:?}");
    }
    // Nothing is claimed about steps that are not replayed.
    let folder = Folder::finished(&experiment);
    forge(&folder, &experiment, halve(5));
    let replay = replayed(&folder, &experiment, Amount::Steps(4));
    assert_eq!(replay.differences, []);
    assert!(reported(&folder, &replay).trusts(Subject::Losses));
}

#[test]
fn a_forged_evaluation_is_found() {
    let experiment = depo(&[]);
    let folder = Folder::finished(&experiment);
    forge(&folder, &experiment, |record| {
        if let Record::Evaluation(evaluation) = record
            && evaluation.step == 8
        {
            evaluation.tokens.right = evaluation.tokens.of;
        }
    });
    // The last one needs no step at all: its weights are kept.
    let replay = replayed(&folder, &experiment, Amount::Steps(1));
    let [difference] = replay.differences.as_slice() else { panic!("{replay:?}") };
    assert!(
        difference.text.starts_with("the evaluation after step 8: token_accuracy was "),
        "{difference:?}"
    );
    let first = reproduced(&folder, &experiment).first.unwrap();
    assert_eq!(first.point, RunPoint::Evaluation(8));
}

#[test]
fn another_weight_decay_is_found() {
    let (folder, experiment) = other_decay(&[]);
    assert_eq!(
        verify(&folder.path(), Inputs::default(), Remake::Every).unwrap().broken,
        Vec::<String>::new()
    );
    let replay = replayed(&folder, &experiment, Amount::Steps(8));
    let texts: Vec<&str> =
        replay.differences.iter().map(|difference| difference.text.as_str()).collect();
    let says = |what: &str| texts.iter().any(|text| text.contains(what));
    assert!(says("loss was"), "{texts:?}");
    assert!(
        says("checkpoints/step-0000000006 differs from training from the initial weights"),
        "{texts:?}"
    );
    assert!(
        says("checkpoints/step-0000000008 differs from training from checkpoints/step-0000000006"),
        "{texts:?}"
    );
    assert!(replay.differences.iter().all(|difference| !difference.maybe_rounding), "{replay:?}");
    // The last two steps, from the checkpoint before them, are enough to show it.
    let last = replayed(&folder, &experiment, Amount::Steps(4));
    assert!(
        last.differences.iter().any(|replay| replay.text.contains("step-0000000008")),
        "{last:?}"
    );
    let first = reproduced(&folder, &experiment).first.unwrap();
    assert!(matches!(first.point, RunPoint::Step(2..=4)), "{first:?}");
    assert!(first.reasons[0].contains("adamw"), "{first:?}");
    let of_kept =
        "from checkpoints/step-0000000006 as the run kept it, step 7 agrees in every logged number";
    assert!(first.reasons[1].starts_with(of_kept), "{first:?}");
    assert!(first.reasons[1].contains("in the update of step 7 (clip, adamw)"), "{first:?}");
    for (reason, checkpoint) in first.reasons.iter().zip([6, 8]) {
        let excluded = format!(
            "a changed line alone does not explain it, since the checkpoint of step {checkpoint}"
        );
        assert!(reason.contains(&excluded), "{first:?}");
    }
    let Some((6, Some(tensor))) = &first.tensor else { panic!("{first:?}") };
    assert_eq!(tensor.first.part, Part::Weights);
    assert!(first.variants.iter().all(|variant| !variant.gives_the_log), "{first:?}");
    assert!(
        first
            .variants
            .iter()
            .all(|variant| variant.name != "the same settings" || variant.first.is_none())
    );
}

#[test]
fn with_every_checkpoint_kept_the_operation_is_named() {
    let (folder, experiment) = other_decay(&[("every = 3", "every = 1\nkeep = 9")]);
    let first = reproduced(&folder, &experiment).first.unwrap();
    assert!(matches!(first.point, RunPoint::Checkpoint(1..=2)), "{first:?}");
    assert!(first.reasons[0].contains("weight decay"), "{first:?}");
    let Some((_, Some(difference))) = &first.tensor else { panic!("{first:?}") };
    assert_eq!((difference.first_moment, difference.second_moment), (0, 0));
    assert!(difference.weights > 0 && difference.weights <= difference.of);
}

/// An update shows only in what comes after it, so steps that are replayed one by one would miss it.
#[test]
fn a_changed_update_is_found_among_many_checkpoints() {
    let (folder, experiment) = other_decay(&[("every = 3", "every = 2\nkeep = 9")]);
    for steps in [2, 3, 4] {
        let replay = replayed(&folder, &experiment, Amount::Steps(steps));
        assert!(!replay.differences.is_empty(), "{steps}: {replay:?}");
    }
    let honest = Folder::finished(&experiment);
    let replay = replayed(&honest, &experiment, Amount::Steps(4));
    assert_eq!((replay.differences.len(), replay.steps, replay.updates), (0, 4, 4));
    let replay = replayed(&honest, &experiment, Amount::Steps(1));
    // The two steps that lead to the last state, and two from the initial weights.
    assert_eq!((replay.steps, replay.stretches), (4, vec![(1, 2), (7, 8)]));
}

#[test]
fn the_last_state_is_trained_again_whatever_the_number_of_steps() {
    let experiment = depo(&[("every = 3", "every = 5")]);
    for amount in [Amount::Steps(1), Amount::Steps(2), Amount::Steps(32), Amount::All] {
        let folder = Folder::finished(&experiment);
        let honest = replayed(&folder, &experiment, amount);
        assert_eq!((honest.differences.as_slice(), honest.reached.last()), (&[][..], Some(&8)));
        // Other last weights, with every digest and the scores that follow from them.
        let forger = Forger::at(&folder.path(), &experiment);
        forger.flip(8, Part::Weights);
        forger.correct();
        assert_eq!(forger.verify().broken, Vec::<String>::new());
        let replay = replayed(&folder, &experiment, amount);
        let last = format!("checkpoints/{} differs from training", name_of(8));
        assert!(
            replay.differences.iter().any(|difference| difference.text.contains(&last)),
            "{replay:?}"
        );
    }
}

#[test]
fn recorded_kernels_are_compared_with_those_of_the_same_machine() {
    let experiment = depo(&[]);
    let folder = Folder::finished(&experiment);
    let replay = replayed(&folder, &experiment, Amount::Steps(2));
    assert!(replay.kernels.is_some_and(|kernels| kernels > 0), "{replay:?}");
    assert!(!reported(&folder, &replay).trusts(Subject::Kernels));
    Forger::at(&folder.path(), &experiment).kernels(|kernels| {
        drop(kernels.insert("rope".to_owned(), ["libtorch".to_owned()].into()));
    });
    let replay = replayed(&folder, &experiment, Amount::Steps(2));
    let [difference] = replay.differences.as_slice() else { panic!("{replay:?}") };
    let says = "records that rope was computed by libtorch, but the same machine takes fused/";
    assert!(difference.text.contains(says) && !difference.maybe_rounding, "{difference:?}");
}

#[test]
fn a_run_comes_out_again_and_two_folders_agree() {
    let experiment = depo(&[]);
    let (one, two) = (Folder::finished(&experiment), Folder::finished(&experiment));
    let reproduction = reproduced(&one, &experiment);
    assert_eq!((reproduction.first, reproduction.steps, reproduction.evaluations), (None, 8, 2));
    assert_eq!((reproduction.checkpoints, reproduction.platform), (vec![6, 8], Platform::Same));
    let compare = || against(&one.path(), &two.path(), &experiment).unwrap();
    assert_eq!((compare().first, compare().checkpoints), (None, vec![6, 8]));
    forge(&two, &experiment, halve(5));
    let first = compare().first.unwrap();
    assert_eq!(first.point, RunPoint::Step(5));
    assert!(matches!(first.tensor, Some((6, None))), "{first:?}");
    // Runs that evaluate after other steps, and a run that is not finished.
    let often = depo(&[("every = 4", "every = 2")]);
    let comparison = against(&one.path(), &Folder::finished(&often).path(), &experiment).unwrap();
    assert_eq!((comparison.first, comparison.steps, comparison.evaluations), (None, 8, 2));
    let stopped = Folder::new();
    stopped.run(&experiment, Some(5), None).0.unwrap();
    for (a, b) in [(&one, &stopped), (&stopped, &one)] {
        let comparison = against(&a.path(), &b.path(), &experiment).unwrap();
        assert_eq!(
            (comparison.steps, comparison.first.map(|first| first.point)),
            (5, Some(RunPoint::Step(6)))
        );
    }
    let (other, _) = other_decay(&[]);
    let first = against(&one.path(), &other.path(), &experiment).unwrap().first.unwrap();
    assert!(matches!(first.tensor, Some((6, Some(_)))), "{first:?}");
}

#[test]
fn the_kernel_that_changes_the_bits_is_named() {
    let experiment = experiment("small_canon", DEPO, &[]);
    let folder = Folder::new();
    let fast = machine(&experiment.platform).unwrap();
    let plain = Machine { kernels: KernelRequest::REFERENCE, ..fast };
    trained(&folder, job(&experiment, None).unwrap(), plain);
    let first = reproduced(&folder, &experiment).first.unwrap();
    assert!(matches!(first.point, RunPoint::Step(_)), "{first:?}");
    let named = |name: &str| first.variants.iter().find(|variant| variant.name == name).unwrap();
    let plain = named("plain kernels");
    assert!(plain.gives_the_log, "{first:?}");
    let (step, operation) = plain.first.clone().unwrap();
    assert_eq!(step, 1);
    assert!(operation.starts_with("micro-batch 1: forward"), "{operation}");
    let again = named("the same settings");
    assert!(!again.gives_the_log && again.first.is_none(), "{again:?}");
}

#[test]
fn on_another_machine_only_what_no_rounding_explains_is_a_fault() {
    let experiment = depo(&[]);
    let elsewhere = |folder: &Folder| {
        Forger::at(&folder.path(), &experiment).reattest(|attestation| {
            attestation.machine.insert("cpu".to_owned(), "another".to_owned());
        });
    };
    let findings = |change: &dyn Fn(&mut Record)| {
        let folder = Folder::finished(&experiment);
        forge(&folder, &experiment, change);
        elsewhere(&folder);
        let replay = replayed(&folder, &experiment, Amount::All);
        assert!(
            matches!(&replay.platform, Platform::Other(facts) if facts[0].contains("another there"))
        );
        let report = reported(&folder, &replay);
        (report.broken.len(), report.undecided.len())
    };
    // A difference in the last bit of one loss may be rounding.
    let last_bit = |record: &mut Record| {
        if let Record::Step(step) = record
            && step.step == 2
        {
            step.loss = step.loss.map(|loss| f64::from_bits(loss.to_bits() ^ 1));
        }
    };
    assert_eq!(findings(&last_bit), (0, 1));
    assert_eq!(findings(&halve(2)), (1, 0));
    assert_eq!(findings(&|_| {}), (0, 0));
}

#[test]
fn an_unfinished_run_is_replayed_as_far_as_it_goes() {
    let experiment = depo(&[]);
    let folder = Folder::new();
    folder.stop_at(&experiment, 4);
    let replay = replayed(&folder, &experiment, Amount::All);
    assert_eq!((replay.steps, replay.differences.as_slice()), (4, &[][..]));
    assert_eq!((replay.platform, replay.reached), (Platform::Same, vec![3, 4]));
}

#[test]
fn a_changed_line_is_a_cause_where_no_later_checkpoint_excludes_it() {
    let experiment = depo(&[]);
    for (step, place) in
        [(4, "in the forward pass of step 4"), (5, "in the forward pass of step 5")]
    {
        let folder = Folder::new();
        folder.stop_at(&experiment, 5);
        forge(&folder, &experiment, halve(step));
        let checkpoints = folder.paths().checkpoints();
        fs::remove_dir_all(checkpoints.join(name_of(5))).unwrap();
        fs::write(checkpoints.join("latest"), format!("{}\n", name_of(3))).unwrap();
        let first = reproduced(&folder, &experiment).first.unwrap();
        assert_eq!((first.point, first.tensor), (RunPoint::Step(step), None));
        assert!(first.reasons[0].contains(place), "{:?}", first.reasons);
        assert_eq!(first.reasons.len(), 2);
        for reason in &first.reasons {
            assert!(reason.ends_with(", or the logged line was changed"), "{reason}");
        }
    }
}

#[test]
fn two_folders_of_two_machines_may_differ_by_rounding() {
    let experiment = depo(&[]);
    let last_bit = |record: &mut Record| {
        if let Record::Step(step) = record
            && step.step == 2
        {
            step.loss = step.loss.map(|loss| f64::from_bits(loss.to_bits() ^ 1));
        }
    };
    let first_difference = |change: &dyn Fn(&mut Record), elsewhere: bool| {
        let (one, two) = (Folder::finished(&experiment), Folder::finished(&experiment));
        forge(&two, &experiment, change);
        if elsewhere {
            Forger::at(&two.path(), &experiment).reattest(|attestation| {
                attestation.machine.insert("cpu".to_owned(), "another".to_owned());
            });
        }
        let comparison = against(&one.path(), &two.path(), &experiment).unwrap();
        assert_eq!(comparison.platform != Platform::Same, elsewhere);
        comparison.first.map(|first| (first.point, first.difference.maybe_rounding))
    };
    assert_eq!(first_difference(&last_bit, true), Some((RunPoint::Step(2), true)));
    assert_eq!(first_difference(&last_bit, false), Some((RunPoint::Step(2), false)));
    assert_eq!(first_difference(&halve(2), true), Some((RunPoint::Step(2), false)));
    // Rounding grows without bound over many steps, but not if the next checkpoint has equal bits.
    assert_eq!(first_difference(&halve(6), true), Some((RunPoint::Step(6), false)));
    assert_eq!(first_difference(&|_| {}, true), None);
}
