//! In: an event of a run. Out: a line for `events.jsonl`, with the time and the process. Must stay true: these lines
//! are not evidence and no result depends on them; every automatic decision is among them.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

/// An event in the life of a run's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A process began to train, after `step` steps.
    Started {
        step: u64,
        machine: String,
    },
    /// A torn line at the end of the metrics log was removed.
    MetricsCut {
        line: String,
    },
    /// A checkpoint was not used, and why.
    CheckpointRefused {
        name: String,
        why: String,
    },
    /// Steps up to here were logged before, and gave the same results again.
    Proved {
        step: u64,
        lines: u64,
    },
    /// A checkpoint was saved and training ended before its last step.
    Interrupted {
        step: u64,
    },
    Failed {
        step: u64,
        why: String,
    },
    Finished {
        step: u64,
    },
    /// Training diverged at this step, which is attested, with the value that shows it.
    Diverged {
        step: u64,
        why: String,
    },
}

impl Event {
    pub(super) fn line(&self) -> String {
        let now =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        let mut line = match self {
            Event::Started { step, machine } => {
                json!({"event": "started", "step": step, "machine": machine})
            }
            Event::MetricsCut { line } => json!({"event": "metrics cut", "line": line}),
            Event::CheckpointRefused { name, why } => {
                json!({"event": "checkpoint refused", "name": name, "why": why})
            }
            Event::Proved { step, lines } => {
                json!({"event": "proved", "step": step, "lines": lines})
            }
            Event::Interrupted { step } => json!({"event": "interrupted", "step": step}),
            Event::Failed { step, why } => json!({"event": "failed", "step": step, "why": why}),
            Event::Diverged { step, why } => {
                json!({"event": "diverged", "step": step, "why": why})
            }
            Event::Finished { step } => json!({"event": "finished", "step": step}),
        };
        if let Some(members) = line.as_object_mut() {
            members.insert("unix_time".to_owned(), json!(now));
            members.insert("process".to_owned(), json!(std::process::id()));
        }
        line.to_string()
    }
}
