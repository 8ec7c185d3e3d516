//! A terminal that closes, `nohup`, and a process that is killed between two files. After a signal or a kill, the next
//! start resumes and cleans up.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::super::{DEPO, Place, experiment, said, signal};

#[test]
fn two_hangups_stop_a_run_once_and_nohup_ignores_them() {
    let workspace = Place::new(&experiment("small", DEPO, &[("steps = 6", "steps = 300")]));
    let (mut child, mut lines) = workspace.start("run --dir twice");
    read_until(&mut lines, "step 2/300");
    // Both the system and the shell signal the processes of a closing terminal.
    signal(&child, "-HUP");
    signal(&child, "-HUP");
    assert_eq!(child.wait().unwrap().code(), Some(75));
    workspace.exits(75, "run --dir twice --stop-after-step 30");
    let mut command = Command::new("sh");
    command
        .current_dir(workspace.root.path())
        .args(["-c", "trap '' HUP; exec \"$0\" run --dir on"]);
    command.arg(env!("CARGO_BIN_EXE_canonc")).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    read_until(&mut lines, "step 2/300");
    signal(&child, "-HUP");
    read_until(&mut lines, "step 40/300");
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(75));
}

/// Reads up to a line with these words.
fn read_until(lines: &mut dyn BufRead, words: &str) {
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended before {words}");
    }
}

#[test]
fn killed_between_the_pointer_and_pruning_it_leaves_no_extra_checkpoint() {
    let workspace = Place::new(&experiment("small", DEPO, &[("steps = 6", "steps = 12")]));
    let output = workspace.type_in("run --fault prune-before:4");
    assert_eq!(output.status.code(), None, "{}", said(&output));
    let checkpoints = || fs::read_dir(workspace.path("runs/small/checkpoints")).unwrap().count();
    let before = checkpoints();
    workspace.exits(75, "run --stop-after-step 1");
    assert_eq!(checkpoints(), before - 1, "the next start deletes the one that was left");
}
