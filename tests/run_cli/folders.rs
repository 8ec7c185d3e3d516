//! A run's folder in place of a lock, several locks at once, and runs that one process cannot do.

use std::fs;

use lab::lock::Lock;

use crate::{ARCH, DEPO, Place, experiment};

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
    // An unreadable lock stops all of them before the first begins.
    fs::write(place.path("lockfiles/torn.lock"), "kind = \"experiment\"\n").unwrap();
    place.exits(2, "run lockfiles/one.lock lockfiles/torn.lock");
    assert!(!place.path("runs").exists());
    let said = place.exits(0, &format!("run {both}"));
    assert!(said.contains("lock 2 of 2: lockfiles/two.lock"), "{said}");
    place.holds("runs/one");
    place.holds("runs/two");
    assert_eq!(place.exits(0, &format!("run -q {both}")), "", "finished, and nothing to say");

    // A run's folder serves as its lock, and supplies its weights.
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
fn more_devices_than_one_need_a_launcher() {
    let small = experiment("small", DEPO, &[("threads = 1", "threads = 1\ndevices = 8")]);
    let place = Place::new(&small);
    let said = place.exits(3, "run lockfiles/small.lock");
    assert!(said.contains("platform.devices = 8") && said.contains("--ranks 8"), "{said}");
    assert!(!place.path("runs").exists());
}

/// Every comparison that needs a lock can use its run.
#[test]
fn an_arm_that_was_trained_for_one_comparison_serves_another() {
    let place = Place::empty();
    fs::write(place.path("archs.canon"), ARCH).unwrap();
    let recipe = DEPO.replace("steps = 6", "steps = 3");
    for arch in ["small", "small_canon", "small_gdn"] {
        let text = format!("arch = \"archs.canon#{arch}\"\n{recipe}");
        fs::write(place.path(&format!("{arch}.toml")), text).unwrap();
    }
    for (name, other, treatment) in [("one", "small_canon", "canon"), ("two", "small_gdn", "mixer")]
    {
        let text = format!(
            "base = \"plain\"\ntreatment = [\"{treatment}\"]\n[seeds]\ninit = [1]\ndata = [1]\n\
             [arms]\nplain = \"small.toml\"\nother = \"{other}.toml\"\n"
        );
        fs::write(place.path(&format!("{name}.toml")), text).unwrap();
    }
    place.exits(0, "build one.toml two.toml");
    place.exits(0, "compare lockfiles/one.lock");
    let said = place.exits(0, "compare lockfiles/two.lock");
    assert!(said.contains("already finished: 3 steps"), "{said}");
    assert!(place.path("runs/one/one-plain-seed1").is_dir());
    assert!(!place.path("runs/two/two-plain-seed1").exists(), "the base is not trained twice");
    place.exits(0, "report two one --out page.html");
    // The runs of a folder are all verified; what canonc writes beside them is no run.
    let said = place.exits(0, "verify runs/one");
    for run in ["runs/one/one-plain-seed1\n", "runs/one/one-other-seed1\n"] {
        assert!(said.contains(run) && said.matches("no fault found").count() == 2, "{said}");
    }
    let said = place.exits(2, "verify runs/one page.html");
    assert!(said.contains("`page.html` is not a run or a lock"), "{said}");
    // An unfinished run is not used by other comparisons.
    fs::remove_file(place.path("runs/one/one-plain-seed1/attestation.toml")).unwrap();
    let said = place.exits(0, "report two --out page.html");
    assert!(said.contains("(1 run,") && said.contains("left out: two: its table"), "{said}");
}

/// An active or interrupted run is shown up to its last step.
#[test]
fn an_unfinished_run_is_shown_and_says_so() {
    let place = Place::new(&experiment("small", DEPO, &[]));
    place.exits(75, "run --stop-after-step 4");
    place.exits(0, "report runs/small --out page.html --tensorboard events");
    let page = fs::read_to_string(place.path("page.html")).unwrap();
    assert!(page.contains("small (unfinished, step 4 of 6)"));
    assert!(place.path("events/small.unfinished").is_dir());
    place.exits(0, "run");
    place.exits(0, "report runs/small --out page.html --tensorboard events");
    let page = fs::read_to_string(place.path("page.html")).unwrap();
    assert!(!page.contains("unfinished"));
    assert!(place.path("events/small").is_dir());
}
