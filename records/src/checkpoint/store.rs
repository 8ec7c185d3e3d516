//! Saves the states of a run as checkpoints, finds the newest that can be trusted, and deletes old ones.
//!
//! Files are synced under a temporary name together with a sealed list of their digests, then renamed, then `latest` is
//! moved, then old ones are pruned, keeping at least two that verify. Every byte is checked before any is used.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use compiler::digest::Digest;
use dsl::Problem;

use super::files;
use super::manifest::{self, Manifest};
use super::names::{Pointer, name_of, names, pointer, set_aside, step_of};
use super::state::{Content, PARTS, Part, ReadTensor, Slot, WriteTensor};
use super::verify::verify_of;
use crate::fault::{Faults, Point};
use crate::run::{POINTER, Refusal, UNFINISHED, cannot_read, cannot_write};
use crate::run::{replace, sync_folder, unfinished};

/// The checkpoints of one run.
#[derive(Debug)]
pub struct Store {
    pub(super) folder: PathBuf,
    pub(super) lock: Digest,
    /// Every parameter, in parameter order.
    pub(super) slots: Vec<Slot>,
    /// The trainer record of a run that another engine trained.
    trainer: Option<Digest>,
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

/// Which checkpoints a run keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Number of regular ones.
    pub count: usize,
    /// Steps between regular ones; 0 for the last step only.
    pub every: u64,
    /// The run's last step.
    pub last: u64,
}

impl Kept {
    fn is_regular(self, step: u64) -> bool {
        step == self.last || step > 0 && self.every > 0 && step.is_multiple_of(self.every)
    }
}

impl Store {
    /// The checkpoints in a run's folder `checkpoints/`, for this lock and these parameters. Reads nothing yet.
    pub fn new(folder: PathBuf, lock: Digest, slots: Vec<Slot>) -> Store {
        Store { folder, lock, slots, trainer: None, verified: BTreeSet::new() }
    }

    /// The checkpoints of a run that another engine trained, with this trainer record. They are only read.
    pub fn of_trainer(folder: PathBuf, lock: Digest, slots: Vec<Slot>, trainer: Digest) -> Store {
        Store { trainer: Some(trainer), ..Store::new(folder, lock, slots) }
    }

    /// Writes a checkpoint and moves the pointer to it.
    pub fn save(
        &mut self,
        step: u64,
        chain: Digest,
        read: &mut ReadTensor<'_>,
        faults: &Faults,
    ) -> Result<Manifest, Problem> {
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
    ) -> Result<Manifest, Problem> {
        let name = name_of(step);
        let folder = self.folder.join(&name);
        let temporary = self.temporary(step);
        let trainer = self.trainer;
        let [weights, first_moment, second_moment] = contents;
        let manifest = Manifest {
            lock: self.lock,
            trainer,
            step,
            chain,
            weights,
            first_moment,
            second_moment,
        };
        let path = temporary.join(manifest::FILE);
        replace(&path, manifest.text().as_bytes(), || Ok(()))
            .and_then(|()| sync_folder(&temporary))
            .map_err(|error| {
                let _ = fs::remove_dir_all(&temporary);
                cannot_write(&path, &error)
            })?;
        faults.pass(Point::CheckpointWritten).map_err(|error| cannot_write(&temporary, &error))?;
        match fs::rename(&temporary, &folder) {
            Ok(()) => faults
                .pass(Point::CheckpointRenamed)
                .and_then(|()| faults.pass(Point::CheckpointSyncFull))
                .and_then(|()| sync_folder(&self.folder))
                .map_err(|error| cannot_write(&self.folder, &error))?,
            // The step was saved before: by a process that ended here, or before a resume from an earlier checkpoint.
            Err(error) if is_taken(&error) => {
                self.replace_or_agree(&temporary, &folder, &manifest)?
            }
            Err(error) => return Err(cannot_write(&folder, &error)),
        }
        self.verified.insert(name.clone());
        self.point_to(&name, faults)?;
        Ok(manifest)
    }

    /// Deletes old checkpoints except the newest two that verify, and the newest regular ones that do. A checkpoint that a stop
    /// left between regular ones takes the place of none of them.
    pub fn prune(&mut self, keep: Kept, faults: &Faults) -> Result<(), Problem> {
        let failed = |error: io::Error| cannot_write(&self.folder, &error);
        faults.pass(Point::PruneBefore).map_err(failed)?;
        let names = self.names()?;
        self.prune_of(names, keep, faults)
    }

    /// Like [`Store::prune`], for the checkpoint that a run resumes from and older ones, in case a process ended
    /// between moving the pointer and pruning. Newer ones were never announced, or were refused.
    pub fn prune_older(
        &mut self,
        resumed: &str,
        keep: Kept,
        faults: &Faults,
    ) -> Result<(), Problem> {
        let names = self.names()?.into_iter().filter(|name| name.as_str() <= resumed);
        self.prune_of(names.collect(), keep, faults)
    }

    fn prune_of(&mut self, names: Vec<String>, keep: Kept, faults: &Faults) -> Result<(), Problem> {
        let failed = |path: &Path, error: &io::Error| cannot_write(path, error);
        let (mut kept, mut regular) = (0, 0);
        for name in names {
            let folder = self.folder.join(&name);
            let is_regular = step_of(&name).is_some_and(|step| keep.is_regular(step));
            if kept >= 2 && (!is_regular || regular >= keep.count) {
                let pruned = (|| {
                    let away = unfinished(&folder);
                    fs::rename(&folder, &away)?;
                    faults.pass(Point::PruneHalf)?;
                    fs::remove_dir_all(away)
                })();
                pruned.map_err(|error| failed(&folder, &error))?;
                self.verified.remove(&name);
            } else if self.is_whole(&name)? {
                self.verified.insert(name);
                kept += 1;
                regular += usize::from(is_regular);
            }
        }
        Ok(())
    }

    /// Whether a checkpoint verifies. An error if it could not be read.
    fn is_whole(&self, name: &str) -> Result<bool, Problem> {
        if self.verified.contains(name) {
            return Ok(true);
        }
        match verify_of(&self.folder.join(name), &self.slots, self.trainer) {
            Ok(_) => Ok(true),
            Err(Refusal::Wrong(_)) => Ok(false),
            Err(Refusal::Unread(problem)) => Err(problem),
        }
    }

    /// The newest checkpoint that is complete, belongs to this lock, and has a chain that `logged` accepts; also the
    /// checkpoints skipped. An error if there are checkpoints and none is usable, or if one could not be read: it may be
    /// the best.
    pub fn find(
        &mut self,
        logged: impl Fn(Digest) -> bool,
    ) -> Result<(Option<SavedCheckpoint>, Vec<Refused>), Problem> {
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
                Err(Refusal::Wrong(why)) => refused.push(Refused { name, why }),
                Err(Refusal::Unread(problem)) => return Err(problem),
            }
        }
        if refused.is_empty() {
            return Ok((None, refused));
        }
        let list: Vec<String> =
            refused.iter().map(|Refused { name, why }| format!("{name}: {why}")).collect();
        Err(Problem::finding(
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

    /// Moves refused checkpoints aside, under the names of [`set_aside`], so that the folder holds only good ones. The
    /// run goes on from `resumed`.
    pub fn set_aside(
        &self,
        resumed: &str,
        refused: &[Refused],
        faults: &Faults,
    ) -> Result<(), Problem> {
        let mut names = Vec::new();
        for Refused { name, .. } in
            refused.iter().filter(|refused| step_of(&refused.name).is_some())
        {
            let folder = self.folder.join(name);
            if folder.try_exists().map_err(|error| cannot_read(&folder, &error))? {
                names.push(name);
            }
        }
        if names.is_empty() {
            return Ok(());
        }
        self.point_to(resumed, faults)?;
        for name in names {
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
    pub fn kept(&self, logged: impl Fn(Digest) -> bool) -> Result<Vec<SavedCheckpoint>, Problem> {
        let mut kept = Vec::new();
        for name in self.names()? {
            match self.judge(&name, &logged) {
                Ok(manifest) => kept.push(SavedCheckpoint { name, manifest }),
                Err(Refusal::Wrong(_)) => {}
                Err(Refusal::Unread(problem)) => return Err(problem),
            }
        }
        kept.reverse();
        Ok(kept)
    }

    /// Passes every tensor of a checkpoint to `write`, as little-endian f32 bytes.
    pub fn load(
        &self,
        saved: &SavedCheckpoint,
        write: &mut WriteTensor<'_>,
    ) -> Result<(), Problem> {
        PARTS.into_iter().try_for_each(|part| self.load_part(saved, part, write))
    }

    /// Passes every tensor of one part of a checkpoint to `write`.
    pub(crate) fn load_part(
        &self,
        saved: &SavedCheckpoint,
        part: Part,
        write: &mut WriteTensor<'_>,
    ) -> Result<(), Problem> {
        let path = self.folder.join(&saved.name).join(part.file());
        let content = saved.manifest.content(part);
        files::load(&path, part, content, &self.slots_of(part), write)
            .map_err(|refusal| refusal.problem(|fault| damaged(&path, fault)))
    }

    /// Names of checkpoints, newest first.
    pub fn names(&self) -> Result<Vec<String>, Problem> {
        names(&self.folder)
    }

    fn judge(&self, name: &str, logged: &impl Fn(Digest) -> bool) -> Result<Manifest, Refusal> {
        let folder = self.folder.join(name);
        // The tensors of another lock or step may well differ.
        let manifest = manifest::read_of(&folder, self.trainer)?;
        if manifest.lock != self.lock {
            return Err(format!(
                "it belongs to lock {}, not {}",
                manifest.lock.short(),
                self.lock.short()
            )
            .into());
        }
        if name_of(manifest.step) != name {
            return Err(format!("it belongs to step {}", manifest.step).into());
        }
        if !logged(manifest.chain) {
            return Err(format!(
                "the metrics log does not reach step {} as it was then",
                manifest.step
            )
            .into());
        }
        verify_of(&folder, &self.slots, self.trainer)
    }

    /// The entries of a part's file.
    pub(super) fn slots_of(&self, part: Part) -> Vec<Slot> {
        self.slots.iter().map(|slot| slot.in_part(part)).collect()
    }

    /// The folder of a checkpoint until it is complete.
    pub(super) fn temporary(&self, step: u64) -> PathBuf {
        unfinished(&self.folder.join(name_of(step)))
    }

    fn write(
        &self,
        temporary: &Path,
        step: u64,
        read: &mut ReadTensor<'_>,
        faults: &Faults,
    ) -> Result<[Content; 3], Problem> {
        make_empty(temporary)?;
        let header = files::header_of(self.lock, step);
        let mut contents = Vec::with_capacity(PARTS.len());
        for part in PARTS {
            let path = temporary.join(part.file());
            let content = files::save(&path, part, &header, &self.slots_of(part), faults, read)?;
            contents.push(content);
        }
        contents.try_into().map_err(|_| {
            Problem::machine("a part is missing", "this is a bug in canonc; please report it")
        })
    }

    fn point_to(&self, name: &str, faults: &Faults) -> Result<(), Problem> {
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

    fn pointer(&self) -> Result<Pointer, Problem> {
        pointer(&self.folder)
    }

    /// A checkpoint of the same step already exists. It must be equal, unless it is damaged.
    fn replace_or_agree(
        &self,
        temporary: &Path,
        folder: &Path,
        manifest: &Manifest,
    ) -> Result<(), Problem> {
        let saved = manifest::read_of(folder, self.trainer).and_then(|saved| {
            match saved.lock == manifest.lock {
                true => verify_of(folder, &self.slots, self.trainer),
                false => Ok(saved),
            }
        });
        let replaced = match saved {
            Ok(saved) if saved == *manifest => fs::remove_dir_all(temporary),
            // One of them was saved before an evaluation of the state, and the other after it.
            Ok(saved) if (Manifest { chain: manifest.chain, ..saved.clone() }) == *manifest => {
                self.rechain(&saved, manifest.chain)?;
                fs::remove_dir_all(temporary)
            }
            Ok(saved) => {
                let _ = fs::remove_dir_all(temporary);
                return Err(other_result(folder, &saved, manifest));
            }
            Err(Refusal::Unread(problem)) => {
                let _ = fs::remove_dir_all(temporary);
                return Err(problem);
            }
            // Renamed before it is deleted, so a half-deleted folder never looks like a checkpoint.
            Err(Refusal::Wrong(_)) => (|| {
                let away = folder.with_file_name(format!("{UNFINISHED}damaged"));
                fs::rename(folder, &away)?;
                fs::rename(temporary, folder)?;
                fs::remove_dir_all(away)
            })(),
        };
        replaced
            .and_then(|()| sync_folder(&self.folder))
            .map_err(|error| cannot_write(folder, &error))
    }
}

/// Whether a folder was not renamed since its new name is taken. Windows says only that it may not be.
fn is_taken(error: &io::Error) -> bool {
    let taken = [io::ErrorKind::AlreadyExists, io::ErrorKind::DirectoryNotEmpty];
    taken.contains(&error.kind())
        || cfg!(windows) && error.kind() == io::ErrorKind::PermissionDenied
}

fn other_result(folder: &Path, saved: &Manifest, now: &Manifest) -> Problem {
    let folder = folder.display();
    if (saved.lock, saved.step) != (now.lock, now.step) {
        let what = format!("step {} of lock {}", saved.step, saved.lock.short());
        return Problem::finding(
            format!("{folder} holds {what} instead"),
            "move it away and repeat the command",
        );
    }
    let differs = PARTS.into_iter().find(|part| saved.content(*part) != now.content(*part));
    let what = match differs {
        Some(part) => format!(
            "its {} were {} and are now {}",
            part.name(),
            saved.content(part).tensors.short(),
            now.content(part).tensors.short()
        ),
        None => "it belongs to another metrics log".to_owned(),
    };
    Problem::finding(
        format!("{folder} had another result before: {what}"),
        "check what changed since: the machine, the build of canonc or libtorch, or failing memory",
    )
}

/// Makes a folder, without what an earlier process left there.
pub(super) fn make_empty(folder: &Path) -> Result<(), Problem> {
    let emptied = match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => fs::create_dir(folder),
    };
    emptied.map_err(|error| cannot_write(folder, &error))
}

fn damaged(path: &Path, fault: &str) -> Problem {
    Problem::finding(
        format!("{} is damaged: {fault}", path.display()),
        "repeat the command: it uses an earlier checkpoint if there is one",
    )
}
