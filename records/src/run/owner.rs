//! Whether a run's folder belongs to a lock: everything that affects a logged line or a saved weight must agree.

use std::path::Path;

use dsl::Problem;
use lab::error::LockError;
use lab::experiment::{Digests, Experiment};
use lab::lock::{self, Lock};

/// Reads a lock that may be edited, truncated or of another version.
pub fn lock_from_text(name: &str, text: &str) -> Result<Lock, Problem> {
    lock::read(name, text).map_err(|error| lock_error(name, error))
}

/// The experiment of a lock that is about to run.
pub fn experiment_from_text(name: &str, text: &str) -> Result<Experiment, Problem> {
    lock::runnable(lock_from_text(name, text)?).map_err(|error| lock_error(name, error))
}

/// What to do with a run whose lock another version of canonc wrote.
pub fn of_another_version(folder: &Path) -> String {
    format!(
        "read this run with the canonc that wrote it; to train it again, move `{}` away and repeat",
        folder.display()
    )
}

fn lock_error(name: &str, error: LockError) -> Problem {
    let LockError { code, message, line, help } = error;
    let path = Path::new(name);
    // The lock of a run is part of it: building the recipe again does not change it.
    let help = match path.parent().filter(|_| code == "lock-version" && path.ends_with("lock")) {
        Some(folder) => of_another_version(folder),
        None => help,
    };
    let position = line.map_or_else(String::new, |line| format!(":{line}"));
    Problem::input(format!("{name}{position}: {message}"), help)
}

/// Whether a folder with this lock text may be continued.
pub fn belongs(
    folder: &Path,
    digests: Digests,
    evaluates_every: u64,
    lock_text: &str,
) -> Result<(), Problem> {
    let path = folder.join("lock").display().to_string();
    let theirs = experiment_from_text(&path, lock_text)?;
    let Digests { train, eval, platform } = theirs.digests;
    let pairs = [
        ("lock", train, digests.train),
        ("evaluation section", eval, digests.eval),
        ("platform section", platform, digests.platform),
    ];
    let name = &theirs.name;
    for (what, theirs, ours) in pairs {
        if theirs != ours {
            return Err(Problem::input(
                format!(
                    "{} contains a run of another {what}: \"{name}\" with {}, but this one has {}",
                    folder.display(),
                    theirs.short(),
                    ours.short()
                ),
                "name another folder with --dir, or move this one away",
            ));
        }
    }
    if theirs.evaluation.every != evaluates_every {
        return Err(Problem::input(
            format!(
                "the run in {} uses evaluation.every = {}, but the lock now has {evaluates_every}",
                folder.display(),
                theirs.evaluation.every
            ),
            "lines of its log depend on it: name another folder with --dir, or continue with the earlier lock",
        ));
    }
    Ok(())
}
