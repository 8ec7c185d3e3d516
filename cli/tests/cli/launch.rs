//! Scripts for Slurm: names with a shell's characters stay words.

use std::process::Command;

use cli::launch::Array;
use dsl::quote;
use support::scripts::runs_nothing;

#[test]
fn hostile_names_are_words() {
    let folder = tempfile::tempdir().unwrap();
    for hostile in support::HOSTILE {
        let words = [hostile.to_owned(), "--dir".to_owned(), hostile.to_owned()];
        let array = Array {
            name: hostile,
            missing: 3,
            workers: 2,
            words: &words,
            gpu: true,
            threads: Some(2),
        };
        let script = array.script().unwrap();
        runs_nothing(&script, folder.path());
        let echo = script
            .replace("srun --ntasks=1 \"${CANONC:-canonc}\" compare --work", "printf '%s\\0'");
        let ran = Command::new("bash")
            .args(["-c", &echo])
            .env("SLURM_ARRAY_JOB_ID", "1")
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert_eq!(said.split_terminator('\0').collect::<Vec<_>>(), words, "{echo}");
    }
}

#[test]
fn a_shell_reads_back_the_same_text() {
    let folder = tempfile::tempdir().unwrap();
    for text in support::HOSTILE {
        let script = format!("printf %s {}", quote::sh(text));
        let output =
            Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), text, "{script}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
