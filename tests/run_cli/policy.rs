//! Lock settings that select kernels, and runs without any metric. A setting that cannot be honoured is refused, never
//! replaced, and the run records the requested kernel.

use std::fs;

use lab::lock::Lock;

use super::super::{DEPO, Place, experiment, has};

/// A run in bf16 is stopped and continued to the same bits; its plan, log and verification say bf16.
#[test]
fn bf16_runs_resumes_and_is_verified() {
    let workspace = Place::new(&experiment(
        "small",
        DEPO,
        &[("[platform]", "[precision]\npolicy = \"bf16\"\n[platform]")],
    ));
    if has("graph") {
        let plan = workspace.exits(0, "graph --plan lockfiles/small.lock");
        assert!(plan.contains("bf16[b, t, ") && plan.contains("rounded 0"), "{plan}");
    }
    workspace.exits(0, "run --dry-run");
    workspace.exits(75, "run --stop-after-step 3");
    workspace.exits(0, "run");
    workspace.exits(0, "run --dir runs/whole");
    let weights = |run: &str| {
        fs::read(
            workspace.path(&format!("runs/{run}/checkpoints/step-0000000006/weights.safetensors")),
        )
        .unwrap()
    };
    assert!(weights("small") == weights("whole"));
    workspace.exits(0, "verify small --replay");
}

#[test]
fn a_lock_can_select_the_reference_kernel_of_a_gated_norm() {
    let arch = |platform: &str| {
        experiment("small_gdn", DEPO, &[("[platform]", &format!("[platform]\n{platform}"))])
    };
    let kernels = |platform: &str| {
        let workspace = Place::new(&arch(platform));
        workspace.exits(0, "run");
        let text = fs::read_to_string(workspace.path("runs/small/kernels.txt")).unwrap();
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
fn a_run_without_metrics_finishes_and_is_verified() {
    let workspace =
        Place::new(&experiment("small", DEPO, &[("windows = 2", "windows = 2\nmetrics = []")]));
    workspace.exits(0, "run");
    workspace.exits(0, "verify small");
    let log = fs::read_to_string(workspace.path("runs/small/metrics.jsonl")).unwrap();
    assert!(log.contains("\"eval_loss\":null,\"counted\":0"), "{log}");
}

/// The dry run takes a step and adds the memory that only the full run needs. Tensors are most of the run's memory:
/// the pages of libtorch that are in memory differ by some 20 MiB between machines and starts.
#[test]
fn a_dry_run_predicts_the_peak_of_memory() {
    let changes = [("sequences = 2", "sequences = 128"), ("steps = 6", "steps = 3")];
    let workspace = Place::new(&experiment("broad", DEPO, &changes));
    let table = workspace.exits(0, "run --dry-run");
    let row = table.lines().find(|line| line.starts_with("memory")).unwrap();
    let predicted: f64 = row.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(row.contains(" MiB (weights"), "{row}");
    workspace.exits(0, "run");
    let timings = fs::read_to_string(workspace.path("runs/small/timings.jsonl")).unwrap();
    let peaks = timings.lines().filter_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        Some(line.get("peak_memory_bytes")?.as_f64().unwrap() / 1_048_576.0)
    });
    let measured = peaks.fold(f64::NAN, f64::max);
    assert!((predicted / measured - 1.0).abs() < 0.05, "{predicted} of {measured} MiB");
}

#[test]
fn the_platform_section_is_the_environment_libtorch_starts_in() {
    let short = ("steps = 6", "steps = 3");
    let small = |changes: &[(&str, &str)]| experiment("small_canon", DEPO, changes);
    let workspace = Place::new(&small(&[short]));
    let two = "threads = 2\ncpu_capability = \"default\"\nblas = \"compatible\"";
    workspace.lock("other", &Lock::Experiment(small(&[short, ("threads = 1", two)])));
    workspace.exits(0, "run --lock lockfiles/small.lock --dir one");
    workspace.exits(0, "run --lock lockfiles/other.lock --dir two");
    let (one, two) = (workspace.attestation("one"), workspace.attestation("two"));
    assert_eq!((one.lock, one.machine["threads"].as_str()), (two.lock, "1"));
    assert_ne!(one.platform, two.platform);
    assert_eq!(two.machine["threads"], "2");
    assert_eq!(two.machine["cpu_capability"].to_lowercase(), "default");
    assert_eq!(two.machine["env.MKL_CBWR"], "COMPATIBLE");
    // Other rounding, but the same run.
    let (one, two) = (workspace.steps("one"), workspace.steps("two"));
    assert_eq!((one.len(), two.len()), (3, 3));
    for (one, two) in one.iter().zip(&two) {
        assert_eq!((one.batch, one.counted), (two.batch, two.counted));
        let (one, two) = (one.loss.unwrap(), two.loss.unwrap());
        assert!((one - two).abs() < 2e-5 * one, "{one} {two}");
    }
    let output = workspace.exits(2, "run --lock lockfiles/other.lock --dir one");
    assert!(output.contains("another platform section"), "{output}");
}
