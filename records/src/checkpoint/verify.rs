//! Checks every byte of a checkpoint: the digests of files and tensors are computed from what is on disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use compiler::digest::Digest;

use super::files::{header_of, other_tensors};
use super::inspect::{self, Header, Inspected, inspect};
use super::manifest::{self, Manifest};
use super::state::{Content, PARTS, Part, Slot};

/// Checks every byte of the checkpoint in `folder`, which must hold these tensors; an error says what is wrong.
pub fn verify(folder: &Path, slots: &[Slot]) -> Result<Manifest, String> {
    verify_of(folder, slots, None)
}

/// The same, of a run with this trainer record, if any.
pub fn verify_of(
    folder: &Path,
    slots: &[Slot],
    trainer: Option<Digest>,
) -> Result<Manifest, String> {
    let failed = |error: std::io::Error| error.to_string();
    let manifest = manifest::read_of(folder, trainer)?;
    let mut expected: BTreeMap<String, Part> =
        PARTS.into_iter().map(|part| (part.file(), part)).collect();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if expected.remove(&name).is_none() && name != manifest::FILE {
            return Err(format!("it contains `{name}`, which is not part of a checkpoint"));
        }
    }
    if let Some(missing) = expected.keys().next() {
        return Err(format!("{missing} is missing"));
    }
    let header = header_of(manifest.lock, manifest.step);
    let header = match trainer {
        None => Header::Ours(&header),
        Some(_) => Header::Any(&header),
    };
    for part in PARTS {
        let slots: Vec<Slot> = slots.iter().map(|slot| slot.in_part(part)).collect();
        verify_part(folder, part, manifest.content(part), header, &slots)
            .map_err(|reason| format!("{} {reason}", part.file()))?;
    }
    Ok(manifest)
}

/// Checks one file's bytes and tensors against the digests in the manifest.
fn verify_part(
    folder: &Path,
    part: Part,
    saved: Content,
    header: Header<'_>,
    slots: &[Slot],
) -> Result<(), String> {
    let Inspected { bytes, file, tensors } = inspect(&folder.join(part.file()), header, slots)
        .map_err(|error| format!("cannot be read: {error}"))?;
    if bytes != saved.bytes {
        return Err(format!("has {bytes} bytes, but had {}", saved.bytes));
    }
    if file != saved.file {
        return Err(format!("has digest {}, but had {}", file.short(), saved.file.short()));
    }
    match tensors {
        Ok(tensors) if tensors == saved.tensors => Ok(()),
        Ok(tensors) => {
            Err(format!("is not as it was saved: {}", other_tensors(tensors, saved.tensors)))
        }
        Err(reason) => Err(format!("does not contain the tensors of a state: {reason}")),
    }
}

/// Checks that one file of a checkpoint still has the bytes that were saved. Its tensors may be of any arch.
pub fn intact(folder: &Path, part: Part) -> Result<(), String> {
    let saved = manifest::read_any(folder)?.content(part).file;
    let digest = inspect::digest(&folder.join(part.file())).map_err(|error| error.to_string())?;
    match digest == saved {
        true => Ok(()),
        false => Err(format!("it has digest {}, but had {}", digest.short(), saved.short())),
    }
}
