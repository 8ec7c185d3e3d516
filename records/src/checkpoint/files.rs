//! The safetensors file of one set of tensors, written and read.
//!
//! Tensors are in parameter order with one metadata entry, so equal tensors of one step give equal files. Writing holds
//! one tensor in memory at a time; a file is digested whole before its header is trusted.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::Path;

use compiler::digest::Digest;
use dsl::Problem;
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorInfo};

use super::state::{Content, Part, ReadTensor, Slot, TensorDigests, WriteTensor};
use crate::fault::{Faults, Point};
use crate::run::{Refusal, cannot_write, digest_of, if_readable};

/// The one metadata entry of a file.
pub(super) fn header_of(lock: Digest, step: u64) -> String {
    format!("lock {lock} step {step}")
}

/// The lock and the step recorded in a checkpoint file; `None` for any other file.
pub fn saved_by(path: &Path) -> Result<Option<(Digest, u64)>, Problem> {
    let metadata = if_readable(path, header(path))?.flatten();
    Ok(metadata.and_then(|metadata| {
        let written = metadata.metadata().as_ref()?.get("canonc")?;
        let (lock, step) = written.strip_prefix("lock ")?.split_once(" step ")?;
        Some((Digest::parse(lock)?, step.parse().ok()?))
    }))
}

/// The header of a safetensors file; `None` for any other file.
fn header(path: &Path) -> io::Result<Option<Metadata>> {
    let mut length = [0; 8];
    let mut file = disk::open(path)?;
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > disk::SMALL * 4 {
        return Ok(None);
    }
    let mut json = Vec::new();
    file.take(length).read_to_end(&mut json)?;
    Ok(serde_json::from_slice(&json).ok())
}

/// Writes and syncs one file.
pub(super) fn save(
    path: &Path,
    part: Part,
    header: &str,
    slots: &[Slot],
    faults: &Faults,
    read: &mut ReadTensor<'_>,
) -> Result<Content, Problem> {
    let io = |error: io::Error| cannot_write(path, &error);
    let mut file = Digesting {
        inner: BufWriter::with_capacity(1 << 20, File::create(path).map_err(io)?),
        hasher: blake3::Hasher::new(),
        bytes: 0,
    };
    let head = head_of(header, slots).map_err(|reason| {
        Problem::machine(
            format!("{} cannot be written: {reason}", path.display()),
            "this is a bug in canonc; please report it",
        )
    })?;
    file.write_all(&head).map_err(io)?;
    let mut digests = TensorDigests::default();
    let mut bytes = Vec::new();
    for (index, slot) in slots.iter().enumerate() {
        bytes.clear();
        read(part, index, &mut bytes)?;
        if bytes.len() != 4 * slot.elements() {
            return Err(Problem::machine(
                format!("{} has {} bytes, not 4 x {:?}", slot.path, bytes.len(), slot.shape),
                "this is a bug in canonc; please report it",
            ));
        }
        digests.add(slot, &bytes);
        if index == slots.len() / 2 && faults.is_due(Point::CheckpointHalf) {
            file.write_all(bytes.get(..bytes.len() / 2).unwrap_or_default()).map_err(io)?;
            file.inner.flush().map_err(io)?;
            faults.now()
        }
        file.write_all(&bytes).map_err(io)?;
    }
    faults.pass(Point::CheckpointFull).map_err(io)?;
    let Digesting { inner, hasher, bytes } = file;
    inner
        .into_inner()
        .map_err(io::IntoInnerError::into_error)
        .and_then(|file| file.sync_all())
        .map_err(io)?;
    Ok(Content { bytes, file: digest_of(hasher.finalize()), tensors: digests.finish() })
}

/// The length of the header and the header.
pub(super) fn head_of(header: &str, slots: &[Slot]) -> Result<Vec<u8>, String> {
    let mut offset = 0;
    let tensors = slots.iter().map(|slot| {
        let start = offset;
        offset += 4 * slot.elements();
        let info = TensorInfo {
            dtype: Dtype::F32,
            shape: slot.shape.clone(),
            data_offsets: (start, offset),
        };
        (slot.path.clone(), info)
    });
    // A single entry, since the map has no fixed order.
    let metadata = HashMap::from([("canonc".to_owned(), header.to_owned())]);
    let metadata =
        Metadata::new(Some(metadata), tensors.collect()).map_err(|error| error.to_string())?;
    let mut json = serde_json::to_vec(&metadata).map_err(|error| error.to_string())?;
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut head = (json.len() as u64).to_le_bytes().to_vec();
    head.extend(json);
    Ok(head)
}

/// Passes every tensor of the file to `write`, in parameter order; an error if a digest of the file or its tensors
/// differs.
pub(super) fn load(
    path: &Path,
    part: Part,
    content: Content,
    slots: &[Slot],
    write: &mut WriteTensor<'_>,
) -> Result<(), Refusal> {
    // The size of the tensors plus a header.
    let most = slots.iter().fold(disk::SMALL * 4, |sum, slot| sum + 4 * slot.elements() as u64);
    let bytes = disk::read(path, most).map_err(|error| Refusal::of_io(path, &error))?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&bytes);
    if digest_of(hasher.finalize()) != content.file {
        return Err(Refusal::Wrong("its digest changed since it was checked".to_owned()));
    }
    let mut digests = TensorDigests::default();
    let file = SafeTensors::deserialize(&bytes).map_err(|error| error.to_string())?;
    if file.len() != slots.len() {
        return Err(format!("it has {} tensors, not {}", file.len(), slots.len()).into());
    }
    for (index, slot) in slots.iter().enumerate() {
        let tensor = file.tensor(&slot.path).map_err(|error| error.to_string())?;
        if tensor.dtype() != Dtype::F32 || tensor.shape() != slot.shape {
            return Err(format!(
                "{} is {:?} {:?}, not F32 {:?}",
                slot.path,
                tensor.dtype(),
                tensor.shape(),
                slot.shape
            )
            .into());
        }
        digests.add(slot, tensor.data());
        write(part, index, tensor.data())?;
    }
    let tensors = digests.finish();
    match tensors == content.tensors {
        true => Ok(()),
        false => Err(other_tensors(tensors, content.tensors).into()),
    }
}

/// The error for tensors that differ from the saved ones.
pub(super) fn other_tensors(read: Digest, saved: Digest) -> String {
    format!("its tensors have digest {}, but {} was saved", read.short(), saved.short())
}

/// Digests all bytes written through it.
struct Digesting<W> {
    inner: W,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl<W: io::Write> Digesting<W> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        self.inner.write_all(bytes)
    }
}
