//! A run's folder in place of a lock, several locks at once, and runs that one process cannot do.

use std::fs;
use std::path::Path;

use lab::lock::Lock;
use support::copy_folder;

use super::compare::{SHORT, two_arms};
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
        assert!(said.contains(run) && said.matches("no fault found").count() == 3, "{said}");
    }
    assert!(said.contains("\n3 of 3 without a fault\n"), "{said}");
    let said = place.exits(2, "verify runs/one page.html");
    assert!(said.contains("`page.html` is not a run or a lock"), "{said}");
    assert!(said.contains("\n3 of 4 without a fault; not checked: page.html\n"), "{said}");
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

/// Each run of a comparison is the one of its folder's name and of the lock beside it.
#[test]
fn a_comparison_whose_runs_are_swapped_copied_or_missing_does_not_verify() {
    let place = two_arms(&[SHORT]);
    place.exits(0, "build both.toml");
    place.exits(0, "compare lockfiles/both.lock");
    place.exits(0, "verify runs/both");
    place.exits(0, "verify both/both-treated-seed1");
    let whole = place.path("whole");
    copy_folder(&place.path("runs/both"), &whole);
    let (plain, treated) = ("both-plain-seed1", "both-treated-seed1");
    type Damage<'a> = (&'a str, &'a [&'a str], &'a dyn Fn(&Path));
    let again = |folder: &Path, from: &str, to: &str| {
        fs::remove_dir_all(folder.join(to)).unwrap();
        copy_folder(&folder.join(from), &folder.join(to));
    };
    let damages: [Damage<'_>; 12] = [
        ("a copy of another arm", &[plain, treated, "have one attestation"], &|folder| {
            again(folder, plain, treated);
        }),
        (
            "a copy with its lock",
            &["beside both-treated-seed1.lock (\"both-plain-seed1\""],
            &|folder| {
                again(folder, plain, treated);
                let lock = folder.join(format!("{plain}.lock"));
                fs::copy(lock, folder.join(format!("{treated}.lock"))).unwrap();
            },
        ),
        ("a link to another arm", &[plain, treated], &|folder| {
            fs::remove_dir_all(folder.join(treated)).unwrap();
            std::os::unix::fs::symlink(plain, folder.join(treated)).unwrap();
        }),
        ("two swapped", &["folder both-treated-seed1 holds run \"both-plain-seed1\""], &|folder| {
            fs::rename(folder.join(plain), folder.join("away")).unwrap();
            fs::rename(folder.join(treated), folder.join(plain)).unwrap();
            fs::rename(folder.join("away"), folder.join(treated)).unwrap();
        }),
        (
            "another lock",
            &["folder both-treated-seed1 holds run \"both-treated-seed1\""],
            &|folder| {
                let lock = folder.join(format!("{plain}.lock"));
                fs::copy(lock, folder.join(format!("{treated}.lock"))).unwrap();
            },
        ),
        ("no lock", &["no readable lock both-treated-seed1.lock"], &|folder| {
            fs::remove_file(folder.join(format!("{treated}.lock"))).unwrap();
        }),
        ("a run less", &["run both-treated-seed1 is missing"], &|folder| {
            fs::remove_dir_all(folder.join(treated)).unwrap();
        }),
        ("an emptied folder", &["the run has no lock, but "], &|folder| {
            fs::remove_dir_all(folder.join(treated)).unwrap();
            fs::create_dir(folder.join(treated)).unwrap();
        }),
        ("a run and its lock less", &["run both-treated-seed1 is missing"], &|folder| {
            fs::remove_dir_all(folder.join(treated)).unwrap();
            fs::remove_file(folder.join(format!("{treated}.lock"))).unwrap();
        }),
        (
            "every lock less, and what was reported",
            &["no readable lock both-treated-seed1.lock"],
            &|folder| {
                for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                    if entry.file_type().unwrap().is_file() {
                        fs::remove_file(entry.path()).unwrap();
                    }
                }
            },
        ),
        (
            "every run and lock less",
            &["run both-treated-seed1 is missing", "run both-plain-seed1 is missing"],
            &|folder| {
                for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                    let name = entry.file_name().into_string().unwrap();
                    if entry.file_type().unwrap().is_dir() {
                        fs::remove_dir_all(entry.path()).unwrap();
                    } else if name.ends_with(".lock") {
                        fs::remove_file(entry.path()).unwrap();
                    }
                }
            },
        ),
        ("a file of lines that are none", &["reported.jsonl: line 1"], &|folder| {
            fs::write(folder.join("reported.jsonl"), "nothing\n").unwrap();
        }),
    ];
    for (what, wanted, damage) in damages {
        let folder = place.path("runs/both");
        fs::remove_dir_all(&folder).unwrap();
        copy_folder(&whole, &folder);
        damage(&folder);
        let said = place.exits(1, "verify runs/both");
        for words in wanted {
            assert!(said.contains(words), "{what}: {words}: {said}");
        }
        if folder.join(treated).exists() && !what.starts_with("a file") {
            let said = place.exits(1, &format!("verify both/{treated}"));
            assert!(said.contains(treated), "{what}: {said}");
        }
    }
    // What reads one run refuses it too.
    let folder = place.path("runs/both");
    fs::remove_dir_all(&folder).unwrap();
    copy_folder(&whole, &folder);
    again(&folder, plain, treated);
    for words in [
        "export runs/both/both-treated-seed1 --to hf --out h",
        "generate runs/both/both-treated-seed1 --prompt-tokens 1 --max-tokens 1",
        "report runs/both/both-treated-seed1 --out page.html",
        "reproduce runs/both/both-treated-seed1",
        "eval runs/both/both-treated-seed1 --suite task",
        "serve runs/both/both-treated-seed1",
        "sign runs/both/both-treated-seed1 --key key",
    ] {
        let said = place.exits(1, words);
        assert!(said.contains("holds run \"both-plain-seed1\""), "{words}: {said}");
    }
    assert!(!place.path("h").exists());
}

/// `canonc report` writes `report.html` where it is called, which makes no comparison of the folders beside it.
#[test]
fn a_page_beside_a_run_of_any_name_refuses_nothing() {
    let place = Place::new(&experiment("small", DEPO, &[]));
    place.exits(0, "run --dir try1");
    place.exits(0, "report try1");
    assert!(place.path("report.html").is_file());
    for command in ["verify try1", "report try1 --out again.html", "reproduce try1"] {
        place.exits(0, command);
    }
}

/// `compare` says that it does not use the times of a run whose file of times no run writes.
#[test]
fn times_that_no_run_takes_are_reported_and_not_compared() {
    let place = two_arms(&[SHORT]);
    place.exits(0, "build both.toml");
    place.exits(0, "compare lockfiles/both.lock");
    let timings = place.path("runs/both/both-treated-seed1/timings.jsonl");
    let whole = fs::read_to_string(&timings).unwrap();
    for seconds in ["-5", "1e999", "0.0", "1e-300"] {
        let lines = whole.lines().map(|line| match line.split_once("\"seconds\":") {
            Some((before, _)) => format!("{before}\"seconds\":{seconds}}}\n"),
            None => format!("{line}\n"),
        });
        fs::write(&timings, lines.collect::<String>()).unwrap();
        let said = place.exits(0, "compare lockfiles/both.lock");
        assert!(
            said.contains("the times of a run are not used") && said.contains("timings.jsonl"),
            "{said}"
        );
        assert!(!said.contains("×0.00"), "{said}");
    }
    place.exits(1, "verify runs/both");
}
