//! `canonc verify --replay`: trains some or all of a run's steps again.
//!
//! In: a run's folder. Out: which results matched and which did not, in the report. Must stay true:
//! libtorch starts in the environment that the lock requires; nothing is written; steps that cannot be
//! trained again are undecided, and do not end the report.

use std::io::IsTerminal;
use std::path::Path;

use lab::experiment::Experiment;
use records::job::Job;
use records::run::Paths;
use records::suites;
use records::verify::Report;
use runtime::replay::{self, Progress};
use runtime::train::machine;

use crate::run::start_again;
use canonc::fail::Failure;
use canonc::output;
use canonc::runs::{documents, failure, locked_in};

/// Restarts this process if the lock requires another environment. An unreadable lock is
/// left to the report.
pub(crate) fn prepare(folder: &Path) -> Result<(), Failure> {
    match locked_in(folder) {
        Some((experiment, _)) => start_again(&experiment),
        None => Ok(()),
    }
}

pub(crate) fn replay(folder: &Path, data: Option<&Path>, amount: Option<u64>, report: &mut Report) {
    // An unreadable lock is in the report already.
    let Some((experiment, text)) = locked_in(folder) else { return };
    match replayed(folder, &experiment, &text, data, amount) {
        Ok(replayed) => replayed.tell(report),
        Err(Failure { message, help, .. }) => {
            let why: Vec<String> = message.into_iter().chain(help).collect();
            report.undecided(format!("replay: it did not finish: {}", why.join("; ")));
        }
    }
}

fn replayed(
    folder: &Path,
    experiment: &Experiment,
    text: &str,
    data: Option<&Path>,
    amount: Option<u64>,
) -> Result<replay::Replay, Failure> {
    let asked = amount;
    let amount = amount.map_or(replay::Amount::All, replay::Amount::Steps);
    let documents = documents(experiment, data)?;
    let terminal = std::io::stderr().is_terminal();
    let mut told = |progress: Progress| match (progress, asked) {
        (Progress::Begins(steps), Some(asked)) if steps > asked => output::note(&format!(
            "replay: {}, more than {asked}: all steps after the checkpoint before the last one, since only they lead to \
             the last weights, and two from the initial weights",
            output::counted(steps, "step")
        )),
        (Progress::Step(step), _) if terminal => {
            output::draw(&format!("\r\x1b[2Kreplayed step {step}"));
        }
        (Progress::Begins(_) | Progress::Step(_), _) => {}
    };
    let paths = Paths::new(folder);
    let suites = suites::of(experiment, documents.as_deref()).map_err(failure)?;
    let replayed = Job::new(experiment, text, documents)
        .and_then(|job| Ok((job.with_suites(suites), machine(&experiment.platform)?)))
        .and_then(|(job, machine)| replay::replay(&paths, job, machine, amount, &mut told));
    if terminal {
        output::draw("\r\x1b[2K");
    }
    replayed.map_err(failure)
}
