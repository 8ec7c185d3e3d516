//! Evaluations of suites that are stopped: asked to, killed, of several ranks.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::json;

use super::*;
use crate::signal;

/// So many questions that a signal after a step's line arrives in the evaluation after it.
fn with_many_questions() -> Place {
    let place = place();
    let line = |number: u32| {
        let given = format!("{number} is");
        json!({"given": given, "next": " so", "other": "not"}).to_string() + "\n"
    };
    let all: String = (0..150).map(line).collect();
    fs::write(place.path("recipes/suites/q.jsonl"), all).unwrap();
    place.exits(0, "build recipes/small.toml");
    place.exits(0, "run --dir straight --lock lockfiles/small.lock");
    place
}

/// Waits for words, sends SIGTERM to a process, and reads what else is said.
fn ask_to_stop(lines: &mut dyn BufRead, words: &str, child: &Child) -> String {
    let mut said = String::new();
    while !said.contains(words) {
        assert!(lines.read_line(&mut said).unwrap() > 0, "{said}");
    }
    signal(child, "-TERM");
    while lines.read_line(&mut said).unwrap() > 0 {}
    said
}

/// Stops a run when it says `words`; it ends with a checkpoint of this step, which it did not evaluate.
fn stopped(place: &Place, run: &str, words: &str, step: u64) {
    let (mut child, mut lines) =
        place.start(&format!("run --lock lockfiles/small.lock --dir {run}"));
    let said = ask_to_stop(&mut lines, words, &child);
    assert_eq!(child.wait().unwrap().code(), Some(75), "{said}");
    is_stopped_at(place, run, step, &said);
}

fn is_stopped_at(place: &Place, run: &str, step: u64, said: &str) {
    assert!(said.contains(&format!("interrupted after step {step}")), "{said}");
    assert_eq!(place.steps(run).len() as u64, step, "{said}");
    assert!(evaluations(place, run).iter().all(|logged| logged.step < step), "{said}");
    place.bits(run, step);
    let said = place.exits(0, &format!("verify {run}"));
    assert!(said.contains("none, because the run is not finished"), "{said}");
}

fn is_the_straight_run(place: &Place, run: &str) {
    place.exits(0, &format!("run --lock lockfiles/small.lock --dir {run}"));
    same(&place.bits("straight", 6), &place.bits(run, 6), run);
    place.holds(run);
}

#[test]
fn an_evaluation_that_is_stopped_is_done_first_when_the_run_goes_on() {
    let place = with_many_questions();
    stopped(&place, "one", "step 3/6", 3);
    // Again, before it is done.
    stopped(&place, "one", "small: 6 steps", 3);
    // Killed as soon as it is logged, with the checkpoint from before it.
    let killed = "run --lock lockfiles/small.lock --dir one --fault metrics-after:1";
    assert_eq!(place.type_in(killed).status.code(), None);
    assert_eq!(evaluations(&place, "one").len(), 1);
    place.exits(0, "verify one");
    place.exits(75, "run --lock lockfiles/small.lock --dir one --stop-after-step 4");
    stopped(&place, "one", "step 6/6", 6);
    is_the_straight_run(&place, "one");
    let said = place.exits(0, "verify one --replay --all");
    assert!(said.contains("2 of 2 evaluations: the same bits"), "{said}");
}

/// The checkpoint of the stopped process stays, without being announced, and is saved again after the evaluation.
#[test]
fn a_process_killed_while_it_saves_a_state_without_its_evaluation_loses_nothing() {
    let place = with_many_questions();
    let lock = "--lock lockfiles/small.lock --dir killed";
    let (mut child, mut lines) = place.start(&format!("run {lock} --fault pointer-before:2"));
    let said = ask_to_stop(&mut lines, "step 3/6", &child);
    assert_eq!(child.wait().unwrap().code(), None, "{said}");
    place.bits("killed", 3);
    place.exits(0, "verify killed");
    place.exits(75, &format!("run {lock} --stop-after-step 3"));
    assert_eq!(evaluations(&place, "killed").len(), 1);
    place.exits(0, "verify killed");
    is_the_straight_run(&place, "killed");
}

#[test]
fn any_rank_stops_an_evaluation_of_all() {
    let place = with_many_questions();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let start = |rank: u32| {
        let mut command =
            place.command("run --rank-timeout 60 --lock lockfiles/small.lock --dir two");
        let variables = [("RANK", rank.to_string()), ("WORLD_SIZE", "2".to_owned())];
        command.envs(variables).env("MASTER_ADDR", "127.0.0.1");
        command.env("MASTER_PORT", port.to_string()).stdout(Stdio::null());
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let (mut leader, mut other) = (start(0), start(1));
    let mut lines = BufReader::new(leader.stderr.take().unwrap());
    let said = ask_to_stop(&mut lines, "step 3/6", &other);
    assert_eq!(leader.wait().unwrap().code(), Some(75), "{said}");
    assert_eq!(other.wait().unwrap().code(), Some(75), "{said}");
    is_stopped_at(&place, "two", 3, &said);
    place.exits(75, "run --lock lockfiles/small.lock --dir two --ranks 2 --stop-after-step 4");
    assert_eq!(evaluations(&place, "two").len(), 1);
    is_the_straight_run(&place, "two");
}
