//! In: a lock's text, and the lock in a run's folder. Out: the lock, or why it is invalid; whether the folder belongs
//! to it. Must stay true: everything that affects a logged line or a saved weight must agree; everything else may
//! differ.

use std::path::Path;

use compiler::lock::{self, Digests, Experiment, Lock, LockError};

use super::RunError;

/// Reads a lock that may be edited, truncated or of another version.
pub fn read_lock(name: &str, text: &str) -> Result<Lock, RunError> {
    lock::read(name, text).map_err(|error| lock_error(name, error))
}

/// The experiment of a lock that is about to run.
pub fn read_experiment(name: &str, text: &str) -> Result<Experiment, RunError> {
    lock::runnable(read_lock(name, text)?).map_err(|error| lock_error(name, error))
}

fn lock_error(name: &str, error: LockError) -> RunError {
    let LockError { code: _, message, line, help } = error;
    let place = line.map_or_else(String::new, |line| format!(":{line}"));
    RunError::input(format!("{name}{place}: {message}"), help)
}

/// Whether a folder with the lock text `found` may be continued.
pub fn belongs(
    folder: &Path,
    digests: Digests,
    evaluates_every: u64,
    found: &str,
) -> Result<(), RunError> {
    let place = folder.join("lock").display().to_string();
    let theirs = read_experiment(&place, found)?;
    let Digests { train, eval, platform } = theirs.digests;
    let pairs = [
        ("lock", train, digests.train),
        ("evaluation section", eval, digests.eval),
        ("platform section", platform, digests.platform),
    ];
    let name = &theirs.name;
    for (what, theirs, ours) in pairs {
        if theirs != ours {
            return Err(RunError::input(
                format!(
                    "{} holds a run of another {what}: of \"{name}\", {}, and this one has {}",
                    folder.display(),
                    theirs.short(),
                    ours.short()
                ),
                "name another folder with --dir, or move this one away",
            ));
        }
    }
    if theirs.evaluation.every != evaluates_every {
        return Err(RunError::input(
            format!(
                "the run in {} is evaluated with evaluation.every = {}, and the lock now says {evaluates_every}",
                folder.display(),
                theirs.evaluation.every
            ),
            "lines of its log depend on that: name another folder with --dir, or go on with the lock as it was",
        ));
    }
    Ok(())
}
