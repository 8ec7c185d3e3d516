//! Checks a run's events, and whether a run without an attestation can be unfinished.
//!
//! Times and machines in the events prove nothing, since they are not sealed. A run with a process at work is never reported
//! as having lost its attestation.

use std::path::Path;

use serde_json::{Map, Value};

use super::log::Log;
use super::{Subject, VerifyReport, read};
use crate::attest::{Attestation, Circumstances};
use crate::finished;
use crate::run::{Paths, Refusal, is_held};

/// What a run's events add up to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventTotals {
    /// It finished or diverged; both events are written after the attestation.
    ended: bool,
    /// Processes that began to train.
    pub(super) processes: usize,
    /// Logged lines that were computed again.
    proved: u64,
}

/// How far a run is by its other files, which the events are compared with.
#[derive(Clone, Copy)]
pub(super) struct RecordedEnd<'a> {
    /// Whether a process has trained.
    pub(super) begun: bool,
    pub(super) finished: bool,
    pub(super) other_canonc: bool,
    /// Steps of the lock.
    pub(super) steps: u64,
    /// The attestation, if it can be read.
    pub(super) attestation: Option<&'a Attestation>,
}

/// The kind of a member.
#[derive(Clone, Copy)]
enum Member {
    Number,
    Text,
}

use Member::{Number, Text};

/// Events, each with the members of its line other than the time and the process.
const EVENTS: [(&str, &[(&str, Member)]); 9] = [
    ("started", &[("step", Number), ("machine", Text)]),
    ("metrics cut", &[("line", Text)]),
    ("checkpoint refused", &[("name", Text), ("why", Text)]),
    ("saves alone", &[("rank", Number)]),
    ("proved", &[("step", Number), ("lines", Number)]),
    ("interrupted", &[("step", Number)]),
    ("failed", &[("step", Number), ("why", Text)]),
    ("diverged", &[("step", Number), ("why", Text)]),
    ("finished", &[("step", Number)]),
];
/// Members of every event, besides its time.
const ALWAYS: [(&str, Member); 2] = [("event", Text), ("process", Number)];
const TIME: &str = "unix_time";
/// Possible first events of a process.
const FIRST: [&str; 3] = ["started", "metrics cut", "checkpoint refused"];
/// Last events of a process.
const LAST: [&str; 4] = ["interrupted", "failed", "diverged", "finished"];
const NAME: &str = "events.jsonl";

/// An event of canonc.
struct KnownEvent {
    kind: &'static str,
    members: Map<String, Value>,
}

impl KnownEvent {
    fn number(&self, key: &str) -> Option<u64> {
        self.members.get(key)?.as_u64()
    }
}

/// Checks each line of the events against canonc's forms. The process that wrote a line may have ended in the middle of
/// it; then the next line is another process's first one.
pub(super) fn check_events(
    paths: &Paths,
    run: RecordedEnd<'_>,
    report: &mut VerifyReport,
) -> EventTotals {
    let path = paths.events();
    let text = match read(&path) {
        Ok(text) => text.unwrap_or_default(),
        Err(error) => {
            report.unreadable(&path, &error);
            return EventTotals::default();
        }
    };
    let mut lines: Vec<&str> = text.lines().collect();
    // What a power cut left of the last line; the run's next process cuts it.
    if !run.finished && lines.last().is_some_and(|line| line.contains('\0')) {
        lines.pop();
    }
    if lines.is_empty() {
        if run.begun {
            report
                .broken(format!("{NAME} is missing or empty; every run that has started has one"));
        }
        return EventTotals::default();
    }
    let known: Vec<Option<KnownEvent>> = lines.iter().map(|line| known(line)).collect();
    if !run.other_canonc {
        check_lines(&lines, &known, run, report);
        if run.finished {
            check_end(&text, known.last().and_then(Option::as_ref), run, report);
        }
    }
    let of_kind =
        |kind: &'static str| known.iter().flatten().filter(move |event| event.kind == kind);
    EventTotals {
        ended: of_kind("finished").chain(of_kind("diverged")).next().is_some(),
        processes: of_kind("started").count(),
        proved: of_kind("proved")
            .filter_map(|event| event.number("lines"))
            .fold(0, u64::saturating_add),
    }
}

fn check_lines(
    lines: &[&str],
    known: &[Option<KnownEvent>],
    run: RecordedEnd<'_>,
    report: &mut VerifyReport,
) {
    let begins = |event: &KnownEvent| FIRST.contains(&event.kind);
    for (at, (line, event)) in (1..).zip(lines.iter().zip(known)) {
        let next = known.get(at).map(Option::as_ref);
        match event {
            None => {
                let ends = !run.finished && next.is_none() || next.flatten().is_some_and(begins);
                if !is_torn(line) || !ends {
                    let shown: String = line.chars().take(80).collect();
                    report.broken(format!(
                        "{NAME}: line {at} is not an event that canonc writes: {shown}"
                    ));
                }
            }
            Some(event) => {
                if let Some(step) = event.number("step").filter(|step| *step > run.steps) {
                    report.broken(format!(
                        "{NAME}: line {at} is {} at step {step}, but the lock has {}",
                        event.kind, run.steps
                    ));
                }
                if let Some(Some(next)) = next
                    && LAST.contains(&event.kind)
                    && !begins(next)
                {
                    report.broken(format!(
                        "{NAME}: line {} is {}, but the process before it ended with {}",
                        at + 1,
                        next.kind,
                        event.kind
                    ));
                }
            }
        }
    }
    let first = known.iter().flatten().find(|event| event.kind == "started");
    match first.map(|event| event.number("step")) {
        None if run.begun => {
            report.broken(format!("{NAME} has no started process, but the log has steps"));
        }
        Some(Some(step)) if step > 0 => report.broken(format!(
            "{NAME}: its first process began at step {step}, so none of canonc's trained the steps before"
        )),
        None | Some(_) => {}
    }
}

/// Checks that the last event of a finished run is its end.
fn check_end(
    text: &str,
    last: Option<&KnownEvent>,
    run: RecordedEnd<'_>,
    report: &mut VerifyReport,
) {
    let Some(attestation) = run.attestation else { return };
    let (kind, step) = match attestation.diverged {
        Some(step) => ("diverged", step),
        None => ("finished", attestation.steps),
    };
    let ends = last.is_some_and(|last| last.kind == kind && last.number("step") == Some(step));
    if !ends || !text.ends_with('\n') {
        let last = last.map_or("not an event", |last| last.kind);
        report.broken(format!(
            "{NAME}: its last line is {last}, but the attested run ended with {kind} at step {step}; `canonc run` on \
             its lock writes that line if a process ended before it could"
        ));
    }
}

/// Checks what the lines below the attestation's seal count against the events and the timings.
pub(super) fn check_times(
    events: &EventTotals,
    circumstances: Option<Circumstances>,
    seconds: Result<f64, Refusal>,
    report: &mut VerifyReport,
) {
    let timed = match seconds {
        Ok(timed) => timed,
        Err(fault) => {
            report.faulty("", fault);
            return;
        }
    };
    let Some(Circumstances { finished: _, seconds, processes, proved }) = circumstances else {
        return;
    };
    if seconds.to_bits() != timed.to_bits() {
        report.broken(format!(
            "timings.jsonl: its seconds add up to {timed:?}, but attestation.toml has seconds = {seconds:?}"
        ));
    }
    for (what, attested, counted) in
        [("processes", processes, events.processes as u64), ("proved", proved, events.proved)]
    {
        if attested != counted {
            report.broken(format!(
                "{NAME}: it counts {counted}, but attestation.toml has {what} = {attested}"
            ));
        }
    }
}

/// Checks the file that the writing process holds.
pub(super) fn check_writer(writer: &Path, begun: bool, report: &mut VerifyReport) {
    // A process that has just taken it writes its number next.
    if !begun || is_held(writer) {
        return;
    }
    let text = match read(writer) {
        Ok(Some(text)) => text,
        Ok(None) => {
            report.broken(
                "writer is missing; every run that has started has one, and `canonc run` on its lock writes it",
            );
            return;
        }
        Err(error) => {
            report.unreadable(writer, &error);
            return;
        }
    };
    let number = text.strip_prefix("process ").and_then(|rest| rest.strip_suffix('\n'));
    let parsed = number.and_then(|number| number.parse::<u32>().ok());
    let written =
        parsed.filter(|process| *process > 0).map(|process| format!("process {process}\n"));
    if written.as_ref() != Some(&text) && !is_held(writer) {
        let shown: String = text.chars().take(80).collect();
        report.broken(format!(
            "writer contains {shown:?}, but canonc writes `process N`; `canonc run` on its lock writes it again"
        ));
    }
}

/// The event in a line, if it is one.
fn known(line: &str) -> Option<KnownEvent> {
    let value: Value = serde_json::from_str(line).ok()?;
    let members = value.as_object()?;
    let named = members.get("event")?.as_str()?;
    let (kind, extra) = EVENTS.iter().find(|(kind, _)| *kind == named)?;
    let mut wanted = ALWAYS.iter().chain(*extra);
    let is_complete = members.len() == ALWAYS.len() + extra.len() + 1
        && members.get(TIME)?.as_f64().is_some_and(|time| time > 0.0)
        && wanted.all(|(key, member)| {
            members.get(*key).is_some_and(|value| match member {
                Number => value.is_u64(),
                Text => value.is_string(),
            })
        });
    is_complete.then(|| KnownEvent { kind, members: members.clone() })
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
    events: EventTotals,
    report: &mut VerifyReport,
) {
    let steps = log.and_then(|log| log.steps().last()).map_or(0, |step| step.step);
    let shown = log.and_then(|log| finished::divergence(log.records.last()?, last));
    let end = match shown {
        Some((step, _)) => Some(format!("training diverged at step {step}")),
        // A run that was stopped in its last evaluation has both without it.
        None if steps == last && last_is_saved && log.is_some_and(Log::ends_evaluated) => {
            Some(format!("its log and its checkpoint are those of the last step, {last}"))
        }
        None if events.ended => Some("events.jsonl says that it ended".to_owned()),
        None => None,
    };
    // Whether it is there is looked at again, after whether a process holds the folder: it may have ended meanwhile.
    let lost = end.filter(|_| !is_held(&paths.writer()));
    match (lost, paths.is_attested()) {
        (Some(end), Ok(false)) => report.broken(format!(
            "attestation.toml is missing: {end}, and a run is attested right after that; `canonc run` on its lock \
             writes the attestation"
        )),
        (Some(_), Err(error)) => report.faulty("", error),
        (Some(_), Ok(true)) | (None, _) => report.trusted(
            Subject::Attestation,
            "attestation: none, because the run is not finished",
        ),
    }
}
