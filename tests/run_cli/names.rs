//! Names of runs: every command takes a path, a name under runs/, a run of a comparison and a lock's id.

use std::fs;

use crate::{ARCH, DEPO, Place};

/// A lock `alone`, and a comparison `pair`: its base is the same experiment, so that it uses the run of `alone`.
fn place() -> Place {
    let place = Place::empty();
    fs::write(place.path("archs.canon"), ARCH).unwrap();
    let recipe = DEPO.replace("steps = 6", "steps = 3");
    for (name, arch) in [("alone", "small"), ("canon", "small_canon")] {
        let text = format!("arch = \"archs.canon#{arch}\"\n{recipe}");
        fs::write(place.path(&format!("{name}.toml")), text).unwrap();
    }
    let text = "base = \"plain\"\ntreatment = [\"canon\"]\n[seeds]\ninit = [1]\ndata = [2]\n\
                [arms]\nplain = \"alone.toml\"\nother = \"canon.toml\"\n";
    fs::write(place.path("pair.toml"), text).unwrap();
    place.exits(0, "build alone.toml pair.toml");
    place.exits(0, "run lockfiles/alone.lock");
    place.exits(0, "compare lockfiles/pair.lock");
    place
}

#[test]
fn every_command_finds_a_run_by_any_of_its_names() {
    let place = place();
    assert!(!place.path("runs/pair/pair-plain-seed1").exists(), "the base is the run of `alone`");
    let lock = place.attestation("runs/alone").lock.to_string();
    let names = [
        "runs/alone",
        "alone",
        "pair/pair-plain-seed1",
        "runs/pair/pair-plain-seed1",
        "pair-plain-seed1",
        lock.get(..12).unwrap(),
    ];
    let commands = [
        "show NAME",
        "graph NAME",
        "verify NAME",
        "diff NAME runs/alone",
        "report NAME --out page.html",
        "reproduce runs/alone --against NAME",
        "generate NAME --prompt-tokens 1,2 --max-tokens 2 --temperature 0",
        "audit NAME",
        "data inspect NAME",
        "export NAME --to card --out out",
        "run NAME",
    ];
    for command in commands {
        let mut first = None;
        for name in names {
            let output = place.type_in(&command.replace("NAME", name));
            let said = crate::said(&output);
            assert!(output.status.success(), "{command} {name}: {said}");
            let _ = fs::remove_dir_all(place.path("out"));
            // `show` repeats the name in its first line.
            let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
            let stdout =
                stdout.lines().filter(|line| !line.contains(name)).collect::<Vec<_>>().join("\n");
            if command.starts_with("generate") {
                assert_eq!(*first.get_or_insert(stdout.clone()), stdout, "{command} {name}");
            }
        }
        for missing in ["pair/pair-plain-seed9", "pair/alone/x", "../alone", "0123456789ab"] {
            let said = place.exits(2, &command.replace("NAME", missing));
            assert!(said.contains("error: "), "{command} {missing}: {said}");
        }
    }
    assert!(!place.path("runs/pair-plain-seed1").exists(), "nothing was trained again");
}

#[test]
fn a_name_of_several_runs_lists_them() {
    let place = place();
    let copy = |to: &str| {
        let to = place.path(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let done = std::process::Command::new("cp")
            .arg("-r")
            .arg(place.path("runs/alone"))
            .arg(&to)
            .status();
        assert!(done.unwrap().success());
    };
    copy("runs/one/twin");
    copy("runs/two/twin");
    let said = place.exits(2, "verify twin");
    assert!(
        said.contains("`twin` names 2 runs") && said.contains("`runs/one/twin`, `runs/two/twin`"),
        "{said}"
    );
    place.exits(0, "verify two/twin");
    let lock = place.attestation("runs/alone").lock.to_string();
    let said = place.exits(2, &format!("verify {}", &lock[..12]));
    assert!(said.contains("names 3 runs"), "{said}");
}

#[test]
fn a_lock_that_was_trained_under_another_name_is_not_trained_again() {
    let place = place();
    fs::copy(place.path("alone.toml"), place.path("again.toml")).unwrap();
    place.exits(0, "build again.toml");
    let said = place.exits(0, "run lockfiles/again.lock");
    assert!(
        said.contains("`runs/alone` is a finished run of this lock under another name"),
        "{said}"
    );
    assert!(said.contains("already finished: 3 steps"), "{said}");
    assert!(!place.path("runs/again").exists());
    place.exits(0, "run lockfiles/again.lock --dir runs/again");
    place.holds("runs/again");
    // The lock is what runs, whatever was written in the recipe since.
    assert!(!place.exits(0, "run lockfiles/again.lock").contains("has changed"));
    let recipe = fs::read_to_string(place.path("again.toml")).unwrap();
    fs::write(place.path("again.toml"), recipe.replace("steps = 3", "steps = 4")).unwrap();
    let said = place.exits(0, "run lockfiles/again.lock");
    let warning =
        "`again.toml`, or what it names, has changed since `lockfiles/again.lock` was built";
    assert!(said.contains("already finished: 3 steps") && said.contains(warning), "{said}");
    // The name of a run means the run, also where a lock of that name is another one.
    place.exits(0, "build again.toml");
    let said = place.exits(0, "run again");
    assert!(
        said.contains("`lockfiles/again.lock` is lock") && said.contains("finished: 3 steps"),
        "{said}"
    );
    fs::write(place.path("again.toml"), &recipe).unwrap();
    place.exits(0, "build again.toml");
    fs::write(place.path("again.toml"), recipe.replace("steps = 3", "steps = x")).unwrap();
    let said = place.exits(0, "run lockfiles/again.lock");
    assert!(said.contains("has errors now; `canonc build again.toml` shows them"), "{said}");
    fs::write(place.path("again.toml"), recipe.replace("steps = 3", "steps = 4")).unwrap();
    // An unfinished run is not used for another lock.
    fs::remove_file(place.path("runs/alone/attestation.toml")).unwrap();
    fs::remove_dir_all(place.path("runs/again")).unwrap();
    let said = place.exits(0, "run lockfiles/again.lock");
    assert!(said.contains("finished: weights") && said.contains(warning), "{said}");
    assert!(!said.contains("another name"), "{said}");
    place.holds("runs/again");
}

/// Links to folders for the commands that train or read a run.
#[cfg(unix)]
#[test]
fn links_and_paths_of_the_wrong_kind_for_runs() {
    use std::os::unix::fs::symlink;
    let place = place();
    fs::write(place.path("file"), "theirs").unwrap();
    symlink("nowhere", place.path("lost")).unwrap();
    assert!(
        std::process::Command::new("mkfifo").arg(place.path("pipe")).status().unwrap().success()
    );
    for (number, command) in [
        "run lockfiles/alone.lock --dir OUT",
        "reproduce alone --out OUT",
        "report alone --out page.html --tensorboard OUT",
        "compare lockfiles/pair.lock --dir OUT",
        "export alone --to hf --out OUT",
    ]
    .into_iter()
    .enumerate()
    {
        for wrong in ["file", "file/in", "pipe", "lost", "/dev/null"] {
            let said = place.exits(2, &command.replace("OUT", wrong));
            assert!(said.contains("but a folder is needed"), "{command} {wrong}: {said}");
        }
        let real = format!("real{number}");
        fs::create_dir(place.path(&real)).unwrap();
        symlink(&real, place.path("link")).unwrap();
        place.exits(0, &command.replace("OUT", "link"));
        assert!(fs::read_dir(place.path(&real)).unwrap().next().is_some(), "{command}");
        assert!(fs::symlink_metadata(place.path("link")).unwrap().is_symlink(), "{command}");
        fs::remove_file(place.path("link")).unwrap();
    }
    for command in [
        "forward alone --tokens IN --out f.safetensors",
        "generate lockfiles/alone.lock --weights IN --prompt-tokens 1",
        "sign alone --key IN",
        "verify alone --signers IN",
        "reproduce alone --against IN",
    ] {
        for wrong in ["file/in", "pipe", "lost", "/dev/null"] {
            place.exits(2, &command.replace("IN", wrong));
        }
    }
    assert!(!place.path("nowhere").exists() && !place.path("page.html.tmp").exists());
}

/// No command puts a file into the folder of a run: `verify` would find it.
#[cfg(unix)]
#[test]
fn the_folder_of_a_run_is_no_place_for_other_output() {
    let place = place();
    std::os::unix::fs::symlink("runs/alone", place.path("link")).unwrap();
    for command in [
        "export alone --to hf --out DIR/x",
        "new DIR/x",
        "man DIR/x",
        "man DIR",
        "build alone.toml --out DIR",
        "build alone.toml --out DIR/x",
        "compare lockfiles/pair.lock --dir DIR",
        "run lockfiles/alone.lock --dir DIR/x",
        "reproduce pair/pair-other-seed1 --out DIR/x",
        "report alone --out page.html --tensorboard DIR",
        "report alone --out DIR/page.html",
        "data export alone --out DIR/x.jsonl --count 1",
        "data generate mano --set L=4 --count 1 --out DIR/x.jsonl",
    ] {
        for dir in ["runs/alone", "runs/alone/checkpoints", "link"] {
            let said = place.exits(2, &command.replace("DIR", dir));
            assert!(said.contains("inside the run in"), "{command} {dir}: {said}");
        }
    }
    assert!(!place.path("page.html").exists(), "nothing is written before a refusal");
    place.holds("runs/alone");
}
