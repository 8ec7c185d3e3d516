//! Names of runs: every command takes a path, a name under runs/, a run of a comparison and a lock's id.

use std::fs;

use crate::{ARCH, DEPO, Place, has};

/// A lock `alone`, and a comparison `pair`: its base is the same experiment, so that it uses the run of `alone`.
fn alone_and_pair() -> Place {
    let workspace = Place::empty();
    fs::write(workspace.path("archs.canon"), ARCH).unwrap();
    let recipe = DEPO.replace("steps = 6", "steps = 3");
    for (name, arch) in [("alone", "small"), ("canon", "small_canon")] {
        let text = format!("arch = \"archs.canon#{arch}\"\n{recipe}");
        fs::write(workspace.path(&format!("{name}.toml")), text).unwrap();
    }
    let text = "base = \"plain\"\ntreatment = [\"canon\"]\n[seeds]\ninit = [1]\ndata = [2]\n\
                [arms]\nplain = \"alone.toml\"\nother = \"canon.toml\"\n";
    fs::write(workspace.path("pair.toml"), text).unwrap();
    workspace.exits(0, "build -q alone.toml pair.toml");
    workspace.exits(0, "run lockfiles/alone.lock");
    workspace.exits(0, "compare lockfiles/pair.lock");
    workspace
}

/// As many of a list, in turn: those of each command begin at another one.
fn in_turn<'a>(list: &'a [&'a str], first: usize, count: u64) -> impl Iterator<Item = &'a str> {
    list.iter().cycle().skip(first % list.len()).take(list.len().min(count as usize)).copied()
}

/// All commands find a run in the same way, so each tries half of the names, in turn, and all of them with
/// `CANONC_CASES=1`.
#[test]
fn every_command_finds_a_run_by_any_of_its_names() {
    let workspace = alone_and_pair();
    assert!(
        !workspace.path("runs/pair/pair-plain-seed1").exists(),
        "the base is the run of `alone`"
    );
    let lock = workspace.attestation("runs/alone").lock.to_string();
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
    for (number, command) in commands.into_iter().filter(|line| has(line)).enumerate() {
        let mut first = None;
        for name in in_turn(&names, number, u64::from(support::cases(12))) {
            let output = workspace.type_in(&command.replace("NAME", name));
            let text = crate::said(&output);
            assert!(output.status.success(), "{command} {name}: {text}");
            let _ = fs::remove_dir_all(workspace.path("out"));
            // `show` repeats the name in its first line.
            let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
            let stdout =
                stdout.lines().filter(|line| !line.contains(name)).collect::<Vec<_>>().join("\n");
            if command.starts_with("generate") {
                assert_eq!(*first.get_or_insert(stdout.clone()), stdout, "{command} {name}");
            }
        }
        let missing = ["pair/pair-plain-seed9", "pair/alone/x", "../alone", "0123456789ab"];
        for missing in in_turn(&missing, number, u64::from(support::cases(8))) {
            let output = workspace.exits(2, &command.replace("NAME", missing));
            assert!(output.contains("error: "), "{command} {missing}: {output}");
        }
    }
    assert!(!workspace.path("runs/pair-plain-seed1").exists(), "nothing was trained again");
}

#[test]
fn a_name_of_several_runs_lists_them() {
    let workspace = alone_and_pair();
    let copy_run = |name: &str| {
        let to = workspace.path(name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let status = std::process::Command::new("cp")
            .arg("-r")
            .arg(workspace.path("runs/alone"))
            .arg(&to)
            .status();
        assert!(status.unwrap().success());
    };
    copy_run("runs/one/twin");
    copy_run("runs/two/twin");
    let output = workspace.exits(2, "verify twin");
    assert!(
        output.contains("`twin` names 2 runs")
            && output.contains("`runs/one/twin`, `runs/two/twin`"),
        "{output}"
    );
    workspace.exits(0, "verify two/twin");
    let lock = workspace.attestation("runs/alone").lock.to_string();
    let output = workspace.exits(2, &format!("verify {}", &lock[..12]));
    assert!(output.contains("names 3 runs"), "{output}");
}

#[test]
fn a_lock_that_was_trained_under_another_name_is_not_trained_again() {
    let workspace = alone_and_pair();
    fs::copy(workspace.path("alone.toml"), workspace.path("again.toml")).unwrap();
    workspace.exits(0, "build -q again.toml");
    let output = workspace.exits(0, "run lockfiles/again.lock");
    assert!(
        output.contains("`runs/alone` is a finished run of this lock under another name"),
        "{output}"
    );
    assert!(output.contains("already finished: 3 steps"), "{output}");
    assert!(!workspace.path("runs/again").exists());
    // A program reads where the run is.
    let output = workspace.type_in("run lockfiles/again.lock --json");
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&value["schema"], &value["folder"], &value["state"], &value["steps"]),
        (&"canonc.run.v1".into(), &"runs/alone".into(), &"finished".into(), &3.into())
    );
    workspace.exits(0, "run lockfiles/again.lock --dir runs/again");
    workspace.holds("runs/again");
    // The lock is what runs, whatever was written in the recipe since.
    assert!(!workspace.exits(0, "run lockfiles/again.lock").contains("has changed"));
    let recipe = fs::read_to_string(workspace.path("again.toml")).unwrap();
    fs::write(workspace.path("again.toml"), recipe.replace("steps = 3", "steps = 4")).unwrap();
    let output = workspace.exits(0, "run lockfiles/again.lock");
    let warning =
        "`again.toml`, or what it names, has changed since `lockfiles/again.lock` was built";
    assert!(output.contains("already finished: 3 steps") && output.contains(warning), "{output}");
    // The name of a run means the run, also where a lock of that name is another one.
    workspace.exits(0, "build -q again.toml");
    let output = workspace.exits(0, "run again");
    assert!(
        output.contains("`lockfiles/again.lock` is lock") && output.contains("finished: 3 steps"),
        "{output}"
    );
    fs::write(workspace.path("again.toml"), &recipe).unwrap();
    workspace.exits(0, "build -q again.toml");
    fs::write(workspace.path("again.toml"), recipe.replace("steps = 3", "steps = x")).unwrap();
    let output = workspace.exits(0, "run lockfiles/again.lock");
    assert!(output.contains("has errors now; `canonc build again.toml` shows them"), "{output}");
    fs::write(workspace.path("again.toml"), recipe.replace("steps = 3", "steps = 4")).unwrap();
    // An unfinished run is not used for another lock.
    fs::remove_file(workspace.path("runs/alone/attestation.toml")).unwrap();
    fs::remove_dir_all(workspace.path("runs/again")).unwrap();
    let output = workspace.exits(0, "run lockfiles/again.lock");
    assert!(output.contains("finished: weights") && output.contains(warning), "{output}");
    assert!(!output.contains("another name"), "{output}");
    workspace.holds("runs/again");
}

/// For the commands that train or read a run.
#[cfg(unix)]
#[test]
fn links_to_folders_work_and_paths_of_the_wrong_kind_are_refused() {
    use std::os::unix::fs::symlink;
    let workspace = alone_and_pair();
    fs::write(workspace.path("file"), "theirs").unwrap();
    symlink("nowhere", workspace.path("lost")).unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(workspace.path("pipe"))
            .status()
            .unwrap()
            .success()
    );
    for (number, command) in [
        "run lockfiles/alone.lock --dir OUT",
        "reproduce alone --out OUT",
        "report alone --out page.html --tensorboard OUT",
        "compare lockfiles/pair.lock --dir OUT",
        "export alone --to hf --out OUT",
    ]
    .into_iter()
    .filter(|line| has(line))
    .enumerate()
    {
        for wrong in ["file", "file/in", "pipe", "lost", "/dev/null"] {
            let output = workspace.exits(2, &command.replace("OUT", wrong));
            assert!(output.contains("but a folder is needed"), "{command} {wrong}: {output}");
        }
        let real = format!("real{number}");
        fs::create_dir(workspace.path(&real)).unwrap();
        symlink(&real, workspace.path("link")).unwrap();
        workspace.exits(0, &command.replace("OUT", "link"));
        assert!(fs::read_dir(workspace.path(&real)).unwrap().next().is_some(), "{command}");
        assert!(fs::symlink_metadata(workspace.path("link")).unwrap().is_symlink(), "{command}");
        fs::remove_file(workspace.path("link")).unwrap();
    }
    for command in [
        "forward alone --tokens IN --out f.safetensors",
        "generate lockfiles/alone.lock --weights IN --prompt-tokens 1",
        "sign alone --key IN",
        "verify alone --signers IN",
        "reproduce alone --against IN",
    ]
    .into_iter()
    .filter(|line| has(line) && (has("sign") || !line.contains("--signers")))
    {
        for wrong in ["file/in", "pipe", "lost", "/dev/null"] {
            workspace.exits(2, &command.replace("IN", wrong));
        }
    }
    assert!(!workspace.path("nowhere").exists() && !workspace.path("page.html.tmp").exists());
}

/// No command puts a file into the folder of a run: `verify` would find it.
#[cfg(unix)]
#[test]
fn no_command_writes_other_output_into_a_run() {
    let workspace = alone_and_pair();
    std::os::unix::fs::symlink("runs/alone", workspace.path("link")).unwrap();
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
    ]
    .into_iter()
    .filter(|line| has(line))
    {
        for dir in ["runs/alone", "runs/alone/checkpoints", "link"] {
            let output = workspace.exits(2, &command.replace("DIR", dir));
            assert!(output.contains("inside the run in"), "{command} {dir}: {output}");
        }
    }
    assert!(!workspace.path("page.html").exists(), "nothing is written before a refusal");
    workspace.holds("runs/alone");
}
