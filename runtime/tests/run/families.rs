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
