//! Scripts for Slurm: names with a shell's characters stay words.

use std::path::Path;
use std::process::Command;

use cli::launch::Array;
use dsl::quote;

/// Runs a script outside of a job: it stops at its first check, and nothing before that may run.
fn runs_nothing(script: &str, folder: &Path) {
    let path = folder.join("launch.sh");
    std::fs::write(&path, script).unwrap();
    let bash = |arguments: &[&str]| {
        let mut command = Command::new("bash");
        command.args(arguments).arg(&path).current_dir(folder).output().unwrap()
    };
    let parsed = bash(&["-n"]);
    assert!(parsed.status.success(), "{}\n{script}", String::from_utf8_lossy(&parsed.stderr));
    assert!(!bash(&[]).status.success());
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1, "{script}");
}

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
