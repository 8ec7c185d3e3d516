//! `canonc verify --replay`: trains some or all of a run's steps again.
//!
//! Steps that cannot be trained again are undecided, and do not end the report.

use std::io::IsTerminal;
use std::path::Path;

use lab::experiment::Experiment;
use records::job::Job;
use records::metrics::Step;
use records::run::Paths;
use records::verify::VerifyReport;
use runtime::replay::{Amount, Observer, Replay, replay as train_again};
use runtime::train::machine;

use crate::environment::start_again;
use cli::extensions::suites;
use cli::fail::Failure;
use cli::inputs::GivenPaths;
use cli::output;
use cli::{documents, initial_weights, workspace};

/// Restarts this process if the lock requires another environment. An unreadable lock is
/// left to the report.
pub(crate) fn prepare(folder: &Path) -> Result<(), Failure> {
    match workspace::experiment_of_run(folder) {
        Some((experiment, _)) => start_again(&experiment),
        None => Ok(()),
    }
}

pub(crate) fn replay(
    folder: &Path,
    given: GivenPaths<'_>,
    amount: Option<u64>,
    report: &mut VerifyReport,
) {
    // An unreadable lock is in the report already.
    let Some((experiment, text)) = workspace::experiment_of_run(folder) else { return };
    match replayed(folder, &experiment, &text, given, amount) {
        Ok(replayed) => replayed.tell(report),
        Err(Failure { message, help, .. }) => {
            let reasons: Vec<String> = message.into_iter().chain(help).collect();
            report.undecided(format!("replay: it did not finish: {}", reasons.join("; ")));
        }
    }
}

fn replayed(
    folder: &Path,
    experiment: &Experiment,
    text: &str,
    given: GivenPaths<'_>,
    requested: Option<u64>,
) -> Result<Replay, Failure> {
    let documents = documents::read(experiment, given.data)?;
    let weights = initial_weights::read(experiment, given.weights)?;
    let measure = suites().measure(experiment, documents.as_deref())?;
    let job = Job::new(experiment, text, documents)?.with_measure(measure).with_weights(weights);
    let machine = machine(&experiment.platform)?;
    let mut progress = Progress { requested, terminal: std::io::stderr().is_terminal() };
    let amount = requested.map_or(Amount::All, Amount::Steps);
    let replayed = train_again(&Paths::new(folder), job, machine, amount, &mut progress);
    if progress.terminal {
        output::draw("\r\x1b[2K");
    }
    Ok(replayed?)
}

struct Progress {
    /// The number of steps in the command; `None` for all.
    requested: Option<u64>,
    terminal: bool,
}

impl Observer for Progress {
    fn begins(&mut self, steps: u64) {
        if let Some(requested) = self.requested.filter(|requested| steps > *requested) {
            output::note(&format!(
                "replay: {}, more than {requested}: all steps after the checkpoint before the last one, since only they \
                 lead to the last weights, and two from the initial weights",
                output::counted(steps, "step")
            ));
        }
    }

    fn step(&mut self, step: &Step) {
        if self.terminal {
            output::draw(&format!("\r\x1b[2Kreplayed step {}", step.step));
        }
    }
}
