//! A checkpoint that several processes write together, into one folder that all of them see.
//!
//! Its files are those that one process would write, byte for byte. Digests are computed from what was read back from the
//! disk. Until the process that laid the files out commits them, they have no name that a reader would use.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write as _};
use std::ops::Range;

use dsl::Problem;

use super::files;
use super::inspect::{Divided, divided};
use super::state::{Content, PARTS, Part, ReadTensor, Slot};
use super::store::{Store, make_empty};
use crate::fault::{Faults, Point};
use crate::run::cannot_write;

/// For each tensor, the elements that a process writes.
pub type Ranges = [Range<u64>];

impl Store {
    /// Makes the files of a checkpoint, of their full length, without tensors.
    pub fn lay_out(&self, step: u64) -> Result<(), Problem> {
        let folder = self.temporary(step);
        make_empty(&folder)?;
        for part in PARTS {
            let path = folder.join(part.file());
            let slots = self.slots_of(part);
            let head = self.head(step, &slots)?;
            let elements: usize = slots.iter().map(Slot::elements).sum();
            let written = File::create(&path).and_then(|mut file| {
                file.write_all(&head)?;
                file.set_len(head.len() as u64 + 4 * elements as u64)?;
                file.sync_all()
            });
            written.map_err(|error| {
                // The first error is the one to show.
                let _ = fs::remove_dir_all(&folder);
                cannot_write(&path, &error)
            })?;
        }
        Ok(())
    }

    /// Writes and syncs one process's elements of each tensor of a part. `read` appends their bytes. Returns a digest of
    /// all of them; `None` if this process does not see the file.
    pub fn write_own(
        &self,
        step: u64,
        part: Part,
        elements: &Ranges,
        read: &mut ReadTensor<'_>,
        faults: &Faults,
    ) -> Result<Option<blake3::Hash>, Problem> {
        let path = self.temporary(step).join(part.file());
        let io = |error: io::Error| cannot_write(&path, &error);
        let file = match OpenOptions::new().write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(error)),
        };
        let mut file = BufWriter::with_capacity(1 << 20, file);
        let slots = self.slots_of(part);
        let mut start = self.head(step, &slots)?.len() as u64;
        let mut hasher = blake3::Hasher::new();
        let mut bytes = Vec::new();
        for (index, (slot, range)) in slots.iter().zip(elements).enumerate() {
            bytes.clear();
            read(part, index, &mut bytes)?;
            let range = if slot.elements() == 0 { &(0..0) } else { range };
            let wanted = 4 * (range.end - range.start);
            if bytes.len() as u64 != wanted {
                return Err(Problem::machine(
                    format!("{} has {} bytes here, not {wanted}", slot.path, bytes.len()),
                    "this is a bug in canonc; please report it",
                ));
            }
            hasher.update(&bytes);
            if !bytes.is_empty() {
                file.seek(SeekFrom::Start(start + 4 * range.start)).map_err(io)?;
            }
            if index == slots.len() / 2 && faults.is_due(Point::CheckpointHalf) {
                file.write_all(bytes.get(..bytes.len() / 2).unwrap_or_default()).map_err(io)?;
                file.flush().map_err(io)?;
                faults.now()
            }
            file.write_all(&bytes).map_err(io)?;
            start += 4 * slot.elements() as u64;
        }
        faults.pass(Point::CheckpointFull).map_err(io)?;
        file.into_inner()
            .map_err(io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all())
            .map_err(io)?;
        Ok(Some(hasher.finalize()))
    }

    /// Reads a part that all processes have written, and computes its digests. `owners` says which elements of a tensor
    /// each process wrote, in the order of the tensor's elements, and `written` are their digests of what they wrote.
    pub fn read_back(
        &self,
        step: u64,
        part: Part,
        owners: &dyn Fn(usize) -> Vec<Range<u64>>,
        written: &[blake3::Hash],
    ) -> Result<Content, Problem> {
        let path = self.temporary(step).join(part.file());
        let wrong = |fault: &str| {
            Problem::machine(
                format!("{} was not written as it should be: {fault}", path.display()),
                "put the run's folder on a file system where each machine reads at once what another one wrote",
            )
        };
        let slots = self.slots_of(part);
        let head = self.head(step, &slots)?;
        let Divided { content, by_process } = divided(&path, &head, &slots, owners, written.len())
            .map_err(|error| wrong(&error.to_string()))?
            .map_err(|fault| wrong(&fault))?;
        match (0..).zip(&by_process).zip(written).find(|((_, read), wrote)| *read != *wrote) {
            None => Ok(content),
            Some(((process, _), _)) => {
                Err(wrong(&format!("it does not hold what rank {process} wrote")))
            }
        }
    }

    /// Deletes the files of a checkpoint that is not committed.
    pub fn abandon(&self, step: u64) {
        // They have no name that a reader would use, so nothing is wrong if they stay.
        let _ = fs::remove_dir_all(self.temporary(step));
    }

    fn head(&self, step: u64, slots: &[Slot]) -> Result<Vec<u8>, Problem> {
        files::head_of(&files::header_of(self.lock, step), slots).map_err(|reason| {
            Problem::machine(
                format!("a checkpoint cannot be written: {reason}"),
                "this is a bug in canonc; please report it",
            )
        })
    }
}

#[cfg(test)]
mod tests;
