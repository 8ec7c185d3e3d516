//! Evaluations of suites that a signal, a kill or another rank stops.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::json;

use super::*;
use crate::signal;

/// So many questions that a signal after a step's line arrives in the evaluation after it.
fn with_many_questions() -> Place {
    let workspace = with_suite();
    let line = |number: u32| {
        let given = format!("{number} is");
        json!({"given": given, "next": " so", "other": "not"}).to_string() + "\n"
    };
    let questions: String = (0..150).map(line).collect();
    fs::write(workspace.path("recipes/suites/q.jsonl"), questions).unwrap();
    workspace.exits(0, "build -q recipes/small.toml");
    workspace.exits(0, "run --dir straight --lock lockfiles/small.lock");
    workspace
}

/// Waits for words, sends SIGTERM to a process, and reads the rest of the output.
fn terminate_after(lines: &mut dyn BufRead, words: &str, child: &Child) -> String {
    let mut output = String::new();
    while !output.contains(words) {
        assert!(lines.read_line(&mut output).unwrap() > 0, "{output}");
    }
    signal(child, "-TERM");
    while lines.read_line(&mut output).unwrap() > 0 {}
    output
}

/// Stops a run when it prints `words`; it ends with a checkpoint of this step, which it did not evaluate.
fn stop_after(workspace: &Place, run: &str, words: &str, step: u64) {
    let (mut child, mut lines) =
        workspace.start(&format!("run --lock lockfiles/small.lock --dir {run}"));
    let output = terminate_after(&mut lines, words, &child);
    assert_eq!(child.wait().unwrap().code(), Some(75), "{output}");
    is_stopped_at(workspace, run, step, &output);
}

fn is_stopped_at(workspace: &Place, run: &str, step: u64, output: &str) {
    assert!(output.contains(&format!("interrupted after step {step}")), "{output}");
    assert_eq!(workspace.steps(run).len() as u64, step, "{output}");
    assert!(evaluations(workspace, run).iter().all(|logged| logged.step < step), "{output}");
    workspace.bits(run, step);
    let output = workspace.exits(0, &format!("verify {run}"));
    assert!(output.contains("none, because the run is not finished"), "{output}");
}

fn is_the_straight_run(workspace: &Place, run: &str) {
    workspace.exits(0, &format!("run --lock lockfiles/small.lock --dir {run}"));
    same(&workspace.bits("straight", 6), &workspace.bits(run, 6), run);
    workspace.holds(run);
}

#[test]
fn an_evaluation_that_is_stopped_is_done_first_when_the_run_goes_on() {
    let workspace = with_many_questions();
    stop_after(&workspace, "one", "step 3/6", 3);
    // Again, before it is done.
    stop_after(&workspace, "one", "small: 6 steps", 3);
    // Killed as soon as it is logged, with the checkpoint from before it.
    let killed = "run --lock lockfiles/small.lock --dir one --fault metrics-after:1";
    assert_eq!(workspace.type_in(killed).status.code(), None);
    assert_eq!(evaluations(&workspace, "one").len(), 1);
    workspace.exits(0, "verify one");
    workspace.exits(75, "run --lock lockfiles/small.lock --dir one --stop-after-step 4");
    stop_after(&workspace, "one", "step 6/6", 6);
    is_the_straight_run(&workspace, "one");
    let output = workspace.exits(0, "verify one --replay --all");
    assert!(output.contains("2 of 2 evaluations: the same bits"), "{output}");
}

/// The checkpoint of the stopped process stays, without being announced, and is saved again after the evaluation.
#[test]
fn a_process_killed_while_it_saves_a_state_without_its_evaluation_loses_nothing() {
    let workspace = with_many_questions();
    let lock = "--lock lockfiles/small.lock --dir killed";
    let (mut child, mut lines) = workspace.start(&format!("run {lock} --fault pointer-before:2"));
    let output = terminate_after(&mut lines, "step 3/6", &child);
    assert_eq!(child.wait().unwrap().code(), None, "{output}");
    workspace.bits("killed", 3);
    workspace.exits(0, "verify killed");
    workspace.exits(75, &format!("run {lock} --stop-after-step 3"));
    assert_eq!(evaluations(&workspace, "killed").len(), 1);
    workspace.exits(0, "verify killed");
    is_the_straight_run(&workspace, "killed");
}

#[test]
fn any_rank_stops_an_evaluation_of_all() {
    let workspace = with_many_questions();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let start = |rank: u32| {
        let mut command =
            workspace.command("run --rank-timeout 60 --lock lockfiles/small.lock --dir two");
        let variables = [("RANK", rank.to_string()), ("WORLD_SIZE", "2".to_owned())];
        command.envs(variables).env("MASTER_ADDR", "127.0.0.1");
        command.env("MASTER_PORT", port.to_string()).stdout(Stdio::null());
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let (mut rank_0, mut rank_1) = (start(0), start(1));
    let mut lines = BufReader::new(rank_0.stderr.take().unwrap());
    let output = terminate_after(&mut lines, "step 3/6", &rank_1);
    assert_eq!(rank_0.wait().unwrap().code(), Some(75), "{output}");
    assert_eq!(rank_1.wait().unwrap().code(), Some(75), "{output}");
    is_stopped_at(&workspace, "two", 3, &output);
    workspace.exits(75, "run --lock lockfiles/small.lock --dir two --ranks 2 --stop-after-step 4");
    assert_eq!(evaluations(&workspace, "two").len(), 1);
    is_the_straight_run(&workspace, "two");
}
