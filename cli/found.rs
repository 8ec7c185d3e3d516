//! Finished runs by the lock they are of, wherever they are in a folder of runs.
//!
//! In: the folder. Out: the folder of a lock's run. Must stay true: a run serves every comparison that needs its lock,
//! whatever it is called; only a finished run is taken from elsewhere, since another process may be at work on one
//! that is not; one that does not hold is passed over.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use compiler::digest::Digest;
use compiler::lock::Experiment;
use disk::{SMALL, read_text};
use records::attest::Attestation;
use records::finished;
use records::run::Paths;

use crate::fail::Failure;
use crate::out;

/// Digests of a lock's train, evaluation and platform sections.
type Id = (Digest, Digest, Digest);

/// The finished runs of a folder and of the folders in it.
#[derive(Debug, Default)]
pub struct Found {
    by_lock: BTreeMap<Id, Vec<PathBuf>>,
}

impl Found {
    /// Looks through a folder: runs are in it, or in the folder of a comparison.
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
        Found { by_lock }
    }

    /// Where the run of a lock is or goes: a folder of the lock's name, or where a finished one is already.
    pub fn place(&self, folder: &Path, experiment: &Experiment) -> Result<PathBuf, Failure> {
        let usual = out::named(folder, &experiment.name, "")?;
        if usual.exists() {
            return Ok(usual);
        }
        let digests = experiment.digests;
        let id = (digests.train, digests.eval, digests.platform);
        // One that is damaged, or a part of a run, is no run.
        let holds = |run: &&PathBuf| {
            let paths = Paths::new(*run);
            paths.lock().is_file() && finished::read(&paths, experiment.into()).is_ok()
        };
        Ok(self.by_lock.get(&id).and_then(|runs| runs.iter().find(holds)).cloned().unwrap_or(usual))
    }
}

/// Folders in a folder, sorted by name; none where it cannot be read.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    found.sort();
    found
}
