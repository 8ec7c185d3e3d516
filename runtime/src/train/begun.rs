//! Whether canonc began a run that it is about to continue: it attests only steps that a process of its own did.
//!
//! The events must begin at step 0, and where the machine is the one that they name, the first logged step must come out
//! again, bit for bit. A folder that was converted from another engine's files has neither.

use dsl::Problem;

use super::history::started;
use crate::execute::{Machine, Trainer};
use crate::state::State;
use records::job::Job;
use records::metrics::{Record, Step};
use records::run::{Paths, json_lines};

/// Refuses to continue a checkpoint of a run that canonc did not begin. `line` names this machine; `None` if several ranks
/// train, of which no one has the whole state.
pub(super) fn check(
    paths: &Paths,
    job: &mut Job,
    records: &[Record],
    trainer: &Trainer,
    machine: Machine,
    line: Option<&str>,
) -> Result<(), Problem> {
    let folder = paths.folder.display();
    let refuse = |what: String| {
        Err(Problem::finding(
            format!(
                "the run in {folder} is not continued, since nothing shows that canonc began it: {what}"
            ),
            format!(
                "restore the folder from a copy, or move it away and train the lock from the start; a run of another \
                 engine is a folder of its own kind, which `canonc record {folder}` attests"
            ),
        ))
    };
    let first = json_lines(&paths.events())?
        .into_iter()
        .find(|event| event.get("event").is_some_and(|event| event == "started"));
    match first.as_ref().and_then(|event| event.get("step")?.as_u64()) {
        Some(0) => {}
        Some(step) => {
            return refuse(format!("events.jsonl has no process before step {step}"));
        }
        None => return refuse("events.jsonl has no started process".to_owned()),
    }
    let machines = started(paths)?;
    let here = line.is_some_and(|line| machines.iter().all(|there| there == line));
    let logged = records.iter().find_map(|record| match record {
        Record::Step(step) if step.step == 1 => Some(step),
        Record::Start(_) | Record::Step(_) | Record::Evaluation(_) => None,
    });
    let Some(logged) = logged.filter(|_| here) else { return Ok(()) };
    let computed = State::initial(job, machine)?.advance(job, trainer)?;
    match differences(logged, &computed) {
        None => Ok(()),
        Some(what) => refuse(format!("computed again on this machine, step 1 is another: {what}")),
    }
}

fn differences(logged: &Step, computed: &Step) -> Option<String> {
    let (logged, computed) = (Record::Step(logged.clone()), Record::Step(computed.clone()));
    let differences = logged.differences(&computed);
    (!differences.is_empty()).then(|| differences.join("; "))
}
