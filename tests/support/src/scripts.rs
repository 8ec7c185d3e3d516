//! Runs scripts that canonc writes, with names that a careless script would run.

use std::path::Path;
use std::process::Command;

/// Runs a Slurm script outside of a job: it stops at its first check, and nothing before that may run.
pub fn runs_nothing(script: &str, folder: &Path) {
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
