//! Dropout draws the same elements however a run is divided, interrupted or recomputed.

use super::support::*;

const LAST: u64 = 8;

fn losses(folder: &Folder) -> Vec<f64> {
    steps(&folder.records()).iter().map(|step| step.loss.unwrap()).collect()
}

#[test]
fn a_resumed_run_with_dropout_is_the_straight_one() {
    for precision in ["f32", "bf16"] {
        let policy = format!("[precision]\npolicy = \"{precision}\"\n[platform]");
        let experiment = dropping("dropping", &[("[platform]", &policy)]);
        let straight = Folder::finished(&experiment);
        let cut = Folder::new();
        for step in [1, 4, 5] {
            cut.stop_at(&experiment, step);
        }
        cut.finish(&experiment);
        assert_eq!(differing(&straight.bits(LAST), &cut.bits(LAST)), Vec::<String>::new());
        // A kill between two checkpoints: the steps since the last one are trained again.
        let killed = Folder::new();
        let (end, _) = killed.run(&experiment, None, Some("metrics-full:6"));
        assert!(end.is_err(), "{end:?}");
        killed.finish(&experiment);
        assert_eq!(differing(&straight.bits(LAST), &killed.bits(LAST)), Vec::<String>::new());
    }
}

#[test]
fn recomputation_changes_no_bit() {
    let folder = Folder::finished(&dropping("dropping", &[]));
    let others = [
        ("threads = 1", "threads = 1\nrecompute = \"layers\""),
        ("threads = 1", "threads = 1\nrecompute = \"selective\""),
    ];
    for change in others {
        let other = Folder::finished(&dropping("dropping", &[change]));
        assert_eq!(losses(&other), losses(&folder), "{change:?}");
        let weights = |folder: &Folder| folder.bits(LAST).remove("weights.safetensors");
        assert!(weights(&other) == weights(&folder), "{change:?}");
    }
}

/// The same windows in other micro-batches: sums are added in another order, but elements are dropped alike.
#[test]
fn other_micro_batches_drop_the_same_elements() {
    let losses_with = |sequences: u32, micro_batches: u32| {
        let batch = format!("sequences = {sequences}\nmicro_batches = {micro_batches}");
        let changes = [("sequences = 2\nmicro_batches = 2", batch.as_str())];
        losses(&Folder::finished(&dropping("dropping", &changes)))
    };
    let two = losses_with(2, 2);
    for other in [losses_with(4, 1), losses_with(1, 4)] {
        for (a, b) in two.iter().zip(&other).take(3) {
            assert!((a - b).abs() < 1e-5, "{two:?} {other:?}");
        }
    }
}

/// Each seed changes what it should: the data's seed the windows and their draws, dropout's the draws alone.
#[test]
fn seeds_and_rates_key_the_draws() {
    let base = dropping("dropping", &[]);
    let one = Folder::finished(&base);
    let plain = Folder::finished(&depo(&[]));
    let other = dropping("dropping", &[("dropout = 3", "dropout = 4")]);
    assert_ne!(base.id(), other.id());
    let other = Folder::finished(&other);
    let canon = Folder::finished(&dropping("dropping_canon", &[]));
    let first = |folder: &Folder| steps(&folder.records()).remove(0);
    let [one_step, plain, other, canon] = [&one, &plain, &other, &canon].map(first);
    for step in [&plain, &other, &canon] {
        assert_eq!(step.batch, one_step.batch);
        assert_ne!(step.loss, one_step.loss);
    }
    // Windows follow from the data's seed, and so do their draws.
    let key = |experiment: &lab::experiment::Experiment| job(experiment, None).unwrap().dropout_key;
    let data = dropping("dropping", &[("data = 2", "data = 5")]);
    assert_ne!(key(&base), key(&data));
}

/// Calls in treated slots and mixers move no mask of others: an arm whose treated part adds nothing yet has the loss of
/// the other arm, and one whose treated part drops nothing trains to the same bits.
#[test]
fn a_treatment_moves_no_mask_that_it_does_not_name() {
    let losses_of = |arch: &str| losses(&Folder::finished(&dropping(arch, &[])));
    for [a, b] in [["zero_a", "drop_zero_a"], ["zero_c", "drop_zero_c"]] {
        let (one, other) = (losses_of(a), losses_of(b));
        assert_eq!(one[0], other[0], "{a} {b}");
        assert_ne!(one, other, "{a} {b}");
    }
    assert_eq!(losses_of("mixed"), losses_of("mixed_idle"));
    assert_ne!(losses_of("mixed")[0], losses_of("dropping")[0]);
}
