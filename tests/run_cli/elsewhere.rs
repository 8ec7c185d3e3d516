//! `canonc record`, and what `verify`, `diff`, `compare` and `run` say of runs that another engine trained.

use std::fs;

use support::elsewhere::{trainer, write};

use crate::{DEPO, Place, experiment};

/// A place with a run that canonc trained in `own`, and its steps as PyTorch's in `theirs`.
fn place() -> (Place, String) {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    workspace.exits(0, "run --dir own");
    let lock = fs::read_to_string(workspace.path("own/lock")).unwrap();
    write(&workspace.path("own"), &workspace.path("theirs"), &lock, &trainer(&lock));
    (workspace, lock)
}

#[test]
fn a_run_is_recorded_once_verified_and_never_continued() {
    let (workspace, _) = place();
    let output = workspace.exits(1, "export theirs --to torch --out out");
    assert!(output.contains("is not recorded: it has no attestation.toml"), "{output}");
    let output = workspace.exits(2, "run --lock own/lock --dir theirs");
    assert!(output.contains("was trained by another engine"), "{output}");
    assert!(output.contains("`canonc record theirs` evaluates and attests it"), "{output}");
    assert!(!workspace.path("theirs/events.jsonl").exists());
    let output = workspace.exits(0, "record theirs");
    assert!(output.contains("recorded: 6 steps by pytorch 2.11.0 fsdp2"), "{output}");
    let attested = fs::read(workspace.path("theirs/attestation.toml")).unwrap();
    let output = workspace.exits(0, "record theirs");
    assert!(output.contains("already recorded"), "{output}");
    assert_eq!(fs::read(workspace.path("theirs/attestation.toml")).unwrap(), attested);
    let output = workspace.exits(0, "verify theirs");
    let closing = "trained elsewhere, by pytorch 2.11.0 fsdp2; recomputed: lock";
    assert!(output.contains(closing) && output.contains("no fault found"), "{output}");
    let output = workspace.exits(0, "verify --replay theirs");
    assert!(output.contains("spot-check losses and gradient norms of"), "{output}");
    let output = workspace.exits(2, "run --lock own/lock --dir theirs");
    assert!(output.contains("was trained by another engine"), "{output}");
    let output = workspace.exits(2, "record own");
    assert!(output.contains("was not trained by another engine"), "{output}");
    let output = workspace.exits(2, "reproduce theirs");
    assert!(output.contains("canonc verify --replay theirs"), "{output}");
}

#[test]
fn a_run_that_canonc_trained_is_said_to_be_so_only_after_a_replay() {
    let (workspace, _) = place();
    let sentence = "nothing shown here says that canonc trained this run";
    assert!(workspace.exits(0, "verify own").contains(sentence));
    assert!(!workspace.exits(0, "verify --replay 2 own").contains(sentence));
}

#[test]
fn two_runs_differ_in_their_engines() {
    let (workspace, lock) = place();
    let output = workspace.exits(1, "diff own theirs");
    assert!(output.contains("a was trained by canonc, b by pytorch 2.11.0 fsdp2"), "{output}");
    let other = trainer(&lock).replace("\"sdpa\"", "\"flex\"").replace("world = 2", "world = 4");
    write(&workspace.path("own"), &workspace.path("others"), &lock, &other);
    let output = workspace.exits(1, "diff theirs others");
    let kernels = output.lines().find(|line| line.contains("trainer.kernels.attention")).unwrap();
    assert!(kernels.contains("sdpa") && kernels.contains("flex"), "{output}");
    let platform = output.split_once("\nplatform\n").unwrap().1;
    assert!(platform.contains("trainer.world"), "{output}");
    let output = workspace.exits(0, "diff theirs theirs");
    assert!(output.contains("both were trained by pytorch 2.11.0 fsdp2"), "{output}");
}

#[test]
fn a_run_with_a_finding_is_not_recorded() {
    let (workspace, lock) = place();
    let text = trainer(&lock).replace("loss.terms = \"canonc\"", "loss.terms = \"mine\"");
    write(&workspace.path("own"), &workspace.path("mine"), &lock, &text);
    let output = workspace.exits(1, "record mine");
    assert!(
        output.contains("not of this lock: trainer.toml says loss.terms = \"mine\""),
        "{output}"
    );
    assert!(!workspace.path("mine/attestation.toml").exists());
    fs::remove_file(workspace.path("theirs/trainer.toml")).unwrap();
    let output = workspace.exits(1, "record theirs");
    assert!(output.contains("trainer.toml is missing"), "{output}");
}

/// Makes these runs of a comparison that canonc trained PyTorch's, and records them.
fn convert(workspace: &Place, runs: &[&str]) {
    for run in runs {
        let (own, away) =
            (workspace.path(&format!("runs/both/{run}")), workspace.path(&format!("away/{run}")));
        fs::create_dir_all(workspace.path("away")).unwrap();
        fs::rename(&own, &away).unwrap();
        let lock = fs::read_to_string(away.join("lock")).unwrap();
        write(&away, &own, &lock, &trainer(&lock));
        workspace.exits(0, &format!("record runs/both/{run}"));
    }
}

#[test]
fn a_comparison_knows_who_trained_its_arms() {
    let workspace = super::compare::two_arms(&[super::compare::SHORT]);
    workspace.exits(0, "build -q both.toml");
    let compare = "compare lockfiles/both.lock";
    let output = workspace.exits(0, compare);
    assert!(!output.contains("trained elsewhere"), "{output}");

    let seed = |arm: &str, seed: u32| format!("both-{arm}-seed{seed}");
    // One arm of one seed.
    convert(&workspace, &[&seed("treated", 2)]);
    let output = workspace.exits(0, compare);
    let left_out = "Warning: seed 2 of treated is left out of the differences";
    assert!(
        output.contains(left_out) && output.contains("design: treated against plain: controlled"),
        "{output}"
    );
    // One arm of every seed.
    convert(&workspace, &[&seed("treated", 1)]);
    let output = workspace.exits(0, compare);
    let verdict = "NOT CONTROLLED: trainer: canonc / pytorch 2.11, which no treatment clears";
    assert!(output.contains(verdict), "{output}");
    // Both arms of every seed.
    convert(&workspace, &[&seed("plain", 1), &seed("plain", 2)]);
    let output = workspace.exits(0, compare);
    let verdict = "controlled for canon; both arms trained by pytorch 2.11";
    assert!(
        output.contains(verdict) && output.contains("were trained elsewhere (pytorch 2.11"),
        "{output}"
    );
    assert!(!output.contains("NOT CONTROLLED"), "{output}");
    let page = fs::read_to_string(workspace.path("runs/both/report.html")).unwrap();
    assert!(page.contains("both arms trained by pytorch 2.11") && page.contains("trained by"));
    let output = workspace.exits(0, &format!("{compare} --json"));
    assert!(output.contains("\"trainer\": ["), "{output}");

    // The replicate is still canonc's.
    let text = fs::read_to_string(workspace.path("both.toml")).unwrap();
    fs::write(workspace.path("both.toml"), format!("trainer = \"pytorch\"\n{text}")).unwrap();
    workspace.exits(0, "build -q both.toml");
    let output = workspace.exits(1, compare);
    assert!(
        output.contains("the comparison declares trainer = \"pytorch\", but the run in"),
        "{output}"
    );
    fs::remove_dir_all(workspace.path("runs")).unwrap();
    let output = workspace.exits(2, compare);
    assert!(output.contains("so canonc does not train it"), "{output}");
    assert!(!workspace.path("runs/both").exists());
}
