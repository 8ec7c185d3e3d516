//! Finds finished runs by lock, anywhere in a folder of runs.
//!
//! Only finished runs are taken from other folders, since another process may be writing an unfinished one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use compiler::digest::Digest;
use disk::{SMALL, read_text};
use lab::experiment::Experiment;
use lab::trainer::{TrainerRecord, is_declared};
use lab::verdict::Trainer;
use records::attest::Attested;
use records::finished;
use records::run::Paths;
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
    /// Whether a run passed the checks of `canonc verify`.
    sound: Arc<Mutex<BTreeMap<PathBuf, bool>>>,
}

impl FinishedRuns {
    /// Searches a folder: it holds runs, or the folders of comparisons that hold runs.
    pub fn under(root: &Path) -> FinishedRuns {
        let mut by_lock: BTreeMap<Id, Vec<(PathBuf, Option<TrainerRecord>)>> = BTreeMap::new();
        for folder in folders(root) {
            for run in std::iter::once(folder.clone()).chain(folders(&folder)) {
                let Some(attested) = attestation(&Paths::new(&run)) else { continue };
                let Attested { lock, eval, platform, trainer, .. } = attested;
                by_lock.entry((lock, eval, platform)).or_default().push((run, trainer));
            }
        }
        // canonc's own come first.
        for runs in by_lock.values_mut() {
            runs.sort_by_key(|(_, trainer)| trainer.is_some());
        }
        FinishedRuns { by_lock, sound: Arc::default() }
    }

    /// Those of the trainer that a comparison declares.
    pub fn of_trainer(&self, declared: Trainer) -> FinishedRuns {
        let mut by_lock = self.by_lock.clone();
        for runs in by_lock.values_mut() {
            runs.retain(|(_, trainer)| is_declared(declared, trainer.as_ref()));
        }
        FinishedRuns { by_lock, sound: self.sound.clone() }
    }

    /// The folder of a lock's run: the folder of the lock's name, or the folder of a finished run of the same lock.
    pub fn folder(&self, folder: &Path, experiment: &Experiment) -> Result<PathBuf, Failure> {
        let usual = out::named(folder, &experiment.name, "")?;
        if usual.exists() {
            return Ok(usual);
        }
        Ok(self.of(experiment).unwrap_or(usual))
    }

    /// Whether [`FinishedRuns::folder`] is that of a finished run of this lock.
    pub fn has(&self, folder: &Path, experiment: &Experiment) -> bool {
        let run = self.folder(folder, experiment).ok();
        let attestation = run.and_then(|run| attestation(&Paths::new(run)));
        let digests = experiment.digests;
        attestation.is_some_and(|run| (run.lock, run.eval) == (digests.train, digests.eval))
    }

    /// The folder of a finished run of this lock, whatever its name. A damaged or incomplete run does not count.
    pub fn of(&self, experiment: &Experiment) -> Option<PathBuf> {
        let digests = experiment.digests;
        let id = (digests.train, digests.eval, digests.platform);
        let is_intact = |run: &&PathBuf| {
            let paths = Paths::new(run);
            paths.lock().is_file()
                && finished::read(&paths, experiment.into()).is_ok()
                && self.is_sound(run)
        };
        self.by_lock.get(&id)?.iter().map(|(run, _)| run).find(is_intact).cloned()
    }

    /// Checks a run, once: nobody named its folder, so no other command has checked it.
    fn is_sound(&self, run: &Path) -> bool {
        let known = self.sound.lock().ok().and_then(|known| known.get(run).copied());
        known.unwrap_or_else(|| {
            let sound = holds(run);
            if let Ok(mut known) = self.sound.lock() {
                known.insert(run.to_owned(), sound);
            }
            sound
        })
    }
}

/// The attestation of a run, if it is finished, whoever trained it.
pub fn attestation(run: &Paths) -> Option<Attested> {
    let text = read_text(&run.attestation(), SMALL).ok()?;
    Attested::parse(&text).ok()
}

/// Folders in a folder, sorted by name; empty if it cannot be read.
pub fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}
