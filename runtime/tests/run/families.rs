//! Every family and the hybrids train, and an interrupted and resumed run of each has the same bits as a straight one.

use super::support::*;

/// Twelve steps, so that there is something to learn.
const LONGER: [(&str, &str); 2] = [("steps = 8", "steps = 12"), ("every = 4", "every = 6")];
const LAST: u64 = 12;
const ARCHS: [&str; 5] =
    ["small_gla", "small_delta", "small_mamba", "small_delta_hybrid", "small_mamba_hybrid"];

#[test]
fn every_family_learns_and_resumes_to_the_bit() {
    for arch in ARCHS {
        let experiment = experiment(arch, DEPO, &LONGER);
        let straight = Folder::finished(&experiment);
        let losses: Vec<f64> =
            steps(&straight.records()).iter().filter_map(|step| step.loss).collect();
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
        let (first, last) = (mean(&losses[..3]), mean(&losses[9..]));
        assert!(last < first - 0.1, "{arch}: {first} to {last}");
        let cut = Folder::new();
        for step in [2, 5, 10] {
            cut.stop_at(&experiment, step);
        }
        cut.finish(&experiment);
        let differing = differing(&straight.bits(LAST), &cut.bits(LAST));
        assert_eq!(differing, Vec::<String>::new(), "{arch}");
    }
}

/// The log has both auxiliary losses, also after a resume: a balanced router has 2 for each of two layers.
#[test]
fn experts_learn_and_resume_with_their_losses_in_the_log() {
    let experiment = experts(&LONGER);
    let straight = Folder::finished(&experiment);
    for step in steps(&straight.records()) {
        let [Some(balance), Some(router_z), ..] = step.terms else { panic!("{step:?}") };
        assert!((3.5..8.0).contains(&balance) && router_z > 0.0, "{step:?}");
    }
    let cut = Folder::new();
    for step in [2, 5, 10] {
        cut.stop_at(&experiment, step);
    }
    cut.finish(&experiment);
    assert_eq!(differing(&straight.bits(LAST), &cut.bits(LAST)), Vec::<String>::new());
    // The weights count: without them the same arch trains to other bits, and the log has no such members.
    let plain = Folder::finished(&self::experiment("small_moe", DEPO, &LONGER));
    let first = steps(&plain.records()).into_iter().next().unwrap();
    assert!(first.terms.iter().all(Option::is_none));
    assert_eq!(first.loss, steps(&straight.records())[0].loss);
    assert!(!differing(&straight.bits(LAST), &plain.bits(LAST)).is_empty());
}
