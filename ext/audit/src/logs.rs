//! Logs of other programs in a report: what they are, and how they agree with their locks. Who reads them says of which
//! lock they are.

use std::collections::BTreeMap;

use serde::Serialize;

/// How values of a log agree with a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogValues {
    /// The number of values that were compared.
    pub compared: usize,
    /// How many of them are not the lock's.
    pub differing: usize,
    /// The same in words.
    #[serde(skip)]
    pub says: String,
}

/// One log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSummary {
    /// The name of the experiment.
    pub experiment: String,
    /// The file.
    pub file: String,
    /// The program that wrote it, if it is known.
    pub program: Option<&'static str>,
    /// Names in the file by quantity.
    pub names: BTreeMap<&'static str, String>,
    /// What a loss is.
    pub loss_is: String,
    /// Its last step.
    pub last_step: u64,
    /// The steps of the lock.
    pub steps: u64,
    /// Learning rates.
    pub learning_rates: LogValues,
    /// Tokens so far.
    pub tokens: LogValues,
    /// Sequences of a step.
    pub sequences: LogValues,
    /// What a reader has to know.
    pub notes: Vec<String>,
}

impl LogSummary {
    /// Its lines in a report.
    pub(crate) fn lines(&self) -> Vec<String> {
        let names: Vec<String> =
            self.names.iter().map(|(quantity, name)| format!("{quantity} `{name}`")).collect();
        let mut lines = vec![
            format!("log of {} by the caller's word, on trust: {}", self.experiment, self.file),
            format!(
                "  written by {}: {}",
                self.program.unwrap_or("another program"),
                names.join(", ")
            ),
            format!("  step {} of {}; losses {}", self.last_step, self.steps, self.loss_is),
        ];
        let compared = [
            ("learning rates", &self.learning_rates),
            ("tokens", &self.tokens),
            ("sequences", &self.sequences),
        ];
        let compared = compared.into_iter().filter(|(_, values)| values.compared > 0);
        lines.extend(compared.map(|(what, values)| format!("  {what}: {}", values.says)));
        lines.extend(self.notes.iter().map(|note| format!("  note: {note}")));
        lines
    }
}

/// A log in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct JsonLog<'a> {
    experiment: &'a str,
    file: &'a str,
    program: Option<&'a str>,
    names: &'a BTreeMap<&'static str, String>,
    loss_is: &'a str,
    last_step: u64,
    learning_rates: &'a LogValues,
    tokens: &'a LogValues,
    sequences: &'a LogValues,
    /// Nothing but a lock is proved, here as elsewhere.
    on_trust: bool,
    notes: &'a [String],
}

impl<'a> JsonLog<'a> {
    pub(crate) fn new(log: &'a LogSummary) -> JsonLog<'a> {
        JsonLog {
            experiment: &log.experiment,
            file: &log.file,
            program: log.program,
            names: &log.names,
            loss_is: &log.loss_is,
            last_step: log.last_step,
            learning_rates: &log.learning_rates,
            tokens: &log.tokens,
            sequences: &log.sequences,
            on_trust: true,
            notes: &log.notes,
        }
    }
}
