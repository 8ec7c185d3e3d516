//! A run's folder wherever a lock is read, several locks at once, and what one process cannot run.

use std::fs;

use compiler::lock::Lock;

use crate::{DEPO, Place, experiment};

#[test]
fn several_locks_are_run_one_after_another() {
    let place = Place::empty();
    for (name, seed) in [("one", "init = 1"), ("two", "init = 7")] {
        let mut made = experiment("small", DEPO, &[("init = 1", seed)]);
        name.clone_into(&mut made.name);
        place.lock(name, &Lock::Experiment(made));
    }
    let both = "lockfiles/one.lock lockfiles/two.lock";
    let said = place.exits(2, &format!("run {both} --dir elsewhere"));
    assert!(said.contains("runs/NAME"), "{said}");
    // One that cannot be read stops all of them, before the first begins.
    fs::write(place.path("lockfiles/torn.lock"), "kind = \"experiment\"\n").unwrap();
    place.exits(2, "run lockfiles/one.lock lockfiles/torn.lock");
    assert!(!place.path("runs").exists());
    let said = place.exits(0, &format!("run {both}"));
    assert!(said.contains("lock 2 of 2: lockfiles/two.lock"), "{said}");
    place.holds("runs/one");
    place.holds("runs/two");
    assert_eq!(place.exits(0, &format!("run -q {both}")), "", "finished, and nothing to say");

    // A run's folder is its lock, and brings its weights.
    let shown = place.exits(0, "show lockfiles/one.lock");
    for run in ["runs/one", "runs/one/lock"] {
        let said = place.exits(0, &format!("show {run}"));
        assert_eq!(
            said.lines().skip(1).collect::<Vec<_>>(),
            shown.lines().skip(1).collect::<Vec<_>>()
        );
    }
    let text = place.exits(0, "graph one");
    assert_eq!(text, place.exits(0, "graph lockfiles/one.lock"));
    place.exits(0, "diff runs/one runs/two --treatment seeds.init");
    let ask = "--prompt-tokens 1,2 --max-tokens 4 --temperature 0";
    let weights = "runs/one/checkpoints/step-0000000006/weights.safetensors";
    assert_eq!(
        place.exits(0, &format!("generate runs/one {ask}")),
        place.exits(0, &format!("generate lockfiles/one.lock --weights {weights} {ask}"))
    );
    let said = place.exits(2, &format!("generate lockfiles/one.lock {ask}"));
    assert!(said.contains("`--weights FILE`"), "{said}");
}

#[test]
fn more_devices_than_one_are_refused() {
    let small = experiment("small", DEPO, &[("threads = 1", "threads = 1\ndevices = 8")]);
    let place = Place::new(&small);
    let said = place.exits(3, "run lockfiles/small.lock");
    assert!(said.contains("platform.devices = 8") && said.contains("devices = 1"), "{said}");
    assert!(!place.path("runs").exists());
}
