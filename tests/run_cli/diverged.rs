//! Divergence as a result: it is attested and checked like any other end of a run, and other runs continue.

use std::fs;

use super::compare::{Arm, SHORT, comparison};
use crate::{DEPO, Place, experiment, has};

/// A comparison with a learning rate that trains and one that diverges.
const GRID: &str = "base = \"plain\"\ntreatment = [\"canon\"]\n\
                    [seeds]\ninit = [1, 2]\ndata = [1, 2]\n\
                    [grid]\n\"optimizer.lr\" = [0.03, 1000000000]\n[selection]\nmetric = \"eval_loss\"\n";

const UNSTABLE: [(&str, &str); 2] = [("lr = 0.01", "lr = 1e9"), ("warmup = 2", "warmup = 0")];

#[test]
fn one_unstable_point_of_a_grid_leaves_the_others_comparable() {
    let quick: [(&str, &str); 2] = [SHORT, ("warmup = 2", "warmup = 0")];
    let arms: [Arm<'_>; 2] = [("plain", "small", &quick), ("treated", "small_canon", &quick)];
    let workspace = comparison(&arms, GRID);
    workspace.exits(0, "build -q both.toml");
    for _ in 0..2 {
        let output = workspace.exits(0, "compare lockfiles/both.lock");
        for expected in [
            "diverged at step 2; the other runs continue",
            "2 of 2 diverged",
            "Warning: 2 of 2 runs of treated (optimizer.lr 1e9) diverged (seed 1 at step 2, seed 2 at step 2)",
            "treated (optimizer.lr 0.03) against plain (optimizer.lr 0.03)\n",
        ] {
            assert!(output.contains(expected), "{expected}: {output}");
        }
        let tables = workspace.type_in("compare lockfiles/both.lock").stdout;
        assert!(!String::from_utf8_lossy(&tables).contains("NaN"), "{output}");
        assert!(workspace.path("runs/both/report.html").is_file());
    }
    let output = workspace.exits(0, "report lockfiles/both.lock --out page.html");
    assert!(!output.contains("left out"), "{output}");
    let json = workspace.type_in("compare lockfiles/both.lock --json");
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let warned = value["comparisons"][0]["warnings"].to_string();
    assert!(warned.contains("2 of 2 runs of plain"), "{warned}");
}

/// A finished run is checked by one process, whatever number of devices its lock has.
#[test]
fn a_repeated_comparison_of_two_devices_accepts_divergence_and_finds_damage() {
    let changes: [(&str, &str); 3] =
        [SHORT, ("warmup = 2", "warmup = 0"), ("[platform]", "[platform]\ndevices = 2")];
    let arms: [Arm<'_>; 2] = [("plain", "small", &changes), ("treated", "small_canon", &changes)];
    let workspace = comparison(&arms, GRID);
    workspace.exits(0, "build -q both.toml");
    let compare = "compare lockfiles/both.lock";
    for command in [compare, compare, "compare lockfiles/both.lock --tensorboard events"] {
        let output = workspace.exits(0, command);
        assert!(output.contains("diverged at step 2; the other runs continue"), "{output}");
    }
    let names: Vec<String> = fs::read_dir(workspace.path("runs/both"))
        .unwrap()
        .map(|entry| format!("runs/both/{}", entry.unwrap().file_name().display()))
        .filter(|run| workspace.path(run).join("attestation.toml").is_file())
        .collect();
    for diverged in [None, Some(2)] {
        let run = names.iter().find(|run| workspace.attestation(run).diverged == diverged).unwrap();
        let path = workspace.path(run).join("metrics.jsonl");
        let log = fs::read_to_string(&path).unwrap();
        fs::write(&path, log.replacen("\"loss\":", "\"loss\":1", 1)).unwrap();
        let output = workspace.exits(1, compare);
        assert!(output.contains("metrics.jsonl"), "{run}: {output}");
        fs::write(&path, log).unwrap();
    }
}

/// A comparison goes on after a divergence, and stops at any other finding about a diverged run.
#[test]
fn a_damaged_run_that_diverged_stops_the_comparison() {
    let arms: [Arm<'_>; 2] = [("plain", "small", &UNSTABLE), ("treated", "small_canon", &UNSTABLE)];
    let declared = "base = \"plain\"\ntreatment = [\"canon\"]\n[seeds]\ninit = [1, 2]\ndata = [1, 2]\n\
                    [replicate]\ninit = [3]\ndata = [3]\n";
    let workspace = comparison(&arms, declared);
    workspace.exits(0, "build -q both.toml");
    assert!(workspace.exits(0, "compare lockfiles/both.lock").contains("diverged at step 2"));
    let runs =
        fs::read_dir(workspace.path("runs/both")).unwrap().map(|entry| entry.unwrap().path());
    let run = runs.filter(|path| path.join("attestation.toml").is_file()).min().unwrap();
    let saved = fs::read_dir(run.join("checkpoints")).unwrap().map(|entry| entry.unwrap().path());
    let weights = saved.map(|path| path.join("weights.safetensors")).find(|path| path.is_file());
    fs::write(weights.unwrap(), "text").unwrap();
    let output = workspace.exits(1, "compare lockfiles/both.lock");
    assert!(output.contains("weights.safetensors"), "{output}");
}

#[test]
fn a_run_that_diverged_is_attested_verified_and_reproduced_but_not_exported() {
    let workspace = Place::new(&experiment("small", DEPO, &UNSTABLE));
    for _ in 0..2 {
        let output = workspace.exits(1, "run lockfiles/small.lock --json");
        assert!(output.contains("error: training diverged: step 2 has loss 2.77"), "{output}");
        assert!(output.contains("attested as diverged at step 2"), "{output}");
        assert!(output.contains("\"state\": \"diverged\",\n  \"steps\": 2\n"), "{output}");
    }
    assert_eq!(workspace.attestation("runs/small").diverged, Some(2));
    let output = workspace.exits(0, "verify small");
    assert!(output.contains("to step 2 of 6, where training diverged"), "{output}");
    workspace.exits(0, "reproduce small");
    workspace.exits(0, "reproduce small --out again");
    if has("export") {
        let output = workspace.exits(1, "export runs/small --to hf --out hf");
        assert!(output.contains("diverged at step 2"), "{output}");
        assert!(!workspace.path("hf").exists());
    }
}

#[test]
fn locks_that_are_run_one_after_another_do_not_wait_for_one_that_diverges() {
    let workspace = Place::new(&experiment("small", DEPO, &UNSTABLE));
    let mut other = experiment("small_canon", DEPO, &[]);
    other.name = "other".to_owned();
    workspace.lock("other", &lab::lock::Lock::Experiment(other));
    let output = workspace.exits(1, "run lockfiles/small.lock lockfiles/other.lock");
    assert!(output.contains("training diverged") && output.contains("step 6/6"), "{output}");
    assert_eq!(workspace.attestation("runs/other").diverged, None);
}

/// Every reader of a run refuses an attestation that contradicts the log.
#[test]
fn a_divergence_that_the_log_does_not_show_is_a_finding() {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    workspace.exits(0, "run lockfiles/small.lock");
    let mut attestation = workspace.attestation("runs/small");
    attestation.diverged = Some(6);
    let path = workspace.path("runs/small/attestation.toml");
    let none = records::fault::Faults::none();
    attestation.write(&path, records::attest::Circumstances::default(), &none).unwrap();
    let expected = "it attests that training diverged at step 6, but every loss";
    for command in ["verify small", "run lockfiles/small.lock", "report runs/small --out page.html"]
    {
        let output = workspace.exits(1, command);
        assert!(output.contains(expected), "{command}: {output}");
    }
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("\nsteps = 6\ndiverged = 6\ncounted = "), "{text}");
}
