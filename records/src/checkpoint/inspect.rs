//! Digests of a file of a checkpoint and of its tensors, from the bytes on disk.
//!
//! A file is read once and never held whole; a tensor is digested only if its name, dtype, shape and position are those
//! that canonc writes.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::Path;

use compiler::digest::Digest;
use safetensors::tensor::{Dtype, Metadata};

use super::files::head_of;
use super::state::{Content, Slot, TensorDigests, tensor_hasher};
use crate::run::digest_of;

/// The contents of a file.
pub(super) struct Inspected {
    pub(super) bytes: u64,
    pub(super) file: Digest,
    /// An error says why the file does not hold these tensors.
    pub(super) tensors: Result<Digest, String>,
}

/// The header that a file must have, with its one metadata entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Header<'a> {
    /// Byte for byte as canonc writes it.
    Ours(&'a str),
    /// Of any writer: the same tensors at the same positions, and this entry.
    Any(&'a str),
}

/// The digest of the whole file.
pub(super) fn digest(path: &Path) -> io::Result<Digest> {
    let mut file = DigestingReader::open(path)?;
    file.pass(u64::MAX, |_| ())?;
    Ok(digest_of(file.hasher.finalize()))
}

/// Reads the whole file.
pub(super) fn inspect(path: &Path, header: Header<'_>, slots: &[Slot]) -> io::Result<Inspected> {
    let mut file = DigestingReader::open(path)?;
    // A longer file is not read, since it cannot hold these tensors.
    let most = slots.iter().fold(MOST_HEADER, |sum, slot| sum + 4 * slot.elements() as u64);
    let length = file.inner.metadata()?.len();
    if length > most {
        let fault = format!(
            "it has {length} bytes, but the tensors of the lock's arch need less than {most}"
        );
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, fault));
    }
    let tensors = read_tensors(&mut file, header, slots)?;
    let rest = file.pass(u64::MAX, |_| ())?;
    let DigestingReader { inner: _, hasher, bytes } = file;
    Ok(Inspected {
        bytes,
        file: digest_of(hasher.finalize()),
        tensors: match (tensors, rest) {
            (Ok(digest), 0) => Ok(digest),
            (Ok(_), rest) => Err(format!("it has {rest} more bytes after its last tensor")),
            (Err(fault), _) => Err(fault),
        },
    })
}

fn read_tensors(
    file: &mut DigestingReader,
    header: Header<'_>,
    slots: &[Slot],
) -> io::Result<Result<Digest, String>> {
    let read = match header {
        Header::Ours(entry) => read_our_head(file, entry, slots)?,
        Header::Any(entry) => read_any_head(file, entry, slots)?,
    };
    if let Err(reason) = read {
        return Ok(Err(reason));
    }
    let mut digests = TensorDigests::default();
    for slot in slots {
        let mut hasher = tensor_hasher();
        let wanted = 4 * slot.elements() as u64;
        let passed = file.pass(wanted, |bytes| {
            hasher.update(bytes);
        })?;
        if passed != wanted {
            return Ok(Err(format!("it ends inside the tensor {}", slot.path)));
        }
        digests.push(slot, hasher.finalize());
    }
    Ok(Ok(digests.finish()))
}

/// Reads a header that must be canonc's, byte for byte.
fn read_our_head(
    file: &mut DigestingReader,
    entry: &str,
    slots: &[Slot],
) -> io::Result<Result<(), String>> {
    let expected = match head_of(entry, slots) {
        Ok(expected) => expected,
        Err(reason) => return Ok(Err(reason)),
    };
    let mut head = Vec::with_capacity(expected.len());
    file.pass(expected.len() as u64, |bytes| head.extend_from_slice(bytes))?;
    if head == expected {
        return Ok(Ok(()));
    }
    other_head(file, &mut head, entry, slots).map(Err)
}

/// Reads a header of any writer, whose tensors must be these, one after the other in this order.
fn read_any_head(
    file: &mut DigestingReader,
    entry: &str,
    slots: &[Slot],
) -> io::Result<Result<(), String>> {
    let mut head = Vec::new();
    file.pass(8, |bytes| head.extend_from_slice(bytes))?;
    let Some(metadata) = metadata(file, &mut head)? else { return Ok(Err(NOT_ONE.to_owned())) };
    let mut offset = 0;
    let in_place = |slot: &Slot| {
        let start = offset;
        offset += 4 * slot.elements();
        metadata.info(&slot.path).is_some_and(|info| {
            let dtype = info.dtype == Dtype::F32 && info.shape == slot.shape;
            dtype && info.data_offsets == (start, offset)
        })
    };
    let count = metadata.tensors().len();
    let named = metadata.metadata().as_ref().and_then(|entries| entries.get("canonc"));
    if slots.iter().all(in_place) && count == slots.len() && named.is_some_and(|n| n == entry) {
        return Ok(Ok(()));
    }
    let otherwise = "its tensors are not in the order of the manifest, one after the other";
    Ok(Err(describe(&metadata, entry, slots, otherwise)))
}

/// A file that several processes have written.
pub(super) struct Divided {
    pub(super) content: Content,
    /// For each process, the digest of the bytes that it wrote, in the order of the file.
    pub(super) by_process: Vec<blake3::Hash>,
}

/// Reads a whole file with this head. `owners` gives the elements of a tensor by process, in the order of the tensor's
/// elements. An error inside says why the file does not hold these tensors.
pub(super) fn divided(
    path: &Path,
    head: &[u8],
    slots: &[Slot],
    owners: &dyn Fn(usize) -> Vec<Range<u64>>,
    processes: usize,
) -> io::Result<Result<Divided, String>> {
    let mut file = DigestingReader::open(path)?;
    let mut written = Vec::with_capacity(head.len());
    file.pass(head.len() as u64, |bytes| written.extend_from_slice(bytes))?;
    if written != head {
        return Ok(Err("its header is not the one that was laid out".to_owned()));
    }
    let mut by_process = vec![blake3::Hasher::new(); processes];
    let mut digests = TensorDigests::default();
    for (index, slot) in slots.iter().enumerate() {
        let mut hasher = tensor_hasher();
        let mut passed = 0;
        // A moment that is not kept has no elements, whoever owns the parameter's.
        let owners = if slot.elements() == 0 { Vec::new() } else { owners(index) };
        for (range, process) in owners.into_iter().zip(&mut by_process) {
            let wanted = 4 * (range.end - range.start);
            passed += file.pass(wanted, |bytes| {
                hasher.update(bytes);
                process.update(bytes);
            })?;
        }
        if passed != 4 * slot.elements() as u64 {
            return Ok(Err(format!("it ends inside the tensor {}", slot.path)));
        }
        digests.push(slot, hasher.finalize());
    }
    match file.pass(u64::MAX, |_| ())? {
        0 => {}
        rest => return Ok(Err(format!("it has {rest} more bytes after its last tensor"))),
    }
    let DigestingReader { inner: _, hasher, bytes } = file;
    let content = Content { bytes, file: digest_of(hasher.finalize()), tensors: digests.finish() };
    let by_process = by_process.iter().map(blake3::Hasher::finalize).collect();
    Ok(Ok(Divided { content, by_process }))
}

/// Larger than the header of any arch.
const MOST_HEADER: u64 = 1 << 28;

/// The reason that `head` is the wrong beginning of a file.
fn other_head(
    file: &mut DigestingReader,
    head: &mut Vec<u8>,
    header: &str,
    slots: &[Slot],
) -> io::Result<String> {
    let metadata = metadata(file, head)?;
    let otherwise = "its header is not as canonc writes it for these tensors";
    let described = metadata.map(|metadata| describe(&metadata, header, slots, otherwise));
    Ok(described.unwrap_or_else(|| NOT_ONE.to_owned()))
}

const NOT_ONE: &str = "it is not a safetensors file";

/// The header of a file of which `head` has been read; `None` if it has none.
fn metadata(file: &mut DigestingReader, head: &mut Vec<u8>) -> io::Result<Option<Metadata>> {
    let Some(length) = head.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes)) else {
        return Ok(None);
    };
    if length > MOST_HEADER {
        return Ok(None);
    }
    let missing = (length + 8).saturating_sub(head.len() as u64);
    file.pass(missing, |bytes| head.extend_from_slice(bytes))?;
    let json = usize::try_from(length + 8).ok().and_then(|end| head.get(8..end));
    Ok(json.and_then(|json| serde_json::from_slice::<Metadata>(json).ok()))
}

fn describe(metadata: &Metadata, header: &str, slots: &[Slot], otherwise: &str) -> String {
    for Slot { path, shape, moments: _ } in slots {
        match metadata.info(path) {
            None => return format!("it has no tensor {path}"),
            Some(info) if info.dtype != Dtype::F32 || info.shape != *shape => {
                return format!(
                    "{path} is {:?} {:?}, but the lock's arch has F32 {shape:?}",
                    info.dtype, info.shape
                );
            }
            Some(_) => {}
        }
    }
    let known: BTreeSet<&str> = slots.iter().map(|slot| slot.path.as_str()).collect();
    let extra = metadata.offset_keys().into_iter().find(|name| !known.contains(name.as_str()));
    if let Some(extra) = extra {
        return format!("it has a tensor {extra}, but the lock's arch has no such parameter");
    }
    let written = metadata.metadata().as_ref().and_then(|entries| entries.get("canonc"));
    match written {
        Some(written) if written == header => otherwise.to_owned(),
        Some(written) => {
            format!("it claims to belong to {written}, but it should belong to {header}")
        }
        None => format!("it does not name {header}"),
    }
}

/// Reads a file and digests its bytes on the way.
struct DigestingReader {
    inner: File,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl DigestingReader {
    fn open(path: &Path) -> io::Result<DigestingReader> {
        Ok(DigestingReader { inner: disk::open(path)?, hasher: blake3::Hasher::new(), bytes: 0 })
    }

    /// Passes up to `count` bytes to `take`, and returns how many there were.
    fn pass(&mut self, count: u64, mut take: impl FnMut(&[u8])) -> io::Result<u64> {
        let mut buffer = vec![0; usize::try_from(count.min(1 << 20)).unwrap_or(1 << 20)];
        let mut passed = 0;
        while passed < count {
            let most = usize::try_from(count - passed).unwrap_or(usize::MAX).min(buffer.len());
            let read = match self.inner.read(buffer.get_mut(..most).unwrap_or_default()) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let bytes = buffer.get(..read).unwrap_or_default();
            self.hasher.update(bytes);
            take(bytes);
            passed += read as u64;
        }
        self.bytes += passed;
        Ok(passed)
    }
}
