//! Finds finished runs by lock, anywhere in a folder of runs.
//!
//! Only finished runs are taken from other folders, since another process may be writing an unfinished one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use compiler::digest::Digest;
use disk::{SMALL, read_text};
use dsl::{Problem, ProblemKind};
use lab::experiment::Experiment;
use lab::trainer::{TrainerRecord, is_declared};
use lab::verdict::Trainer;
use records::attest::Attested;
use records::finished;
use records::run::{Paths, if_readable, if_there, paths_in};
use records::verify::holds;

use crate::fail::Failure;
use crate::out;

/// Digests of a lock's train, evaluation and platform sections.
type Id = (Digest, Digest, Digest);

/// The finished runs of a folder and of the folders in it.
#[derive(Debug, Default)]
pub struct FinishedRuns {
    /// The folder of each run, and who trained it.
    by_lock: BTreeMap<Id, Vec<(PathBuf, Option<TrainerRecord>)>>,
    /// The first folder or attestation that the machine could not read: a run that is not found may be there.
    unread: Option<Problem>,
    /// Whether a run passed the checks of `canonc verify`.
    sound: Arc<Mutex<BTreeMap<PathBuf, bool>>>,
}

impl FinishedRuns {
    /// Searches a folder: it holds runs, or the folders of comparisons that hold runs.
    pub fn under(root: &Path) -> FinishedRuns {
        let mut found = FinishedRuns::default();
        for folder in found.note(folders(root)).unwrap_or_default() {
            let inside = found.note(folders(&folder)).unwrap_or_default();
            for run in std::iter::once(folder).chain(inside) {
                let attested = found.note(attestation_of_any(&Paths::new(&run))).flatten();
                let Some(attested) = attested else { continue };
                let Attested { lock, eval, platform, trainer, .. } = attested;
                found.by_lock.entry((lock, eval, platform)).or_default().push((run, trainer));
            }
        }
        // canonc's own come first.
        for runs in found.by_lock.values_mut() {
            runs.sort_by_key(|(_, trainer)| trainer.is_some());
        }
        found
    }

    fn note<T>(&mut self, read: Result<T, Problem>) -> Option<T> {
        read.map_err(|problem| self.unread.get_or_insert(problem)).ok()
    }

    /// Those of the trainer that a comparison declares.
    pub fn of_trainer(&self, declared: Trainer) -> FinishedRuns {
        let mut by_lock = self.by_lock.clone();
        for runs in by_lock.values_mut() {
            runs.retain(|(_, trainer)| is_declared(declared, trainer.as_ref()));
        }
        FinishedRuns { by_lock, unread: self.unread.clone(), sound: self.sound.clone() }
    }

    /// The folder of a lock's run: the folder of the lock's name, or the folder of a finished run of the same lock.
    pub fn folder(&self, folder: &Path, experiment: &Experiment) -> Result<PathBuf, Failure> {
        let usual = out::named(folder, &experiment.name, "")?;
        match usual.try_exists() {
            Ok(false) => Ok(self.of(experiment)?.unwrap_or(usual)),
            Err(error) if disk::is_unread(&error) => Err(Failure::cannot_read(&usual, &error)),
            Ok(true) | Err(_) => Ok(usual),
        }
    }

    /// Whether [`FinishedRuns::folder`] is that of a finished run of this lock.
    pub fn has(&self, folder: &Path, experiment: &Experiment) -> bool {
        let run = self.folder(folder, experiment).ok();
        let attestation = run.and_then(|run| attestation(&Paths::new(run)).ok().flatten());
        let digests = experiment.digests;
        attestation.is_some_and(|run| (run.lock, run.eval) == (digests.train, digests.eval))
    }

    /// The folder of a finished run of this lock, whatever its name. A damaged or incomplete run does not count. An error if
    /// there is none, but not all could be read.
    pub fn of(&self, experiment: &Experiment) -> Result<Option<PathBuf>, Problem> {
        let digests = experiment.digests;
        let id = (digests.train, digests.eval, digests.platform);
        let mut unread = self.unread.clone();
        for (run, _) in self.by_lock.get(&id).into_iter().flatten() {
            match self.is_intact(run, experiment) {
                Ok(true) => return Ok(Some(run.clone())),
                Ok(false) => {}
                Err(problem) => unread = Some(problem),
            }
        }
        unread.map_or(Ok(None), Err)
    }

    fn is_intact(&self, run: &Path, experiment: &Experiment) -> Result<bool, Problem> {
        let paths = Paths::new(run);
        match finished::read(&paths, experiment.into()) {
            Ok(_) => Ok(paths.lock().is_file() && self.is_sound(run)?),
            Err(problem) if problem.kind == ProblemKind::Machine => Err(problem),
            Err(_) => Ok(false),
        }
    }

    /// Checks a run, once: nobody named its folder, so no other command has checked it.
    fn is_sound(&self, run: &Path) -> Result<bool, Problem> {
        let known = self.sound.lock().ok().and_then(|known| known.get(run).copied());
        if let Some(known) = known {
            return Ok(known);
        }
        let sound = holds(run)?;
        if let Ok(mut known) = self.sound.lock() {
            known.insert(run.to_owned(), sound);
        }
        Ok(sound)
    }
}

/// The attestation of a run, if it is finished, whoever trained it.
pub fn attestation(run: &Paths) -> Result<Option<Attested>, Problem> {
    let path = run.attestation();
    let text = if_there(&path, read_text(&path, SMALL))?;
    Ok(text.and_then(|text| Attested::parse(&text).ok()))
}

/// The same of a run that nobody named.
pub fn attestation_of_any(run: &Paths) -> Result<Option<Attested>, Problem> {
    let path = run.attestation();
    let text = if_readable(&path, read_text(&path, SMALL))?;
    Ok(text.and_then(|text| Attested::parse(&text).ok()))
}

/// Folders in a folder, sorted by name; none if it is no folder or not for us to read.
pub fn folders(folder: &Path) -> Result<Vec<PathBuf>, Problem> {
    let mut folders = paths_in(folder)?;
    folders.retain(|path| path.is_dir());
    Ok(folders)
}
