//! The processes that worked on a run: their machines, the logged lines that they reproduced, and their seconds.
//!
//! The files of events and timings are no evidence, so anything missing from them counts as zero.

use dsl::Problem;
use records::run::{Paths, RunFolder, json_lines};

/// The records of all processes that worked on a run.
pub(super) struct History {
    /// One for each process.
    pub(super) machines: Vec<String>,
    /// Logged lines that were reproduced.
    pub(super) proved: u64,
    /// Total seconds of all steps and evaluations.
    pub(super) seconds: f64,
}

/// The machine of each process that worked on a run, in the form of [`super::line`].
pub(crate) fn started(paths: &Paths) -> Result<Vec<String>, Problem> {
    let events = json_lines(&paths.events())?;
    let started =
        events.iter().filter(|event| event.get("event").is_some_and(|event| event == "started"));
    let machines = started.filter_map(|event| Some(event.get("machine")?.as_str()?.to_owned()));
    Ok(machines.collect())
}

pub(super) fn history(folder: &RunFolder) -> Result<History, Problem> {
    let events = json_lines(&folder.paths.events())?;
    let events_of = |kind: &'static str| {
        events.iter().filter(move |event| event.get("event").is_some_and(|event| event == kind))
    };
    let timings = json_lines(&folder.paths.timings())?;
    let seconds = timings.iter().filter_map(|timing| {
        timing.get("seconds").or_else(|| timing.get("evaluation_seconds"))?.as_f64()
    });
    Ok(History {
        machines: started(&folder.paths)?,
        proved: events_of("proved")
            .filter_map(|event| event.get("lines")?.as_u64())
            .fold(0, u64::saturating_add),
        // Of nothing, `sum` gives -0, and verify +0.
        seconds: seconds.fold(0.0, |sum, seconds| sum + seconds),
    })
}
