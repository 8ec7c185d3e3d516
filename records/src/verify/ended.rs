//! In: a run's events, its log and its last checkpoint. Out: whether the events are in canonc's form, and whether a run
//! without an attestation can be unfinished. Must stay true: times and machines in the events prove nothing, since they
//! are not sealed; a run with a process at work is never reported as having lost its attestation.

use std::fs::TryLockError;
use std::path::Path;

use serde_json::Value;

use super::log::Log;
use super::{Report, Subject, read};
use crate::finished;
use crate::run::Paths;

/// The end of a run according to its events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// It finished or diverged; both events are written after the attestation.
    ended: bool,
}

/// Events, each with the members of its line other than the time and the process.
const EVENTS: [(&str, &[&str]); 9] = [
    ("started", &["step", "machine"]),
    ("metrics cut", &["line"]),
    ("checkpoint refused", &["name", "why"]),
    ("saves alone", &["rank"]),
    ("proved", &["step", "lines"]),
    ("interrupted", &["step"]),
    ("failed", &["step", "why"]),
    ("diverged", &["step", "why"]),
    ("finished", &["step"]),
];
/// Members of every event.
const ALWAYS: [&str; 3] = ["event", "process", "unix_time"];
/// Possible first events of a process.
const FIRST: [&str; 3] = ["started", "metrics cut", "checkpoint refused"];

/// Checks each line of the events against canonc's forms. The process that wrote a line may have ended in the middle of
/// it; then the next line is another process's first one.
pub(super) fn check_events(
    paths: &Paths,
    begun: bool,
    other_canonc: bool,
    report: &mut Report,
) -> Told {
    const NAME: &str = "events.jsonl";
    let text = match read(&paths.events()) {
        Ok(text) => text.unwrap_or_default(),
        Err(error) => {
            report.broken(format!("{NAME} cannot be read: {error}"));
            return Told::default();
        }
    };
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        if begun {
            report
                .broken(format!("{NAME} is missing or empty; every run that has started has one"));
        }
        return Told::default();
    }
    let kinds: Vec<Option<&str>> = lines.iter().map(|line| kind(line)).collect();
    for (at, (line, kind)) in lines.iter().zip(&kinds).enumerate() {
        let next = kinds.get(at + 1).copied();
        let new_process = |kind: Option<&str>| kind.is_some_and(|kind| FIRST.contains(&kind));
        let torn = is_torn(line) && next.is_none_or(new_process);
        if kind.is_none() && !torn && !other_canonc {
            let shown: String = line.chars().take(80).collect();
            report.broken(format!(
                "{NAME}: line {} is not an event that canonc writes: {shown}",
                at + 1
            ));
        }
    }
    if begun && !other_canonc && !kinds.contains(&Some("started")) {
        report.broken(format!("{NAME} has no started process, but the log has steps"));
    }
    let ended = kinds.iter().any(|kind| matches!(kind, Some("finished" | "diverged")));
    Told { ended }
}

/// The kind of event in a line, if it is one.
fn kind(line: &str) -> Option<&'static str> {
    let value: Value = serde_json::from_str(line).ok()?;
    let members = value.as_object()?;
    let named = members.get("event")?.as_str()?;
    let (kind, own) = EVENTS.iter().find(|(kind, _)| *kind == named)?;
    let wanted = || ALWAYS.iter().chain(*own);
    let whole = wanted().count() == members.len() && wanted().all(|key| members.contains_key(*key));
    whole.then_some(*kind)
}

/// Whether a line can be the beginning of an event.
fn is_torn(line: &str) -> bool {
    const START: &str = "{\"event\":\"";
    (START.starts_with(line) || line.starts_with(START))
        && serde_json::from_str::<Value>(line).is_err()
}

/// Without an attestation a run must be unfinished; reports it if it reached its end.
pub(super) fn check_unattested(
    paths: &Paths,
    last: u64,
    log: Option<&Log>,
    last_is_saved: bool,
    told: Told,
    report: &mut Report,
) {
    let steps = log.and_then(|log| log.steps().last()).map_or(0, |step| step.step);
    let shown = log.and_then(|log| finished::divergence(log.records.last()?, last));
    let end = match shown {
        Some((step, _)) => Some(format!("training diverged at step {step}")),
        // A run that was stopped in its last evaluation has both without it.
        None if steps == last && last_is_saved && log.is_some_and(Log::ends_evaluated) => {
            Some(format!("its log and its checkpoint are those of the last step, {last}"))
        }
        None if told.ended => Some("events.jsonl says that it ended".to_owned()),
        None => None,
    };
    match end {
        // Whether it is there is looked at again, after whether a process holds the folder: it may have ended meanwhile.
        Some(end) if !at_work(&paths.writer()) && !paths.attestation().exists() => report.broken(format!(
            "attestation.toml is missing: {end}, and a run is attested right after that; `canonc run` on its lock \
             writes the attestation"
        )),
        Some(_) | None => report.trusted(
            Subject::Attestation,
            "attestation: none, because the run is not finished",
        ),
    }
}

/// Whether a process holds the run's folder now.
fn at_work(writer: &Path) -> bool {
    let held = disk::open(writer).map(|file| file.try_lock_shared());
    matches!(held, Ok(Err(TryLockError::WouldBlock)))
}
