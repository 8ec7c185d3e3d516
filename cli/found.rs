//! Finds finished runs by lock, anywhere in a folder of runs.
//!
//! In: the folder. Out: the folder of a lock's run. Must stay true: every comparison that needs a lock can use its run,
//! whatever the run's name; only finished runs are taken from other folders, since another process may be writing an
//! unfinished one; a run that fails its checks is skipped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use compiler::digest::Digest;
use disk::{SMALL, read_text};
use lab::experiment::Experiment;
use records::attest::Attestation;
use records::finished;
use records::run::Paths;
use records::verify::holds;

use crate::fail::Failure;
use crate::out;

/// Digests of a lock's train, evaluation and platform sections.
type Id = (Digest, Digest, Digest);

/// The finished runs of a folder and of the folders in it.
#[derive(Debug, Default)]
pub struct Found {
    by_lock: BTreeMap<Id, Vec<PathBuf>>,
    /// Whether a run passed the checks of `canonc verify`.
    sound: Mutex<BTreeMap<PathBuf, bool>>,
}

impl Found {
    /// Searches a folder: it holds runs, or the folders of comparisons that hold runs.
    pub fn under(root: &Path) -> Found {
        let mut by_lock: BTreeMap<Id, Vec<PathBuf>> = BTreeMap::new();
        for folder in folders(root) {
            for run in std::iter::once(folder.clone()).chain(folders(&folder)) {
                let text = read_text(&Paths::new(&run).attestation(), SMALL).ok();
                let attested = text.and_then(|text| Attestation::parse(&text).ok());
                if let Some(Attestation { lock, eval, platform, .. }) = attested {
                    by_lock.entry((lock, eval, platform)).or_default().push(run);
                }
            }
        }
        Found { by_lock, sound: Mutex::default() }
    }

    /// The folder of a lock's run: the folder of the lock's name, or the folder of a finished run of the same lock.
    pub fn place(&self, folder: &Path, experiment: &Experiment) -> Result<PathBuf, Failure> {
        let usual = out::named(folder, &experiment.name, "")?;
        if usual.exists() {
            return Ok(usual);
        }
        Ok(self.finished(experiment).unwrap_or(usual))
    }

    /// Whether [`Found::place`] names a finished run of this lock.
    pub fn is_finished(&self, folder: &Path, experiment: &Experiment) -> bool {
        let place = self.place(folder, experiment);
        let text =
            place.ok().and_then(|place| read_text(&Paths::new(&place).attestation(), SMALL).ok());
        let attested = text.and_then(|text| Attestation::parse(&text).ok());
        let digests = experiment.digests;
        attested.is_some_and(|run| (run.lock, run.eval) == (digests.train, digests.eval))
    }

    /// The folder of a finished run of this lock, whatever its name.
    pub fn finished(&self, experiment: &Experiment) -> Option<PathBuf> {
        let digests = experiment.digests;
        let id = (digests.train, digests.eval, digests.platform);
        // A damaged or incomplete run does not count.
        let holds = |run: &&PathBuf| {
            let paths = Paths::new(*run);
            paths.lock().is_file()
                && finished::read(&paths, experiment.into()).is_ok()
                && self.is_sound(run)
        };
        self.by_lock.get(&id)?.iter().find(holds).cloned()
    }
}

impl Found {
    /// Checks a run once: nobody asked for this folder, so nobody looked at it.
    fn is_sound(&self, run: &Path) -> bool {
        let known = || self.sound.lock().ok()?.get(run).copied();
        known().unwrap_or_else(|| {
            let sound = holds(run);
            if let Ok(mut all) = self.sound.lock() {
                all.insert(run.to_owned(), sound);
            }
            sound
        })
    }
}

/// Folders in a folder, sorted by name; empty if it cannot be read.
pub fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    found.sort();
    found
}
