//! Checks every byte of a checkpoint: the digests of files and tensors are computed from what is on disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use compiler::digest::Digest;

use super::files::{header_of, other_tensors};
use super::inspect::{self, Header, Inspected, inspect};
use super::manifest::{self, Manifest};
use super::state::{Content, PARTS, Part, Slot};
use crate::run::Refusal;

/// Checks every byte of the checkpoint in `folder`, which must hold these tensors; an error says what is wrong.
pub fn verify(folder: &Path, slots: &[Slot]) -> Result<Manifest, Refusal> {
    verify_of(folder, slots, None)
}

/// The same, of a run with this trainer record, if any.
pub fn verify_of(
    folder: &Path,
    slots: &[Slot],
    trainer: Option<Digest>,
) -> Result<Manifest, Refusal> {
    let failed = |error: std::io::Error| Refusal::of_io(folder, &error);
    let manifest = manifest::read_of(folder, trainer)?;
    let mut expected: BTreeMap<String, Part> =
        PARTS.into_iter().map(|part| (part.file(), part)).collect();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if expected.remove(&name).is_none() && name != manifest::FILE {
            return Err(format!("it contains `{name}`, which is not part of a checkpoint").into());
        }
    }
    if let Some(missing) = expected.keys().next() {
        return Err(format!("{missing} is missing").into());
    }
    let header = header_of(manifest.lock, manifest.step);
    let header = match trainer {
        None => Header::Ours(&header),
        Some(_) => Header::Any(&header),
    };
    for part in PARTS {
        let slots: Vec<Slot> = slots.iter().map(|slot| slot.in_part(part)).collect();
        verify_part(folder, part, manifest.content(part), header, &slots)
            .map_err(|refusal| refusal.about(&format!("{} ", part.file())))?;
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
) -> Result<(), Refusal> {
    let path = folder.join(part.file());
    let Inspected { bytes, file, tensors } = inspect(&path, header, slots)
        .map_err(|error| Refusal::of_io(&path, &error).about("cannot be read: "))?;
    let wrong = if bytes != saved.bytes {
        format!("has {bytes} bytes, but had {}", saved.bytes)
    } else if file != saved.file {
        format!("has digest {}, but had {}", file.short(), saved.file.short())
    } else {
        match tensors {
            Ok(tensors) if tensors == saved.tensors => return Ok(()),
            Ok(tensors) => {
                format!("is not as it was saved: {}", other_tensors(tensors, saved.tensors))
            }
            Err(reason) => format!("does not contain the tensors of a state: {reason}"),
        }
    };
    Err(wrong.into())
}

/// Checks that one file of a checkpoint still has the bytes that were saved. Its tensors may be of any arch.
pub fn intact(folder: &Path, part: Part) -> Result<(), Refusal> {
    let saved = manifest::read_any(folder)?.content(part).file;
    let path = folder.join(part.file());
    let digest = inspect::digest(&path).map_err(|error| Refusal::of_io(&path, &error))?;
    match digest == saved {
        true => Ok(()),
        false => Err(format!("it has digest {}, but had {}", digest.short(), saved.short()).into()),
    }
}
