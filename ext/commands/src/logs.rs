//! Logs of other programs, held against a lock.

use std::io;
use std::path::Path;

use cli::extensions;
use cli::fail::{Failure, shown};
use cli::files;
use lab::experiment::Experiment;
use logs::{Check, Log, MOST_BYTES, Names};
use report::page::ForeignLog;

/// Logs of other programs, for the commands of the core.
pub(crate) struct Logs;

impl extensions::Logs for Logs {
    fn read(
        &self,
        file: &Path,
        experiment: &Experiment,
        metrics: &[String],
    ) -> Result<ForeignLog, Failure> {
        let (log, check) = read(file, experiment, metrics)?;
        let differences = check.differences.into_iter();
        // Learning rates and tokens have places of their own on the page.
        let others = differences.filter(|difference| !difference.is_in_agreements());
        let others =
            others.map(|difference| format!("{}: {}", difference.message, difference.says));
        Ok(ForeignLog {
            program: log.program.unwrap_or(UNKNOWN).to_owned(),
            loss: log.loss,
            loss_is: log.loss_is,
            grad_norm: log.grad_norm,
            lr: log.lr,
            reached: log.reached,
            rates: check.lr.to_string(),
            tokens: check.tokens.to_string(),
            notes: log.notes.into_iter().chain(others).collect(),
        })
    }
}

/// In place of a program that is not known.
pub(crate) const UNKNOWN: &str = "another program";

/// Reads a log, and holds it against the lock that the user says it is of.
pub(crate) fn read(
    file: &Path,
    experiment: &Experiment,
    metrics: &[String],
) -> Result<(Log, Check), Failure> {
    let names = Names::parse(metrics)?;
    let bytes = disk::read(file, MOST_BYTES).map_err(|error| unreadable(file, &error))?;
    let log = logs::parse(&shown(file), &bytes, &names)?;
    let check = logs::check(&log, experiment)?;
    Ok((log, check))
}

fn unreadable(file: &Path, error: &io::Error) -> Failure {
    if file.is_dir() {
        return Failure::bad_input(format!("`{}` is a folder, not a log", shown(file)))
            .help("name a file in it: trainer_state.json, metrics.jsonl, events.out.tfevents…");
    }
    let failure = files::missing(file, error);
    match failure.help.is_empty() {
        true => failure.help("name a file; if it is too large, one with fewer steps"),
        false => failure,
    }
}
