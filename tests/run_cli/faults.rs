//! Disks that fail and machines that lose power under a command (`tests/faults`), and signals before it listens: a few of
//! each here; `make faults` has all.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::super::{DEPO, Place, experiment, said, signal};

/// A script of `tests/faults`, in a workspace.
fn script(workspace: &Place, name: &str, words: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults").join(name);
    let output = Command::new("python3")
        .current_dir(workspace.root.path())
        .arg(path)
        .arg(env!("CARGO_BIN_EXE_canonc"))
        .args(words.split_whitespace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{name} {words}\n{}", said(&output));
}

#[test]
fn after_a_power_cut_a_run_goes_on_and_verifies() {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    let cuts = support::cases(40);
    script(&workspace, "power.py", &format!("lockfiles/small.lock --cuts {cuts}"));
    let cuts = support::cases(16);
    script(
        &workspace,
        "power.py",
        &format!("lockfiles/small.lock --ranks 2 --seed 1 --cuts {cuts}"),
    );
}

/// An error while a checkpoint or a log is read says nothing of its content.
#[test]
fn an_error_of_the_disk_at_a_resume_changes_nothing() {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    workspace.exits(75, "run --stop-after-step 5");
    let every = 800 / support::cases(40);
    for (first, error) in [(7, "5"), (29, "28"), (43, "kill")] {
        let words = format!(". --error {error} --first {first} --every {every} -- -q run small");
        script(&workspace, "index.py", &words);
    }
}

/// The ranks have no handlers yet.
#[test]
fn a_signal_in_the_first_half_second_stops_all_ranks() {
    let workspace = Place::new(&experiment("small", DEPO, &[("steps = 6", "steps = 3000")]));
    let signals = support::cases(32);
    for number in 0..signals {
        let mut command = workspace.command(&format!("run --dir on{number} --ranks 2"));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(u64::from(number) * 600 / u64::from(signals)));
        signal(&child, "-TERM");
        let code = child.wait().unwrap().code();
        // The system had not even begun the program.
        let nothing = code.is_none() && !workspace.path(&format!("on{number}")).exists();
        assert!(code == Some(75) || nothing, "signal {number}: {code:?}");
        workspace.exits(75, &format!("run --dir on{number} --stop-after-step 2"));
    }
}
