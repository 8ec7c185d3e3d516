//! Lock settings that select kernels, and runs without any metric.
//!
//! In: a small recipe with one setting changed. Must stay true: a setting that cannot be honoured is refused,
//! never replaced; the run records the requested kernel; a run without
//! metrics is a complete run.

use std::fs;

use super::super::{DEPO, Place, experiment};

#[test]
fn bf16_is_locked_and_refused_by_name() {
    let place = Place::new(&experiment(
        "small",
        DEPO,
        &[("[platform]", "[precision]\npolicy = \"bf16\"\n[platform]")],
    ));
    for words in ["run", "run --dry-run", "graph --plan lockfiles/small.lock"] {
        let said = place.exits(3, words);
        assert!(said.contains("precision.policy = \"bf16\"") && said.contains("f32"), "{said}");
    }
    assert!(!place.path("runs/small/metrics.jsonl").exists());
}

#[test]
fn a_gated_norm_can_be_asked_for_in_plain_operations() {
    let arch = |platform: &str| {
        experiment("small_gdn", DEPO, &[("[platform]", &format!("[platform]\n{platform}"))])
    };
    let kernels = |platform: &str| {
        let place = Place::new(&arch(platform));
        place.exits(0, "run");
        let text = fs::read_to_string(place.path("runs/small/kernels.txt")).unwrap();
        let norms: Vec<&str> =
            text.lines().filter(|line| line.contains("gated_rms_norm")).collect();
        assert!(!norms.is_empty(), "{text}");
        norms.join("\n")
    };
    assert!(!kernels("").contains("asked for"));
    let plain = kernels("kernels.gated_norm = \"reference\"\n");
    assert!(plain.lines().all(|line| line.contains("reference (asked for)")), "{plain}");
    // The same computation has the same id.
    assert_eq!(arch("").id(), arch("kernels.gated_norm = \"reference\"\n").id());
}

#[test]
fn nothing_needs_to_be_measured() {
    let place =
        Place::new(&experiment("small", DEPO, &[("windows = 2", "windows = 2\nmetrics = []")]));
    place.exits(0, "run");
    place.exits(0, "verify small");
    let log = fs::read_to_string(place.path("runs/small/metrics.jsonl")).unwrap();
    assert!(log.contains("\"eval_loss\":null,\"counted\":0"), "{log}");
}
