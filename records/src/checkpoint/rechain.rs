//! Gives a checkpoint whose state was evaluated after it was saved the chain of the log after that evaluation.

use std::fs;

use compiler::digest::Digest;
use dsl::Problem;

use super::manifest::{self, Manifest};
use super::names::name_of;
use super::store::Store;
use crate::run::{cannot_write, replace, sync_folder, unfinished};

impl Store {
    /// Gives a saved checkpoint the chain of a log that goes on with an evaluation of its state.
    pub fn rechain(&self, saved: &Manifest, chain: Digest) -> Result<Manifest, Problem> {
        let now = Manifest { chain, ..saved.clone() };
        let folder = self.folder.join(name_of(saved.step));
        let path = folder.join(manifest::FILE);
        // Beside the checkpoint, which may hold no other file.
        let temporary = unfinished(&self.folder.join(manifest::FILE));
        replace(&temporary, now.text().as_bytes(), || Ok(()))
            .and_then(|()| fs::rename(&temporary, &path))
            .and_then(|()| sync_folder(&folder))
            .map_err(|error| cannot_write(&path, &error))?;
        Ok(now)
    }
}
