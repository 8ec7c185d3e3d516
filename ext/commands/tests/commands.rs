//! The Slurm script of one run: names with a shell's characters stay words.
#![cfg(unix)]

use std::path::Path;
use std::process::Command;

use cli::launch::{NOTICE, render};
use commands::export::launch::RUN;
use minijinja::context;

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
        let values = context! {
            name => hostile, id => "0", nodes => 1, per_node => 2, gpu => false, threads => 4, notice => NOTICE,
            file => "small.lock", dir => hostile, data => hostile,
        };
        runs_nothing(&render(RUN, values).unwrap(), folder.path());
    }
}
