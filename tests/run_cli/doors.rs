//! Checks of input and output: names, output paths, exports of other weights.

use std::fs;
use std::path::Path;

use super::super::{ARCH, DEPO, Place, experiment, said};

/// Every file under a folder with its bytes.
fn files(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push((path.clone(), fs::read(path).unwrap())),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_lock_with_the_name_of_a_path_or_a_script_is_refused_by_every_command() {
    let place = Place::new(&experiment("small", DEPO, &[]));
    let lock = place.path("lockfiles/small.lock");
    let text = fs::read_to_string(&lock).unwrap();
    for name in ["x\\ntouch pwned #", "../../h/pwn", "/tmp/canonc-pwned", "a b", "-x", "\\u001b[2J"]
    {
        fs::write(&lock, text.replacen("name = \"small\"", &format!("name = \"{name}\""), 1))
            .unwrap();
        let before = files(place.root.path());
        for words in [
            "verify lockfiles/small.lock",
            "run lockfiles/small.lock",
            "show lockfiles/small.lock",
            "export lockfiles/small.lock --to slurm --out slurm",
            "diff lockfiles/small.lock lockfiles/small.lock",
            "report lockfiles/small.lock --out page.html",
        ] {
            let output = place.type_in(words);
            let said = said(&output);
            assert!(matches!(output.status.code(), Some(1 | 2)), "{words}: {said}");
            assert!(said.contains("is not a valid name"), "{words}: {said}");
            assert!(!said.contains('\u{1b}'), "{words}: {said:?}");
        }
        assert_eq!(files(place.root.path()), before);
    }
}

#[test]
fn no_command_writes_over_what_canonc_did_not_write_there() {
    let place = Place::new(&experiment("small", DEPO, &[]));
    place.exits(0, "run");
    fs::write(place.path("thesis.tex"), "years of work").unwrap();
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
            let before = fs::read(place.path(theirs)).unwrap();
            let said = place.exits(2, &words);
            let inside = theirs.starts_with("runs/") && said.contains("is inside the run in");
            assert!(inside || said.contains("written by canonc"), "{words}: {said}");
            assert_eq!(fs::read(place.path(theirs)).unwrap(), before, "{words}");
        }
    }
    // It replaces its own files if it can recognise them: samples look like anybody's corpus.
    for (words, again) in [
        ("report runs/small --out page.html --tensorboard tb".to_owned(), 0),
        (format!("{generate} --format jsonl --out a.jsonl"), 2),
        (format!("{generate} --format parquet --out a.parquet"), 2),
    ] {
        place.exits(0, &words);
        place.exits(again, &words);
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("thesis.tex", place.path("link")).unwrap();
        place.exits(2, "report runs/small --out link");
        assert_eq!(fs::read_to_string(place.path("thesis.tex")).unwrap(), "years of work");
    }
}

#[test]
fn only_the_weights_of_the_lock_and_the_run_are_exported() {
    let place = Place::new(&experiment("small", DEPO, &[]));
    place.exits(0, "run");
    let other = experiment("small", DEPO, &[("lr = 0.01", "lr = 0.02")]);
    place.lock("other", &lab::lock::Lock::Experiment(other));
    place.exits(0, "run lockfiles/other.lock --dir runs/other");
    let step =
        |run: &str, step: u64| place.path(&format!("runs/{run}/checkpoints/step-{step:010}"));
    let weights = "runs/other/checkpoints/step-0000000006/weights.safetensors";
    for lock in ["lockfiles/small.lock", "runs/small/lock", "runs/small"] {
        let said = place.exits(1, &format!("export {lock} --weights {weights} --to hf --out no"));
        assert!(said.contains("these weights are of step 6 of a run of lock"), "{said}");
    }
    // The last weights of a run by each of their names.
    let checkpoints = "runs/other/checkpoints";
    let names = [weights, "runs/other", checkpoints, "runs/other/checkpoints/latest"];
    for (at, weights) in names.iter().enumerate() {
        let words = format!("export lockfiles/other.lock --weights {weights} --to hf --out hf{at}");
        let said = place.exits(0, &words);
        assert!(said.contains("README.md"), "{said}");
        let card = fs::read_to_string(place.path(&format!("hf{at}/README.md"))).unwrap();
        assert!(card.contains("| weights | of step 6 of 6 of lock "), "{words}: {card}");
        assert!(card.contains(", not attested |") && !card.contains("attested by"), "{card}");
    }
    // The weights of a run that are named for themselves are checked as the run's are.
    let words = "export runs/other --weights runs/other --to hf --out itself";
    place.exits(0, words);
    let card = fs::read_to_string(place.path("itself/README.md")).unwrap();
    assert!(card.contains("attested by the run"), "{card}");
    let mut bytes = fs::read(place.path(weights)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(place.path(weights), bytes).unwrap();
    for weights in names {
        let words = format!("export lockfiles/other.lock --weights {weights} --to hf --out no");
        assert!(place.exits(1, &words).contains("is not what its checkpoint says"), "{words}");
    }
    // Swap two checkpoints of the run.
    let away = place.path("away");
    fs::rename(step("small", 6), &away).unwrap();
    fs::rename(step("small", 4), step("small", 6)).unwrap();
    fs::rename(&away, step("small", 4)).unwrap();
    place.exits(1, "export runs/small --to hf --out no");
    // Replace the last checkpoint by another run's.
    fs::remove_dir_all(step("small", 6)).unwrap();
    fs::rename(step("other", 6), step("small", 6)).unwrap();
    place.exits(1, "export runs/small --to hf --out no");
    assert!(!place.path("no").exists());
}

#[test]
fn a_runs_weights_are_those_of_its_graph_and_its_checkpoint() {
    let place = Place::new(&experiment("small", DEPO, &[]));
    place.exits(0, "run");
    fs::write(place.path("m.canon"), ARCH).unwrap();
    let edited = "import small from \"m.canon\"\narch other = small with { norm_eps 1e-2 }\n";
    fs::write(place.path("other.canon"), edited).unwrap();
    let step = "runs/small/checkpoints/step-0000000006";
    let words =
        |arch: &str| format!("generate {arch} --weights {step} --prompt-tokens 1 --max-tokens 1");
    let warning = "the weights of the run `runs/small` were trained for another graph";
    assert!(place.exits(0, &words("other.canon#other")).contains(warning));
    assert!(!place.exits(0, &words("m.canon#small")).contains(warning));
    fs::remove_file(place.path(&format!("{step}/checkpoint.toml"))).unwrap();
    let said = place.exits(1, &words("m.canon#small"));
    assert!(said.contains("is not what its checkpoint says it is"), "{said}");
}
