//! Options that bind a log of another program to a lock. That the log is of the lock is the user's word.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;
use lab::experiment::Experiment;
use lab::lock::Lock;

use crate::fail::{Failure, shown};
use crate::workspace;

/// Logs, and the names in them.
#[derive(Args, Debug)]
pub struct LogArgs {
    /// Add a log of another program, by your word of the one lock that is named, or of LOCK
    #[arg(long, value_name = "[LOCK=]FILE")]
    pub log: Vec<PathBuf>,
    /// Name a series in the logs: QUANTITY is step, loss, grad_norm, lr, tokens or sequences
    #[arg(long, value_name = "QUANTITY=NAME", requires = "log")]
    pub metric: Vec<String>,
}

/// A log, and the lock that the user says it is of.
#[derive(Debug)]
pub struct BoundLog {
    /// The word that names the lock.
    pub word: PathBuf,
    pub experiment: Experiment,
    pub file: PathBuf,
}

/// Between the name of a lock and the file of its log.
const LOCK: &str = ".lock=";

impl LogArgs {
    /// Each log with the lock before its `=`, or else with the only one of `words`.
    pub fn bound(&self, words: &[PathBuf]) -> Result<Vec<BoundLog>, Failure> {
        let bound = |log: &PathBuf| {
            let text = log.to_str().and_then(|text| text.split_once(LOCK));
            let (word, file) = match (text, words) {
                (Some((lock, file)), _) => {
                    (PathBuf::from(format!("{lock}.lock")), PathBuf::from(file))
                }
                (None, [word]) => (word.clone(), log.clone()),
                (None, _) => return Err(whose(log, words)),
            };
            Ok(BoundLog { experiment: experiment(&word)?, word, file })
        };
        self.log.iter().map(bound).collect()
    }
}

/// A log without a lock of its own, beside none or several.
fn whose(log: &Path, words: &[PathBuf]) -> Failure {
    let message = match words.len() {
        0 => format!("`--log {}` names no lock that the log is of", shown(log)),
        several => {
            format!("`--log {}` does not say which of the {several} locks it is of", shown(log))
        }
    };
    let is_lock = |word: &&PathBuf| word.extension() == Some(OsStr::new("lock"));
    let lock =
        words.iter().find(is_lock).map_or("lockfiles/NAME.lock".to_owned(), |lock| shown(lock));
    Failure::bad_input(message)
        .help(format!("write its lock before it: `--log {lock}={}`", shown(log)))
}

/// The experiment of the lock or the run that a word names.
fn experiment(word: &Path) -> Result<Experiment, Failure> {
    let name = shown(word);
    match workspace::read_lock(word)?.0 {
        Lock::Experiment(experiment) => Ok(experiment),
        Lock::Comparison(comparison) => {
            let runs = dsl::counted(comparison.runs().len(), "run");
            let message =
                format!("`{name}` is the lock of a comparison of {runs}, and a log is of one");
            let help =
                "name the lock of the run; `canonc compare` writes it beside the run's folder";
            Err(Failure::bad_input(message).help(help))
        }
        Lock::Arch(_) => {
            let message = format!(
                "`{name}` is the lock of an architecture, which has no schedule and no batches"
            );
            Err(Failure::bad_input(message)
                .help("name the lock of a recipe: `canonc build RECIPE` writes it"))
        }
    }
}
