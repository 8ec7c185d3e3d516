//! Checks the lines of `timings.jsonl` against the log: their form, their order, and that no step is missing or added.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::read;
use crate::metrics::Record;
use crate::run::{Paths, Refusal};

const NAME: &str = "timings.jsonl";
/// Shortest time of a step or an evaluation, in seconds: one cannot even be started in less.
const LEAST_SECONDS: f64 = 1e-6;
/// Longest one: about a month.
const MOST_SECONDS: f64 = 3e6;

/// The forms of a line: members that it has, and members that it may have.
const FORMS: [(&[&str], &[&str]); 4] = [
    (&["step", "seconds"], &["received", "computing", "slowest"]),
    (&["evaluation", "evaluation_seconds"], &[]),
    (&["checkpoint", "peak_memory_bytes"], &["ranks_peak_memory_bytes"]),
    (&["beside"], &[]),
];

/// A step or an evaluation of the log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timed {
    Step(u64),
    Evaluation(u64),
}

/// What the timings are compared with.
#[derive(Clone, Copy)]
pub struct TimedRun<'a> {
    /// The run's log.
    pub records: &'a [Record],
    /// The number of processes that trained it, by its events.
    pub processes: usize,
    /// Steps of the lock.
    pub steps: u64,
    /// Whether the run is finished: then all of its steps are in the log.
    pub finished: bool,
}

/// Bytes that a process of this program can have taken at its peak.
const MEMORY: std::ops::Range<u64> = 1 << 20..1 << 50;

/// The sum of the seconds in the timings of a run, or their first fault. A process that is killed leaves the step that it
/// logged last without a time, or a torn line, and after a power failure times of steps that the log lost; so there are at
/// most as many of these as processes that continued the run.
pub fn timed_seconds(paths: &Paths, run: TimedRun<'_>) -> Result<f64, Refusal> {
    let path = paths.timings();
    let text = match read(&path) {
        Ok(Some(text)) => text,
        // The first step is timed after it is logged.
        Ok(None) if run.finished || run.records.iter().filter_map(timed).count() > 1 => {
            return Err(format!("{NAME} is missing; every run that has trained has one").into());
        }
        Ok(None) => return Ok(0.0),
        Err(error) => {
            return Err(Refusal::of_io(&path, &error).about(&format!("{NAME} cannot be read: ")));
        }
    };
    let mut order = TimingOrder::new(run);
    let mut sum = 0.0;
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        // The run's next process cuts them.
        if !run.finished && line.contains('\0') {
            break;
        }
        let Some(body) = line.strip_suffix('\n').filter(|body| !is_torn(body)) else {
            if line.ends_with('\n') {
                order.torn = true;
                order.add_break(|_| format!("line {number} is torn"));
            } else if run.finished {
                return Err(
                    format!("{NAME}: its last line is torn, but the run is finished").into()
                );
            }
            continue;
        };
        let refused = |reason: String| format!("{NAME}: line {number} {reason}: {}", shown(body));
        let (what, seconds) = parse_line(body).map_err(refused)?;
        sum += seconds.unwrap_or(0.0);
        match what {
            TimingLine::Timed(what) => order.add(number, what).map_err(refused)?,
            TimingLine::Checkpoint(step) if step > run.steps => {
                return Err(refused(format!("is of a step after the last, {}", run.steps)).into());
            }
            TimingLine::Checkpoint(_) | TimingLine::Beside => {}
        }
    }
    order.finish()?;
    Ok(sum)
}

/// The order of the timings so far, compared with that of the log.
struct TimingOrder<'a> {
    run: TimedRun<'a>,
    /// The number of each timed record of the log, from 1.
    of_log: BTreeMap<Timed, usize>,
    /// The number of the last one that has a time; 0 before the first.
    before: usize,
    /// Places where lines are missing, added, torn or out of order.
    breaks: usize,
    /// A message about the first of them.
    first: Option<String>,
    /// Whether a line was torn after the last time.
    torn: bool,
}

impl TimingOrder<'_> {
    fn new(run: TimedRun<'_>) -> TimingOrder<'_> {
        let of_log = run.records.iter().filter_map(timed).zip(1..).collect();
        TimingOrder { run, of_log, before: 0, breaks: 0, first: None, torn: false }
    }

    fn add_break(&mut self, message: impl FnOnce(&Self) -> String) {
        self.breaks += 1;
        if self.first.is_none() {
            self.first = Some(message(self));
        }
    }

    /// Adds the time in a line, or returns what is wrong with that line.
    fn add(&mut self, number: usize, what: Timed) -> Result<(), String> {
        let at = match self.of_log.get(&what) {
            Some(at) => *at,
            // The log was read before, and a process may work on the run; a log that lost lines gets them again.
            None if !self.run.finished && what.step() <= self.run.steps => return Ok(()),
            None => {
                return Err(format!("is of {}, which the log does not have", what.text()));
            }
        };
        // The line that is torn was of the step that is missing.
        let explained = std::mem::take(&mut self.torn);
        if at != self.before + 1 && !explained {
            self.add_break(|order| {
                format!("line {number} has {} after {}", what.text(), order.last())
            });
        }
        self.before = at;
        Ok(())
    }

    /// The name of the last record that has a time.
    fn last(&self) -> String {
        let known = self.of_log.iter().find(|(_, at)| **at == self.before);
        known.map_or_else(|| "nothing".to_owned(), |(what, _)| what.text())
    }

    fn finish(mut self) -> Result<(), String> {
        if self.run.finished && self.before != self.of_log.len() {
            self.add_break(|order| format!("it ends with {}", order.last()));
        }
        let TimingOrder { run, breaks, first, .. } = self;
        match first {
            Some(first) if breaks >= run.processes.max(1) => Err(format!(
                "{NAME}: lines are missing, added, torn or out of order: {first}; each process that continues a run \
                 explains one such place, but there are {} and {}",
                dsl::counted(breaks, "place"),
                dsl::counted(run.processes, "process")
            )),
            Some(_) | None => Ok(()),
        }
    }
}

impl Timed {
    fn step(self) -> u64 {
        match self {
            Timed::Step(step) | Timed::Evaluation(step) => step,
        }
    }

    fn text(self) -> String {
        match self {
            Timed::Step(step) => format!("step {step}"),
            Timed::Evaluation(step) => format!("the evaluation after step {step}"),
        }
    }
}

fn timed(record: &Record) -> Option<Timed> {
    match record {
        Record::Start(_) => None,
        Record::Step(step) => Some(Timed::Step(step.step)),
        Record::Evaluation(evaluation) => Some(Timed::Evaluation(evaluation.step)),
    }
}

enum TimingLine {
    Timed(Timed),
    Checkpoint(u64),
    Beside,
}

/// Whether a process can have ended while it wrote this.
fn is_torn(body: &str) -> bool {
    ("{\"".starts_with(body) || body.starts_with("{\""))
        && !body.ends_with('}')
        && serde_json::from_str::<Value>(body).is_err()
}

/// A whole line's content, with its seconds if it has any.
fn parse_line(body: &str) -> Result<(TimingLine, Option<f64>), String> {
    let nothing = || "is not a line that canonc writes".to_owned();
    let value: Value = serde_json::from_str(body).map_err(|_| nothing())?;
    let members = value.as_object().ok_or_else(nothing)?;
    let is_of = |(always, sometimes): &(&[&str], &[&str])| {
        always.iter().all(|key| members.contains_key(*key))
            && members.keys().all(|key| always.iter().chain(*sometimes).any(|known| known == key))
    };
    if !FORMS.iter().any(is_of) {
        return Err(nothing());
    }
    let number = |key: &str| members.get(key).map(|value| value.as_u64().ok_or_else(nothing));
    if let Some(beside) = number("beside") {
        let others = beside?;
        return if others > 0 { Ok((TimingLine::Beside, None)) } else { Err(nothing()) };
    }
    if let Some(step) = number("checkpoint") {
        let bytes = number("peak_memory_bytes").unwrap_or_else(|| Err(nothing()))?;
        return match MEMORY.contains(&bytes) {
            true => Ok((TimingLine::Checkpoint(step?), None)),
            false => Err("has a memory that no process takes".to_owned()),
        };
    }
    let (what, seconds) = match number("step") {
        Some(step) => (Timed::Step(step?), seconds(members, "seconds")?),
        None => {
            let step = number("evaluation").unwrap_or_else(|| Err(nothing()))?;
            (Timed::Evaluation(step), seconds(members, "evaluation_seconds")?)
        }
    };
    Ok((TimingLine::Timed(what), Some(seconds)))
}

fn seconds(members: &Map<String, Value>, key: &str) -> Result<f64, String> {
    let seconds = members.get(key).and_then(Value::as_f64);
    seconds
        .filter(|seconds| (LEAST_SECONDS..=MOST_SECONDS).contains(seconds))
        .ok_or_else(|| "has a time that no step takes".to_owned())
}

fn shown(line: &str) -> String {
    line.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use compiler::digest::Digest;
    use compiler::plan::TERMS;

    use super::*;
    use crate::metrics::Step;

    fn records(steps: u64) -> Vec<Record> {
        let step = |step| {
            let (batch, terms) = (Some(Digest::of("test", "")), [None; TERMS.len()]);
            let (loss, grad_norm, lr, counted) = (Some(1.0), 1.0, 1.0, 1);
            Record::Step(Step { step, loss, grad_norm, lr, batch, counted, terms })
        };
        (1..=steps).map(step).collect()
    }

    /// `12|3` are the times of steps 1 and 2, a torn line, and that of step 3.
    fn lines(steps: &str) -> String {
        let line = |step: char| match step {
            '|' => "{\"step\":9,\"sec\n".to_owned(),
            step => format!("{{\"step\":{step},\"seconds\":0.5}}\n"),
        };
        steps.chars().map(line).collect()
    }

    #[test]
    fn a_gap_needs_a_process_that_continued_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::new(folder.path());
        let records = records(4);
        for (steps, fewest) in [
            ("1234", 1),
            // It was killed between the log and the time, with a torn line, or before the last time.
            ("134", 2),
            ("1|34", 2),
            ("123", 2),
            ("234", 2),
            // After a power failure the log had fewer steps than the times.
            ("123234", 2),
            ("12|1234", 2),
            ("12121234", 3),
        ] {
            std::fs::write(paths.timings(), lines(steps)).unwrap();
            for processes in 0..5 {
                let run = TimedRun { records: &records, processes, steps: 4, finished: true };
                let ok = timed_seconds(&paths, run).is_ok();
                assert_eq!(ok, processes.max(1) >= fewest, "{steps} {processes}");
            }
        }
        // An unfinished run: times may end anywhere, and a process may log more meanwhile.
        for text in ["", "1", "12", "1234", &lines("123")[..60]] {
            let text = if text.starts_with('{') { text.to_owned() } else { lines(text) };
            std::fs::write(paths.timings(), text).unwrap();
            let few = &records[..2];
            let run = TimedRun { records: few, processes: 1, steps: 4, finished: false };
            assert!(timed_seconds(&paths, run).is_ok());
        }
    }
}
