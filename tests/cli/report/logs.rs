//! Logs of other programs on the page: beside runs, marked, and held against their locks. The log is one that transformers
//! wrote, of a run of 60 steps.

use std::fs;
use std::path::Path;

use lab::comparison::Role;
use lab::lock::{self, Lock};
use serde_json::Value;

use super::super::super::{Ran, canonc, root};
use super::{RECIPE, exits, finish, project};

/// A project with a lock whose schedule is that of the log.
fn locked() -> tempfile::TempDir {
    let dir = project();
    let recipe = RECIPE.replace("warmup = 10", "warmup = 10, lr_min_ratio = 0.0");
    fs::write(dir.path().join("recipes/mine.toml"), recipe).unwrap();
    let log = root().join("ext/logs/tests/logs/trainer_state.json");
    fs::copy(log, dir.path().join("trainer_state.json")).unwrap();
    exits(0, &canonc(dir.path(), &["build", "-q", "recipes/mine.toml", "recipes/a.toml"]));
    dir
}

fn report(dir: &Path, words: &[&str]) -> (Ran, Value) {
    let ran = canonc(dir, &[&["report"], words].concat());
    let page = fs::read_to_string(dir.join("report.html")).unwrap_or_default();
    let data = page.split_once("id=\"data\">").map_or("null", |(_, rest)| rest);
    let data = data.split_once("</script>").map_or(data, |(data, _)| data);
    (ran, serde_json::from_str(data).unwrap())
}

#[test]
fn a_log_without_a_run_is_drawn_as_on_trust() {
    let dir = locked();
    let (ran, data) = report(dir.path(), &["lockfiles/mine.lock", "--log", "trainer_state.json"]);
    exits(0, &ran);
    let said = "log: mine (trainer_state.json, on trust); learning rates: all 8 are the lock's; \
                tokens: all 9 are the lock's\n";
    assert!(ran.stderr.starts_with(said), "{}", ran.stderr);
    assert!(ran.stderr.contains("(0 runs, 1 log on trust, "), "{}", ran.stderr);
    let runs = data["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!((&runs[0]["log"], &runs[0]["first"]), (&"transformers".into(), &Value::Null));
    let loss = &runs[0]["series"]["training loss"];
    assert_eq!(
        (&loss["first"], &loss["every"], &loss["values"][0]),
        (&7.into(), &7.into(), &4.162313.into())
    );
    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(
        page.contains("Logs of other programs, on trust") && page.contains("(mean over 7 steps)")
    );
}

#[test]
fn a_log_beside_a_run_is_no_second_run() {
    let dir = locked();
    let text = fs::read_to_string(dir.path().join("lockfiles/mine.lock")).unwrap();
    let Lock::Experiment(experiment) = lock::read("mine", &text).unwrap() else {
        panic!("not an experiment")
    };
    finish(&dir.path().join("runs/mine"), &experiment, Role::Base, 0);
    let log = "lockfiles/a.lock=trainer_state.json";
    for words in [
        &["runs/mine", "--log", "trainer_state.json", "--tensorboard", "tb"][..],
        &["lockfiles/mine.lock", "--log", "trainer_state.json"],
        &["runs/mine", "--log", log],
    ] {
        let (ran, data) = report(dir.path(), words);
        exits(0, &ran);
        assert!(ran.stderr.contains("(1 run, 1 log on trust, "), "{}", ran.stderr);
        assert_eq!(data["runs"].as_array().unwrap().len(), 2);
        assert_eq!(
            (&data["pairs"], &data["judged"]),
            (&Value::Array(vec![]), &Value::Array(vec![]))
        );
    }
    // Only the run has event files.
    assert_eq!(fs::read_dir(dir.path().join("tb")).unwrap().count(), 1);
    // The usual schedule ends at a tenth, not at 0; the page says so.
    let (ran, _) = report(dir.path(), &["--log", log]);
    assert!(
        ran.stderr.contains("first at step 14: 0.002973430876093033, by the lock"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_log_that_is_of_no_lock_or_cannot_be_read_is_refused() {
    let dir = locked();
    exits(0, &canonc(dir.path(), &["build", "-q", "arch/small.canon", "recipes/pair.toml"]));
    fs::write(dir.path().join("notes.txt"), "words\n").unwrap();
    let state = "trainer_state.json";
    for (words, wanted) in [
        (&["--log", state][..], "`--log trainer_state.json` names no lock that the log is of"),
        (
            &["lockfiles/mine.lock", "lockfiles/a.lock", "--log", state],
            "does not say which of the 2 locks it is of",
        ),
        (&["lockfiles/pair.lock", "--log", state], "a log is of one"),
        (&["lockfiles/small.lock", "--log", state], "which has no schedule and no batches"),
        (&["lockfiles/mine.lock", "--log", "runs.json"], "`runs.json` does not exist"),
        (&["lockfiles/mine.lock", "--log", "recipes"], "`recipes` is a folder, not a log"),
        (&["lockfiles/mine.lock", "--log", "/dev/zero"], "it is a pipe or a device, not a file"),
        (&["lockfiles/mine.lock", "--log", "notes.txt"], "this is no log that canonc reads"),
        (
            &["lockfiles/mine.lock", "--log", state, "--metric", "lr"],
            "is not of the form QUANTITY=NAME",
        ),
        (&["lockfiles/mine.lock", "--metric", "lr=a"], "--log"),
    ] {
        let ran = canonc(dir.path(), &[&["report"], words].concat());
        exits(2, &ran);
        assert!(ran.stderr.contains(wanted) && ran.stderr.contains("help: "), "{}", ran.stderr);
    }
    assert!(!dir.path().join("report.html").exists());
}
