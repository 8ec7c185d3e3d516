//! The events of a run, each a line of `events.jsonl` with the time and the process.
//!
//! These lines are not evidence and no result depends on them; every automatic decision is among them. A run is published
//! with them, so they name no folders of this machine.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

/// An event in the life of a run's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A process began to train, after `step` steps.
    Started {
        /// Number of steps done before.
        step: u64,
        /// The machine, in one line.
        machine: String,
    },
    /// A torn line at the end of the metrics log was removed.
    MetricsCut {
        /// The text that was removed.
        line: String,
    },
    /// A checkpoint was not used, and why.
    CheckpointRefused {
        /// The checkpoint's name.
        name: String,
        /// Why it was refused, in words.
        why: String,
    },
    /// This rank does not see the run's folder, so rank 0 writes checkpoints alone.
    SavesAlone {
        /// The first rank that does not see it.
        rank: u64,
    },
    /// Steps up to here were logged before, and gave the same results again.
    Proved {
        /// The last of these steps.
        step: u64,
        /// Number of lines of the log that were compared.
        lines: u64,
    },
    /// A checkpoint was saved and training ended before its last step.
    Interrupted {
        /// Number of steps done.
        step: u64,
    },
    /// Training ended with an error.
    Failed {
        /// Number of steps done.
        step: u64,
        /// The error, in words.
        why: String,
    },
    /// The run reached its end and was attested.
    Finished {
        /// Number of steps of the run.
        step: u64,
    },
    /// Training diverged at this step, which is attested, with the value that shows it.
    Diverged {
        /// The step at which training diverged.
        step: u64,
        /// The value that shows it, in words.
        why: String,
    },
}

/// Most characters of a removed line.
const SHOWN: usize = 200;

impl Event {
    pub(super) fn line(&self) -> String {
        let now =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        let mut line = match self {
            Event::Started { step, machine } => {
                json!({"event": "started", "step": step, "machine": machine})
            }
            Event::MetricsCut { line } => {
                json!({"event": "metrics cut", "line": line.chars().take(SHOWN).collect::<String>()})
            }
            Event::CheckpointRefused { name, why } => {
                json!({"event": "checkpoint refused", "name": name, "why": without_folders(why)})
            }
            Event::SavesAlone { rank } => json!({"event": "saves alone", "rank": rank}),
            Event::Proved { step, lines } => {
                json!({"event": "proved", "step": step, "lines": lines})
            }
            Event::Interrupted { step } => json!({"event": "interrupted", "step": step}),
            Event::Failed { step, why } => {
                json!({"event": "failed", "step": step, "why": without_folders(why)})
            }
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

/// A text without the folders of absolute paths: `…/b` of `/home/a/b`.
fn without_folders(text: &str) -> String {
    let mut shown = String::new();
    for word in text.split_inclusive(|c: char| c.is_whitespace() || "`'\"()[]{},;=:".contains(c)) {
        match word.split_once('/').filter(|(before, _)| before.is_empty()) {
            Some((_, rest)) => {
                let name = rest.rsplit('/').next().unwrap_or(rest);
                shown.push_str("…/");
                shown.push_str(name);
            }
            None => shown.push_str(word),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_paths_lose_their_folders() {
        for (text, shown) in [
            ("/home/a/b.index cannot be read", "…/b.index cannot be read"),
            ("`/tmp/x/`: no room (/dev/sda1)", "`…/`: no room (…/sda1)"),
            ("runs/a/b is not /c", "runs/a/b is not …/c"),
            ("path=/a/b, 3 tokens/s", "path=…/b, 3 tokens/s"),
            ("at:/home/a/x: no room", "at:…/x: no room"),
        ] {
            assert_eq!(without_folders(text), shown);
        }
    }
}
