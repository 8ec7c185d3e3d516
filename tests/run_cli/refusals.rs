//! What commands refuse: unsafe names of locks, output over files of others, weights of another run or graph.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::{DEPO, Place, experiment, has, said};

/// Every file under a folder with its bytes.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut contents = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => contents.push((path.clone(), fs::read(path).unwrap())),
            }
        }
    }
    contents.sort();
    contents
}

#[test]
fn a_lock_with_the_name_of_a_path_or_a_script_is_refused_by_every_command() {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    let lock = workspace.path("lockfiles/small.lock");
    let lock_text = fs::read_to_string(&lock).unwrap();
    for name in ["x\\ntouch pwned #", "../../h/pwn", "/tmp/canonc-pwned", "a b", "-x", "\\u001b[2J"]
    {
        fs::write(&lock, lock_text.replacen("name = \"small\"", &format!("name = \"{name}\""), 1))
            .unwrap();
        let before = files(workspace.root.path());
        for words in [
            "verify lockfiles/small.lock",
            "run lockfiles/small.lock",
            "show lockfiles/small.lock",
            "export lockfiles/small.lock --to slurm --out slurm",
            "diff lockfiles/small.lock lockfiles/small.lock",
            "report lockfiles/small.lock --out page.html",
        ]
        .into_iter()
        .filter(|line| has(line))
        {
            let output = workspace.type_in(words);
            let text = said(&output);
            assert!(matches!(output.status.code(), Some(1 | 2)), "{words}: {text}");
            assert!(text.contains("is not a valid name"), "{words}: {text}");
            assert!(!text.contains('\u{1b}'), "{words}: {text:?}");
        }
        assert_eq!(files(workspace.root.path()), before);
    }
}

#[test]
fn no_command_overwrites_a_file_that_it_did_not_write() {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    workspace.exits(0, "run");
    fs::write(workspace.path("thesis.tex"), "years of work").unwrap();
    let log = "runs/small/metrics.jsonl";
    let weights = "runs/small/checkpoints/step-0000000006/weights.safetensors";
    let generate = "data generate mano --set L=4 --count 3";
    for theirs in ["thesis.tex", log, weights, "runs/small/lock", "lockfiles/small.lock"] {
        for words in [
            format!("report runs/small --out {theirs}"),
            format!("{generate} --format jsonl --out {theirs}"),
            format!("{generate} --format bin --out {theirs}"),
            format!("{generate} --format parquet --out {theirs}"),
        ] {
            let before = fs::read(workspace.path(theirs)).unwrap();
            let output = workspace.exits(2, &words);
            let inside = theirs.starts_with("runs/") && output.contains("is inside the run in");
            assert!(inside || output.contains("written by canonc"), "{words}: {output}");
            assert_eq!(fs::read(workspace.path(theirs)).unwrap(), before, "{words}");
        }
    }
    // It replaces its own files if it can recognise them: samples look like anybody's corpus.
    for (words, second_exit) in [
        ("report runs/small --out page.html --tensorboard tb".to_owned(), 0),
        (format!("{generate} --format jsonl --out a.jsonl"), 2),
        (format!("{generate} --format parquet --out a.parquet"), 2),
    ] {
        workspace.exits(0, &words);
        workspace.exits(second_exit, &words);
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("thesis.tex", workspace.path("link")).unwrap();
        workspace.exits(2, "report runs/small --out link");
        assert_eq!(fs::read_to_string(workspace.path("thesis.tex")).unwrap(), "years of work");
    }
}

#[cfg(feature = "ext")]
#[test]
fn only_the_weights_of_the_lock_and_the_run_are_exported() {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    workspace.exits(0, "run");
    let other = experiment("small", DEPO, &[("lr = 0.01", "lr = 0.02")]);
    workspace.lock("other", &lab::lock::Lock::Experiment(other));
    workspace.exits(0, "run lockfiles/other.lock --dir runs/other");
    let step =
        |run: &str, step: u64| workspace.path(&format!("runs/{run}/checkpoints/step-{step:010}"));
    let weights = "runs/other/checkpoints/step-0000000006/weights.safetensors";
    for lock in ["lockfiles/small.lock", "runs/small/lock", "runs/small"] {
        let output =
            workspace.exits(1, &format!("export {lock} --weights {weights} --to hf --out no"));
        assert!(output.contains("these weights are of step 6 of a run of lock"), "{output}");
    }
    // The last weights of a run by each of their names.
    let checkpoints = "runs/other/checkpoints";
    let names = [weights, "runs/other", checkpoints, "runs/other/checkpoints/latest"];
    for (number, weights) in names.iter().enumerate() {
        let words =
            format!("export lockfiles/other.lock --weights {weights} --to hf --out hf{number}");
        let output = workspace.exits(0, &words);
        assert!(output.contains("README.md"), "{output}");
        let card = fs::read_to_string(workspace.path(&format!("hf{number}/README.md"))).unwrap();
        assert!(card.contains("| weights | of step 6 of 6 of lock "), "{words}: {card}");
        assert!(card.contains(", not attested |") && !card.contains("attested by"), "{card}");
    }
    // The weights of a run that are named for themselves are checked as the run's are.
    let words = "export runs/other --weights runs/other --to hf --out itself";
    workspace.exits(0, words);
    let card = fs::read_to_string(workspace.path("itself/README.md")).unwrap();
    assert!(card.contains("attested by the run"), "{card}");
    let mut bytes = fs::read(workspace.path(weights)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(workspace.path(weights), bytes).unwrap();
    for weights in names {
        let words = format!("export lockfiles/other.lock --weights {weights} --to hf --out no");
        assert!(workspace.exits(1, &words).contains("is not what its checkpoint says"), "{words}");
    }
    // Swap two checkpoints of the run.
    let away = workspace.path("away");
    fs::rename(step("small", 6), &away).unwrap();
    fs::rename(step("small", 4), step("small", 6)).unwrap();
    fs::rename(&away, step("small", 4)).unwrap();
    workspace.exits(1, "export runs/small --to hf --out no");
    // Replace the last checkpoint by another run's.
    fs::remove_dir_all(step("small", 6)).unwrap();
    fs::rename(step("other", 6), step("small", 6)).unwrap();
    workspace.exits(1, "export runs/small --to hf --out no");
    assert!(!workspace.path("no").exists());
}

#[cfg(feature = "ext")]
#[test]
fn a_runs_weights_are_those_of_its_graph_and_its_checkpoint() {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    workspace.exits(0, "run");
    fs::write(workspace.path("m.canon"), crate::ARCH).unwrap();
    let edited = "import small from \"m.canon\"\narch other = small with { norm_eps 1e-2 }\n";
    fs::write(workspace.path("other.canon"), edited).unwrap();
    let step = "runs/small/checkpoints/step-0000000006";
    let words =
        |arch: &str| format!("generate {arch} --weights {step} --prompt-tokens 1 --max-tokens 1");
    let warning = "the weights of the run `runs/small` were trained for another graph";
    assert!(workspace.exits(0, &words("other.canon#other")).contains(warning));
    assert!(!workspace.exits(0, &words("m.canon#small")).contains(warning));
    fs::remove_file(workspace.path(&format!("{step}/checkpoint.toml"))).unwrap();
    let output = workspace.exits(1, &words("m.canon#small"));
    assert!(output.contains("is not what its checkpoint says it is"), "{output}");
}
