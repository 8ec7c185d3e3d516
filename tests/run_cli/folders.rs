//! A run's folder in place of a lock, several locks at once, and runs that one process cannot do.

use std::fs;
use std::path::Path;

use lab::lock::Lock;
use support::copy_folder;

use super::compare::{SHORT, two_arms};
use crate::{ARCH, DEPO, Place, experiment, has};

#[test]
fn several_locks_are_run_one_after_another() {
    let workspace = Place::empty();
    for (name, seed) in [("one", "init = 1"), ("two", "init = 7")] {
        let mut seeded = experiment("small", DEPO, &[("init = 1", seed)]);
        name.clone_into(&mut seeded.name);
        workspace.lock(name, &Lock::Experiment(seeded));
    }
    let both = "lockfiles/one.lock lockfiles/two.lock";
    let output = workspace.exits(2, &format!("run {both} --dir elsewhere"));
    assert!(output.contains("runs/NAME"), "{output}");
    // An unreadable lock stops all of them before the first begins.
    fs::write(workspace.path("lockfiles/torn.lock"), "kind = \"experiment\"\n").unwrap();
    workspace.exits(2, "run lockfiles/one.lock lockfiles/torn.lock");
    assert!(!workspace.path("runs").exists());
    let output = workspace.exits(0, &format!("run {both}"));
    assert!(output.contains("lock 2 of 2: lockfiles/two.lock"), "{output}");
    workspace.holds("runs/one");
    workspace.holds("runs/two");
    assert_eq!(workspace.exits(0, &format!("run -q {both}")), "", "finished, and nothing to say");

    // A run's folder serves as its lock, and supplies its weights.
    let shown = workspace.exits(0, "show lockfiles/one.lock");
    for run in ["runs/one", "runs/one/lock"] {
        let output = workspace.exits(0, &format!("show {run}"));
        assert_eq!(
            output.lines().skip(1).collect::<Vec<_>>(),
            shown.lines().skip(1).collect::<Vec<_>>()
        );
    }
    workspace.exits(0, "diff runs/one runs/two --treatment seeds.init");
    if !has("graph") {
        return;
    }
    let text = workspace.exits(0, "graph one");
    assert_eq!(text, workspace.exits(0, "graph lockfiles/one.lock"));
    let ask = "--prompt-tokens 1,2 --max-tokens 4 --temperature 0";
    let weights = "runs/one/checkpoints/step-0000000006/weights.safetensors";
    assert_eq!(
        workspace.exits(0, &format!("generate runs/one {ask}")),
        workspace.exits(0, &format!("generate lockfiles/one.lock --weights {weights} {ask}"))
    );
    let output = workspace.exits(2, &format!("generate lockfiles/one.lock {ask}"));
    assert!(output.contains("`--weights FILE`"), "{output}");
}

#[test]
fn more_devices_than_one_need_a_launcher() {
    let small = experiment("small", DEPO, &[("threads = 1", "threads = 1\ndevices = 8")]);
    let workspace = Place::new(&small);
    let output = workspace.exits(3, "run lockfiles/small.lock");
    assert!(output.contains("platform.devices = 8") && output.contains("--ranks 8"), "{output}");
    assert!(!workspace.path("runs").exists());
}

/// Every comparison that needs a lock can use its run.
#[test]
fn an_arm_that_was_trained_for_one_comparison_serves_another() {
    let workspace = Place::empty();
    fs::write(workspace.path("archs.canon"), ARCH).unwrap();
    let recipe = DEPO.replace("steps = 6", "steps = 3");
    for arch in ["small", "small_canon", "small_gdn"] {
        let text = format!("arch = \"archs.canon#{arch}\"\n{recipe}");
        fs::write(workspace.path(&format!("{arch}.toml")), text).unwrap();
    }
    for (name, other, treatment) in [("one", "small_canon", "canon"), ("two", "small_gdn", "mixer")]
    {
        let text = format!(
            "base = \"plain\"\ntreatment = [\"{treatment}\"]\n[seeds]\ninit = [1]\ndata = [1]\n\
             [arms]\nplain = \"small.toml\"\nother = \"{other}.toml\"\n"
        );
        fs::write(workspace.path(&format!("{name}.toml")), text).unwrap();
    }
    workspace.exits(0, "build -q one.toml two.toml");
    workspace.exits(0, "compare lockfiles/one.lock");
    let output = workspace.exits(0, "compare lockfiles/two.lock");
    assert!(output.contains("already finished: 3 steps"), "{output}");
    assert!(workspace.path("runs/one/one-plain-seed1").is_dir());
    assert!(!workspace.path("runs/two/two-plain-seed1").exists(), "the base is not trained twice");
    workspace.exits(0, "report two one --out page.html");
    // The runs of a folder are all verified; what canonc writes beside them is no run.
    let output = workspace.exits(0, "verify runs/one");
    for run in ["runs/one/one-plain-seed1\n", "runs/one/one-other-seed1\n"] {
        assert!(output.contains(run) && output.matches("no fault found").count() == 3, "{output}");
    }
    assert!(output.contains("\n3 of 3 without a fault\n"), "{output}");
    let output = workspace.exits(2, "verify runs/one page.html");
    assert!(output.contains("`page.html` is not a run or a lock"), "{output}");
    assert!(output.contains("\n3 of 4 without a fault; not checked: page.html\n"), "{output}");
    // An unfinished run is not used by other comparisons.
    fs::remove_file(workspace.path("runs/one/one-plain-seed1/attestation.toml")).unwrap();
    let output = workspace.exits(0, "report two --out page.html");
    assert!(output.contains("(1 run,") && output.contains("left out: two: its table"), "{output}");
}

/// An active or interrupted run is shown up to its last step.
#[test]
fn an_unfinished_run_is_shown_and_says_so() {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    workspace.exits(75, "run --stop-after-step 4");
    workspace.exits(0, "report runs/small --out page.html --tensorboard events");
    let page = fs::read_to_string(workspace.path("page.html")).unwrap();
    assert!(page.contains("small (unfinished, step 4 of 6)"));
    assert!(workspace.path("events/small.unfinished").is_dir());
    workspace.exits(0, "run");
    workspace.exits(0, "report runs/small --out page.html --tensorboard events");
    let page = fs::read_to_string(workspace.path("page.html")).unwrap();
    assert!(!page.contains("unfinished"));
    assert!(workspace.path("events/small").is_dir());
}

const PLAIN: &str = "both-plain-seed1";
const TREATED: &str = "both-treated-seed1";

/// A change to the folder of a comparison, and what its verification must then say.
struct Damage {
    name: &'static str,
    expected: &'static [&'static str],
    apply: fn(&Path),
}

const DAMAGES: [Damage; 12] = [
    Damage {
        name: "a copy of another arm",
        expected: &[PLAIN, TREATED, "have one attestation"],
        apply: copy_plain_over_treated,
    },
    Damage {
        name: "a copy with its lock",
        expected: &["beside both-treated-seed1.lock (\"both-plain-seed1\""],
        apply: |folder| {
            copy_plain_over_treated(folder);
            copy_lock_of_plain(folder);
        },
    },
    Damage {
        name: "a link to another arm",
        expected: &[PLAIN, TREATED],
        apply: |folder| {
            fs::remove_dir_all(folder.join(TREATED)).unwrap();
            std::os::unix::fs::symlink(PLAIN, folder.join(TREATED)).unwrap();
        },
    },
    Damage {
        name: "two swapped",
        expected: &["folder both-treated-seed1 holds run \"both-plain-seed1\""],
        apply: |folder| {
            fs::rename(folder.join(PLAIN), folder.join("away")).unwrap();
            fs::rename(folder.join(TREATED), folder.join(PLAIN)).unwrap();
            fs::rename(folder.join("away"), folder.join(TREATED)).unwrap();
        },
    },
    Damage {
        name: "another lock",
        expected: &["folder both-treated-seed1 holds run \"both-treated-seed1\""],
        apply: copy_lock_of_plain,
    },
    Damage {
        name: "no lock",
        expected: &["no readable lock both-treated-seed1.lock"],
        apply: remove_lock_of_treated,
    },
    Damage {
        name: "a missing run",
        expected: &["run both-treated-seed1 is missing"],
        apply: |folder| fs::remove_dir_all(folder.join(TREATED)).unwrap(),
    },
    Damage {
        name: "an emptied folder",
        expected: &["the run has no lock, but "],
        apply: |folder| {
            fs::remove_dir_all(folder.join(TREATED)).unwrap();
            fs::create_dir(folder.join(TREATED)).unwrap();
        },
    },
    Damage {
        name: "a missing run and its lock",
        expected: &["run both-treated-seed1 is missing"],
        apply: |folder| {
            fs::remove_dir_all(folder.join(TREATED)).unwrap();
            remove_lock_of_treated(folder);
        },
    },
    Damage {
        name: "no file beside the runs",
        expected: &["no readable lock both-treated-seed1.lock"],
        apply: |folder| {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_file() {
                    fs::remove_file(entry.path()).unwrap();
                }
            }
        },
    },
    Damage {
        name: "no run and no lock",
        expected: &["run both-treated-seed1 is missing", "run both-plain-seed1 is missing"],
        apply: |folder| {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let name = entry.file_name().into_string().unwrap();
                if entry.file_type().unwrap().is_dir() {
                    fs::remove_dir_all(entry.path()).unwrap();
                } else if name.ends_with(".lock") {
                    fs::remove_file(entry.path()).unwrap();
                }
            }
        },
    },
    Damage {
        name: BAD_REPORTED,
        expected: &["reported.jsonl: line 1"],
        apply: |folder| fs::write(folder.join("reported.jsonl"), "nothing\n").unwrap(),
    },
];

/// The one damage that leaves each run by itself intact.
const BAD_REPORTED: &str = "an unreadable reported.jsonl";

fn copy_plain_over_treated(folder: &Path) {
    fs::remove_dir_all(folder.join(TREATED)).unwrap();
    copy_folder(&folder.join(PLAIN), &folder.join(TREATED));
}

fn copy_lock_of_plain(folder: &Path) {
    let lock = folder.join(format!("{PLAIN}.lock"));
    fs::copy(lock, folder.join(format!("{TREATED}.lock"))).unwrap();
}

fn remove_lock_of_treated(folder: &Path) {
    fs::remove_file(folder.join(format!("{TREATED}.lock"))).unwrap();
}

/// Each run of a comparison is the one of its folder's name and of the lock beside it.
#[test]
fn a_comparison_whose_runs_are_swapped_copied_or_missing_does_not_verify() {
    let workspace = two_arms(&[SHORT]);
    workspace.exits(0, "build -q both.toml");
    workspace.exits(0, "compare lockfiles/both.lock");
    workspace.exits(0, "verify runs/both");
    workspace.exits(0, "verify both/both-treated-seed1");
    let folder = workspace.path("runs/both");
    let intact = workspace.path("intact");
    copy_folder(&folder, &intact);
    let restore = || {
        fs::remove_dir_all(&folder).unwrap();
        copy_folder(&intact, &folder);
    };
    for Damage { name, expected, apply } in DAMAGES {
        restore();
        apply(&folder);
        let output = workspace.exits(1, "verify runs/both");
        for part in expected {
            assert!(output.contains(part), "{name}: {part}: {output}");
        }
        if folder.join(TREATED).exists() && name != BAD_REPORTED {
            let output = workspace.exits(1, &format!("verify both/{TREATED}"));
            assert!(output.contains(TREATED), "{name}: {output}");
        }
    }
    // Commands that read one run refuse it too.
    restore();
    copy_plain_over_treated(&folder);
    for words in [
        "export runs/both/both-treated-seed1 --to hf --out h",
        "generate runs/both/both-treated-seed1 --prompt-tokens 1 --max-tokens 1",
        "report runs/both/both-treated-seed1 --out page.html",
        "reproduce runs/both/both-treated-seed1",
        "eval runs/both/both-treated-seed1 --suite task",
        "serve runs/both/both-treated-seed1",
        "sign runs/both/both-treated-seed1 --key key",
    ]
    .into_iter()
    .filter(|line| has(line))
    {
        let output = workspace.exits(1, words);
        assert!(output.contains("holds run \"both-plain-seed1\""), "{words}: {output}");
    }
    assert!(!workspace.path("h").exists());
}

/// `canonc report` writes `report.html` where it is called, which makes no comparison of the folders beside it.
#[test]
fn a_page_beside_a_run_of_any_name_refuses_nothing() {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    workspace.exits(0, "run --dir try1");
    workspace.exits(0, "report try1");
    assert!(workspace.path("report.html").is_file());
    for command in ["verify try1", "report try1 --out again.html", "reproduce try1"] {
        workspace.exits(0, command);
    }
}

/// `compare` says that it does not use times that no run can have taken.
#[test]
fn implausible_times_are_reported_and_not_compared() {
    let workspace = two_arms(&[SHORT]);
    workspace.exits(0, "build -q both.toml");
    workspace.exits(0, "compare lockfiles/both.lock");
    let timings = workspace.path("runs/both/both-treated-seed1/timings.jsonl");
    let original = fs::read_to_string(&timings).unwrap();
    for seconds in ["-5", "1e999", "0.0", "1e-300"] {
        let lines = original.lines().map(|line| match line.split_once("\"seconds\":") {
            Some((before, _)) => format!("{before}\"seconds\":{seconds}}}\n"),
            None => format!("{line}\n"),
        });
        fs::write(&timings, lines.collect::<String>()).unwrap();
        let output = workspace.exits(0, "compare lockfiles/both.lock");
        assert!(
            output.contains("the times of a run are not used") && output.contains("timings.jsonl"),
            "{output}"
        );
        assert!(!output.contains("×0.00"), "{output}");
    }
    workspace.exits(1, "verify runs/both");
}
