//! In: a step, the metrics chain after it, and the bytes of every parameter and moment. Out: a folder that holds them,
//! and the newest such folder that can be trusted. Must stay true: files are synced under a temporary name together
//! with a sealed list of their digests, then renamed, then the pointer is moved, then old ones are pruned, keeping at
//! least two that verify; every byte is checked before any is used; loading executes nothing.
//!
//! `checkpoints/latest` names one of `checkpoints/step-0000000020/`, each with `weights.safetensors`,
//! `first_moment.safetensors`, `second_moment.safetensors` and `checkpoint.toml`.

mod compare;
mod files;
mod inspect;
mod manifest;
mod rechain;
mod shared;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use compiler::digest::Digest;
use compiler::graph::Graph;
use compiler::plan::ParamUpdate;

use crate::fault::{Faults, Point};
use crate::run::{
    POINTER, RunError, UNFINISHED, cannot_read, cannot_write, replace, sync_folder, unfinished,
};
use disk as doors;

pub use compare::compare_kept;
pub use compare::{StateDifference, TensorDifference, compare};
pub(crate) use files::tensor_hasher;
pub use files::{Slot, TensorDigests};
pub use manifest::{Content, FILE as MANIFEST, Manifest};
pub use shared::Ranges;

/// The three sets of tensors in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The parameters.
    Weights,
    /// AdamW's running mean of the gradients.
    FirstMoment,
    /// AdamW's running mean of the squared gradients.
    SecondMoment,
}

/// All parts, in the order of their files.
pub const PARTS: [Part; 3] = [Part::Weights, Part::FirstMoment, Part::SecondMoment];

impl Part {
    /// The name in manifests and messages, as `first_moment`.
    pub fn name(self) -> &'static str {
        match self {
            Part::Weights => "weights",
            Part::FirstMoment => "first_moment",
            Part::SecondMoment => "second_moment",
        }
    }

    /// The file's name in a checkpoint, as `first_moment.safetensors`.
    pub fn file(self) -> String {
        format!("{}.safetensors", self.name())
    }
}

/// Appends a tensor's little-endian f32 bytes.
pub type ReadTensor<'a> = dyn FnMut(Part, usize, &mut Vec<u8>) -> Result<(), RunError> + 'a;

/// Takes a tensor's little-endian f32 bytes.
pub type WriteTensor<'a> = dyn FnMut(Part, usize, &[u8]) -> Result<(), RunError> + 'a;

/// The checkpoints of one run.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    lock: Digest,
    /// Every parameter, in parameter order.
    slots: Vec<Slot>,
    /// Checkpoints that this process has verified.
    verified: BTreeSet<String>,
}

/// A checkpoint that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The checkpoint's name.
    pub name: String,
    /// Why it was refused, in words.
    pub why: String,
}

/// A checkpoint from which a run can continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedCheckpoint {
    /// The checkpoint's name.
    pub name: String,
    /// What its manifest claims.
    pub manifest: Manifest,
}

impl Store {
    /// The checkpoints in a run's folder `checkpoints/`, for this lock and these parameters. Reads nothing yet.
    pub fn new(folder: PathBuf, lock: Digest, slots: Vec<Slot>) -> Store {
        Store { folder, lock, slots, verified: BTreeSet::new() }
    }

    /// Writes a checkpoint and moves the pointer to it.
    pub fn save(
        &mut self,
        step: u64,
        chain: Digest,
        read: &mut ReadTensor<'_>,
        faults: &Faults,
    ) -> Result<Manifest, RunError> {
        let temporary = self.temporary(step);
        let contents = self.write(&temporary, step, read, faults).inspect_err(|_| {
            // Remove only our own unfinished folder; the first error is the one to show.
            let _ = fs::remove_dir_all(&temporary);
        })?;
        self.commit(step, chain, contents, faults)
    }

    /// Gives a checkpoint whose files are written and synced its manifest and its name, and moves the pointer to it.
    pub fn commit(
        &mut self,
        step: u64,
        chain: Digest,
        contents: [Content; 3],
        faults: &Faults,
    ) -> Result<Manifest, RunError> {
        let name = name_of(step);
        let place = self.folder.join(&name);
        let temporary = self.temporary(step);
        let [weights, first_moment, second_moment] = contents;
        let manifest =
            Manifest { lock: self.lock, step, chain, weights, first_moment, second_moment };
        let path = temporary.join(manifest::FILE);
        replace(&path, manifest.text().as_bytes(), || Ok(()))
            .and_then(|()| sync_folder(&temporary))
            .map_err(|error| {
                let _ = fs::remove_dir_all(&temporary);
                cannot_write(&path, &error)
            })?;
        faults.pass(Point::CheckpointWritten).map_err(|error| cannot_write(&temporary, &error))?;
        match fs::rename(&temporary, &place) {
            Ok(()) => faults
                .pass(Point::CheckpointRenamed)
                .and_then(|()| faults.pass(Point::CheckpointSyncFull))
                .and_then(|()| sync_folder(&self.folder))
                .map_err(|error| cannot_write(&self.folder, &error))?,
            // The step was saved before: by a process that ended here, or before a resume from an earlier checkpoint.
            Err(_) if place.exists() => self.replace_or_agree(&temporary, &place, &manifest)?,
            Err(error) => return Err(cannot_write(&place, &error)),
        }
        self.verified.insert(name.clone());
        self.point_to(&name, faults)?;
        Ok(manifest)
    }

    /// Deletes old checkpoints except the newest `keep` that verify; `keep` is at least two.
    pub fn prune(&mut self, keep: usize, faults: &Faults) -> Result<(), RunError> {
        let failed = |error: io::Error| cannot_write(&self.folder, &error);
        faults.pass(Point::PruneBefore).map_err(failed)?;
        let names = self.names()?;
        self.prune_of(names, keep, faults)
    }

    /// Like [`Store::prune`], for the checkpoint that a run resumes from and older ones, in case a process ended
    /// between moving the pointer and pruning. Newer ones were never announced, or were refused.
    pub fn prune_older(
        &mut self,
        found: &str,
        keep: usize,
        faults: &Faults,
    ) -> Result<(), RunError> {
        let names = self.names()?.into_iter().filter(|name| name.as_str() <= found);
        self.prune_of(names.collect(), keep, faults)
    }

    fn prune_of(
        &mut self,
        names: Vec<String>,
        keep: usize,
        faults: &Faults,
    ) -> Result<(), RunError> {
        let failed = |path: &Path, error: &io::Error| cannot_write(path, error);
        let mut whole = 0;
        for name in names {
            let place = self.folder.join(&name);
            if whole >= keep.max(2) {
                let pruned = (|| {
                    let away = unfinished(&place);
                    fs::rename(&place, &away)?;
                    faults.pass(Point::PruneHalf)?;
                    fs::remove_dir_all(away)
                })();
                pruned.map_err(|error| failed(&place, &error))?;
                self.verified.remove(&name);
            } else if self.verified.contains(&name) || manifest::verify(&place, &self.slots).is_ok()
            {
                self.verified.insert(name);
                whole += 1;
            }
        }
        Ok(())
    }

    /// The newest checkpoint that is complete, belongs to this lock, and has a chain that `logged` accepts; also the
    /// checkpoints skipped. An error if there are checkpoints and none is usable.
    pub fn find(
        &mut self,
        logged: impl Fn(Digest) -> bool,
    ) -> Result<(Option<SavedCheckpoint>, Vec<Refused>), RunError> {
        let mut refused = Vec::new();
        let mut names = self.names()?;
        match self.pointer()? {
            Pointer::To(name) => match names.iter().position(|known| *known == name) {
                // Checkpoints newer than the pointer's were never announced.
                Some(at) => drop(names.drain(..at)),
                None => {
                    refused.push(Refused {
                        name,
                        why: "`latest` names it, but it does not exist".to_owned(),
                    });
                }
            },
            Pointer::Unreadable(text) => refused.push(Refused {
                name: POINTER.to_owned(),
                why: format!("it does not name a checkpoint: {text:?}"),
            }),
            Pointer::None => {}
        }
        for name in names {
            match self.judge(&name, &logged) {
                Ok(manifest) => {
                    self.verified.insert(name.clone());
                    return Ok((Some(SavedCheckpoint { name, manifest }), refused));
                }
                Err(why) => refused.push(Refused { name, why }),
            }
        }
        if refused.is_empty() {
            return Ok((None, refused));
        }
        let list: Vec<String> =
            refused.iter().map(|Refused { name, why }| format!("{name}: {why}")).collect();
        Err(RunError::finding(
            format!(
                "no checkpoint in {} can be used\n  {}",
                self.folder.display(),
                list.join("\n  ")
            ),
            format!(
                "restore one, or delete {} to train again from step 0 (steps already logged must come out the same)",
                self.folder.display()
            ),
        ))
    }

    /// Moves refused checkpoints aside, under the names of [`set_aside`], so that the folder holds only good ones. `found`
    /// is the one that the run goes on from.
    pub fn set_aside(
        &self,
        found: &str,
        refused: &[Refused],
        faults: &Faults,
    ) -> Result<(), RunError> {
        let places: Vec<&str> = refused
            .iter()
            .map(|refused| refused.name.as_str())
            .filter(|name| step_of(name).is_some() && self.folder.join(name).exists())
            .collect();
        if places.is_empty() {
            return Ok(());
        }
        self.point_to(found, faults)?;
        for name in places {
            let aside = self.folder.join(set_aside(name));
            let moved = match fs::remove_dir_all(&aside) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                Ok(()) | Err(_) => fs::rename(self.folder.join(name), &aside),
            };
            moved.map_err(|error| cannot_write(&aside, &error))?;
        }
        sync_folder(&self.folder).map_err(|error| cannot_write(&self.folder, &error))
    }

    /// Every checkpoint that is complete, belongs to this lock, is in its step's folder, and has a chain that `logged`
    /// accepts; oldest first.
    pub fn kept(&self, logged: impl Fn(Digest) -> bool) -> Result<Vec<SavedCheckpoint>, RunError> {
        let mut kept = Vec::new();
        for name in self.names()? {
            if let Ok(manifest) = self.judge(&name, &logged) {
                kept.push(SavedCheckpoint { name, manifest });
            }
        }
        kept.reverse();
        Ok(kept)
    }

    /// Passes every tensor of a checkpoint to `write`, as little-endian f32 bytes.
    pub fn load(
        &self,
        found: &SavedCheckpoint,
        write: &mut WriteTensor<'_>,
    ) -> Result<(), RunError> {
        PARTS.into_iter().try_for_each(|part| self.load_part(found, part, write))
    }

    /// Passes every tensor of one part of a checkpoint to `write`.
    pub(crate) fn load_part(
        &self,
        found: &SavedCheckpoint,
        part: Part,
        write: &mut WriteTensor<'_>,
    ) -> Result<(), RunError> {
        let path = self.folder.join(&found.name).join(part.file());
        let content = found.manifest.content(part);
        files::load(&path, part, content, &self.slots_of(part), write)
            .map_err(|why| damaged(&path, &why))
    }

    /// Names of checkpoints, newest first.
    pub fn names(&self) -> Result<Vec<String>, RunError> {
        names(&self.folder)
    }

    fn judge(&self, name: &str, logged: &impl Fn(Digest) -> bool) -> Result<Manifest, String> {
        let place = self.folder.join(name);
        // The tensors of another lock or step may well differ.
        let manifest = manifest::read(&place)?;
        if manifest.lock != self.lock {
            return Err(format!(
                "it belongs to lock {}, not {}",
                manifest.lock.short(),
                self.lock.short()
            ));
        }
        if name_of(manifest.step) != name {
            return Err(format!("it belongs to step {}", manifest.step));
        }
        if !logged(manifest.chain) {
            return Err(format!(
                "the metrics log does not reach step {} as it was then",
                manifest.step
            ));
        }
        manifest::verify(&place, &self.slots)
    }

    /// The entries of a part's file.
    fn slots_of(&self, part: Part) -> Vec<Slot> {
        self.slots.iter().map(|slot| slot.in_part(part)).collect()
    }

    /// The folder of a checkpoint until it is complete.
    fn temporary(&self, step: u64) -> PathBuf {
        unfinished(&self.folder.join(name_of(step)))
    }

    fn write(
        &self,
        temporary: &Path,
        step: u64,
        read: &mut ReadTensor<'_>,
        faults: &Faults,
    ) -> Result<[Content; 3], RunError> {
        make_empty(temporary)?;
        let header = files::header_of(self.lock, step);
        let mut contents = Vec::with_capacity(PARTS.len());
        for part in PARTS {
            let path = temporary.join(part.file());
            let content = files::save(&path, part, &header, &self.slots_of(part), faults, read)?;
            contents.push(content);
        }
        contents.try_into().map_err(|_| {
            RunError::machine("a part is missing", "this is a bug in canonc; please report it")
        })
    }

    fn point_to(&self, name: &str, faults: &Faults) -> Result<(), RunError> {
        let path = self.folder.join(POINTER);
        faults
            .pass(Point::PointerBefore)
            .and_then(|()| {
                replace(&path, format!("{name}\n").as_bytes(), || {
                    faults.pass(Point::PointerWritten)
                })
            })
            .map_err(|error| cannot_write(&path, &error))
    }

    fn pointer(&self) -> Result<Pointer, RunError> {
        pointer(&self.folder)
    }

    /// A checkpoint of the same step already exists. It must be equal, unless it is damaged.
    fn replace_or_agree(
        &self,
        temporary: &Path,
        place: &Path,
        manifest: &Manifest,
    ) -> Result<(), RunError> {
        let there = manifest::read(place).and_then(|there| match there.lock == manifest.lock {
            true => manifest::verify(place, &self.slots),
            false => Ok(there),
        });
        let done = match there {
            Ok(there) if there == *manifest => fs::remove_dir_all(temporary),
            // One of them was saved before an evaluation of the state, and the other after it.
            Ok(there) if (Manifest { chain: manifest.chain, ..there.clone() }) == *manifest => {
                self.rechain(&there, manifest.chain)?;
                fs::remove_dir_all(temporary)
            }
            Ok(there) => {
                let _ = fs::remove_dir_all(temporary);
                return Err(another(place, &there, manifest));
            }
            // Renamed before it is deleted, so a half-deleted folder never looks like a checkpoint.
            Err(_) => (|| {
                let away = place.with_file_name(format!("{UNFINISHED}damaged"));
                fs::rename(place, &away)?;
                fs::rename(temporary, place)?;
                fs::remove_dir_all(away)
            })(),
        };
        done.and_then(|()| sync_folder(&self.folder)).map_err(|error| cannot_write(place, &error))
    }
}

fn another(place: &Path, there: &Manifest, now: &Manifest) -> RunError {
    let place = place.display();
    if (there.lock, there.step) != (now.lock, now.step) {
        let what = format!("step {} of lock {}", there.step, there.lock.short());
        return RunError::finding(
            format!("{place} holds {what} instead"),
            "move it away and repeat the command",
        );
    }
    let differs = PARTS.into_iter().find(|part| there.content(*part) != now.content(*part));
    let what = match differs {
        Some(part) => format!(
            "its {} were {} and are now {}",
            part.name(),
            there.content(part).tensors.short(),
            now.content(part).tensors.short()
        ),
        None => "it belongs to another metrics log".to_owned(),
    };
    RunError::finding(
        format!("{place} had another result before: {what}"),
        "check what changed since: the machine, the build of canonc or libtorch, or failing memory",
    )
}

/// The content of `latest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pointer {
    /// The name of the newest checkpoint.
    To(String),
    /// Its text is not a checkpoint's name.
    Unreadable(String),
    /// The file does not exist.
    None,
}

/// Reads `latest`.
pub fn pointer(folder: &Path) -> Result<Pointer, RunError> {
    let path = folder.join(POINTER);
    let text = match doors::read(&path, doors::SMALL) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Pointer::None),
        Err(error) => return Err(cannot_read(&path, &error)),
    };
    Ok(match text.strip_suffix('\n').filter(|name| step_of(name).is_some()) {
        Some(name) => Pointer::To(name.to_owned()),
        None => Pointer::Unreadable(text),
    })
}

/// Checks every byte of one checkpoint, which must hold these parameters.
pub fn verify(place: &Path, slots: &[Slot]) -> Result<Manifest, String> {
    manifest::verify(place, slots)
}

/// The manifest of one checkpoint. Does not read its tensors.
pub fn manifest(place: &Path) -> Result<Manifest, String> {
    manifest::read(place)
}

/// Checks that one file of a checkpoint still has the bytes that were saved. Its tensors may be of any arch.
pub fn intact(place: &Path, part: Part) -> Result<(), String> {
    let saved = manifest::read(place)?.content(part).file;
    let found = inspect::digest(&place.join(part.file())).map_err(|error| error.to_string())?;
    match found == saved {
        true => Ok(()),
        false => Err(format!("it has digest {}, but had {}", found.short(), saved.short())),
    }
}

/// The lock and the step recorded in a checkpoint file; `None` for any other file.
pub fn saved_by(path: &Path) -> Option<(Digest, u64)> {
    files::saved_by(path)
}

/// Every parameter's path, shape and number of moments, in parameter order.
pub fn slots(graph: &Graph, updates: &[ParamUpdate]) -> Vec<Slot> {
    let params = graph.params().iter().enumerate();
    params.map(|(n, param)| Slot::from_param(param, ParamUpdate::of(updates, n))).collect()
}

/// Names of the checkpoints in a folder, newest first.
pub fn names(folder: &Path) -> Result<Vec<String>, RunError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(cannot_read(folder, &error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| cannot_read(folder, &error))?.file_name();
        let name = name.to_string_lossy().into_owned();
        if step_of(&name).is_some() {
            names.push(name);
        }
    }
    // Ten digits each, so names sort like steps.
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

/// The name in `latest`.
pub fn latest(folder: &Path) -> Result<Option<String>, RunError> {
    Ok(match pointer(folder)? {
        Pointer::To(name) => Some(name),
        Pointer::Unreadable(_) | Pointer::None => None,
    })
}

/// Folder name of the checkpoint after that step.
pub fn name_of(step: u64) -> String {
    format!("step-{step:010}")
}

/// The step in a folder's name.
pub fn step_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("step-")?;
    let all = digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all { digits.parse().ok() } else { None }
}

/// The name of a checkpoint that a run refused and did not go on from.
pub fn set_aside(name: &str) -> String {
    format!("{REFUSED}{name}")
}

/// Whether this is such a name.
pub fn was_set_aside(name: &str) -> bool {
    name.strip_prefix(REFUSED).is_some_and(|name| step_of(name).is_some())
}

const REFUSED: &str = "refused-";

/// Makes a folder, without what an earlier process left there.
fn make_empty(folder: &Path) -> Result<(), RunError> {
    let made = match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => fs::create_dir(folder),
    };
    made.map_err(|error| cannot_write(folder, &error))
}

fn damaged(path: &Path, why: &str) -> RunError {
    RunError::finding(
        format!("{} is damaged: {why}", path.display()),
        "repeat the command: it uses an earlier checkpoint if there is one",
    )
}

#[cfg(test)]
mod tests;
