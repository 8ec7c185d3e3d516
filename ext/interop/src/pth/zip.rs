//! Reads zip archives, but only those that PyTorch writes.
//!
//! Entries are stored, never compressed, so nothing can grow; local headers repeat the central directory; entries do not
//! overlap, leave the file, or hide bytes between them; names stay below one folder; contents match their checksum; counts
//! and sizes are bounded before they are read.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::pickle::MAX_PICKLE;
use disk::checked::{CheckedFile, ReadBuffer, ReadFault};

/// The maximum number of entries in an archive.
const MAX_ENTRIES: u64 = 1_000_000;
/// The maximum size of the central directory in bytes.
const MAX_DIRECTORY: u64 = 64 << 20;
/// The maximum number of bytes between two entries: the first one's data descriptor.
const MAX_GAP: u64 = 24;
const MAX_NAME: usize = 255;

const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR64: u32 = 0x0706_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const LOCAL: u32 = 0x0403_4b50;
/// Sizes follow the data; names are UTF-8.
const KNOWN_FLAGS: u16 = 0x0808;
const FOLLOWS: u16 = 0x0008;

/// Entries other than the pickle and the storages.
const SMALL: [&str; 5] =
    ["byteorder", "version", ".format_version", ".storage_alignment", ".data/serialization_id"];

#[derive(Debug)]
struct ArchiveEntry {
    header: u64,
    at: u64,
    size: u64,
    crc: u32,
    /// Whether the entry was read and its checksum verified.
    used: Cell<bool>,
}

/// An archive after its structure was checked.
#[derive(Debug)]
pub(super) struct Archive {
    file: Arc<CheckedFile>,
    /// By name, without their common folder.
    entries: BTreeMap<String, ArchiveEntry>,
}

/// A reader of consecutive little-endian fields.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or("its directory ends in the middle")?;
        self.0 = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, String> {
        let bytes = self.take(2)?;
        bytes.try_into().map(u16::from_le_bytes).map_err(|_| "its directory ends".to_owned())
    }

    fn u32(&mut self) -> Result<u32, String> {
        let bytes = self.take(4)?;
        bytes.try_into().map(u32::from_le_bytes).map_err(|_| "its directory ends".to_owned())
    }

    fn u64(&mut self) -> Result<u64, String> {
        let bytes = self.take(8)?;
        bytes.try_into().map(u64::from_le_bytes).map_err(|_| "its directory ends".to_owned())
    }
}

fn read_at(file: &CheckedFile, at: u64, count: u64) -> Result<Vec<u8>, String> {
    file.bytes(at..at.saturating_add(count)).map_err(|fault| match fault {
        ReadFault::Outside { .. } => format!("it ends before byte {}", at.saturating_add(count)),
        ReadFault::Changed { .. } | ReadFault::Cut { .. } | ReadFault::Io { .. } => {
            fault.to_string()
        }
    })
}

/// The directory's offset, length, number of entries, and required end.
struct Directory {
    at: u64,
    size: u64,
    count: u64,
    end: u64,
}

impl Archive {
    pub(super) fn open(file: Arc<CheckedFile>) -> Result<Archive, String> {
        let directory = directory(&file, file.covered())?;
        let Directory { at, size, count, end } = directory;
        if count > MAX_ENTRIES || size > MAX_DIRECTORY {
            return Err(format!("its directory has {count} entries and {size} bytes, too many"));
        }
        if at.checked_add(size) != Some(end) {
            return Err(format!("its directory of {size} bytes at {at} does not end at {end}"));
        }
        let bytes = read_at(&file, at, size)?;
        let mut bytes = Bytes(&bytes);
        let mut entries = BTreeMap::new();
        let mut folder = None;
        for _ in 0..count {
            let (name, entry) = central(&mut bytes)?;
            let (top_folder, rest) = checked_name(&name)?;
            match &folder {
                None => folder = Some(top_folder),
                Some(folder) if *folder == top_folder => {}
                Some(folder) => return Err(format!("{name:?} is outside of {folder:?}")),
            }
            if entries.contains_key(&rest) {
                return Err(format!("{name:?} occurs twice"));
            }
            entries.insert(rest, (name, entry));
        }
        if !bytes.0.is_empty() {
            return Err(format!("{} bytes of its directory belong to no entry", bytes.0.len()));
        }
        let mut order: Vec<&mut (String, ArchiveEntry)> = entries.values_mut().collect();
        order.sort_by_key(|(_, entry)| entry.header);
        let mut free = 0;
        for (name, entry) in order {
            if entry.header < free {
                return Err(format!("{name:?} overlaps the entry before it"));
            }
            if entry.header - free > MAX_GAP || (free == 0 && entry.header > 0) {
                return Err(format!(
                    "{} bytes before {name:?} belong to no entry",
                    entry.header - free
                ));
            }
            local(&file, name, entry)?;
            free =
                entry.at.checked_add(entry.size).filter(|end| *end <= at).ok_or_else(|| {
                    format!("{name:?} of {} bytes exceeds the archive", entry.size)
                })?;
        }
        if at - free > MAX_GAP {
            return Err(format!("{} bytes before its directory belong to no entry", at - free));
        }
        let entries = entries.into_iter().map(|(rest, (_, entry))| (rest, entry)).collect();
        Ok(Archive { file, entries })
    }

    /// A small entry's content.
    pub(super) fn small(&mut self, name: &str) -> Result<Vec<u8>, String> {
        self.optional(name)?.ok_or_else(|| format!("it has no {name}"))
    }

    pub(super) fn optional(&mut self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(entry) = self.entries.get(name) else { return Ok(None) };
        if entry.size > MAX_PICKLE {
            return Err(format!("{name} has {}", dsl::over(entry.size, MAX_PICKLE)));
        }
        let bytes = read_at(&self.file, entry.at, entry.size)?;
        if crc32fast::hash(&bytes) != entry.crc {
            return Err(format!("{name} does not match its checksum"));
        }
        entry.used.set(true);
        Ok(Some(bytes))
    }

    /// The offset and length of an entry's content, after its checksum was verified.
    pub(super) fn checked_span(&self, name: &str) -> Result<(u64, u64), String> {
        let entry = self.entries.get(name).ok_or_else(|| format!("it has no {name}"))?;
        if !entry.used.get() {
            let (mut hash, mut buffer) = (crc32fast::Hasher::new(), ReadBuffer::default());
            let end = entry.at.saturating_add(entry.size);
            for at in (entry.at..end).step_by(1 << 20) {
                let piece = self.file.read(at..end.min(at + (1 << 20)), &mut buffer);
                hash.update(piece.map_err(|fault| fault.to_string())?);
            }
            if hash.finalize() != entry.crc {
                return Err(format!("{name} does not match its checksum"));
            }
            entry.used.set(true);
        }
        Ok((entry.at, entry.size))
    }

    /// Checks that every entry was used, or is one of the few that describe the archive.
    pub(super) fn unused(&self) -> Result<(), String> {
        let idle = |(name, entry): &(&String, &ArchiveEntry)| {
            !(entry.used.get() || SMALL.contains(&name.as_str()) && entry.size <= 64)
        };
        match self.entries.iter().find(idle) {
            Some((name, _)) => Err(format!("{name:?} is not used by any tensor")),
            None => Ok(()),
        }
    }
}

/// The records at the archive's end.
fn directory(file: &CheckedFile, length: u64) -> Result<Directory, String> {
    let not = || "it is not a zip archive, as written by torch.save since 1.6".to_owned();
    let end = length.checked_sub(22).ok_or_else(not)?;
    let bytes = read_at(file, end, 22)?;
    let mut bytes = Bytes(&bytes);
    if bytes.u32()? != END {
        return Err(not());
    }
    let (disk, first, on_disk, count) = (bytes.u16()?, bytes.u16()?, bytes.u16()?, bytes.u16()?);
    let (size, at, comment) = (bytes.u32()?, bytes.u32()?, bytes.u16()?);
    if (disk, first, comment) != (0, 0, 0) || on_disk != count {
        return Err("it is in several parts, or has a comment".to_owned());
    }
    let plain =
        Directory { at: u64::from(at), size: u64::from(size), count: u64::from(count), end };
    let large = count == u16::MAX || size == u32::MAX || at == u32::MAX;
    let Some(locator) = end.checked_sub(20) else { return Ok(plain) };
    let bytes = read_at(file, locator, 20)?;
    let mut bytes = Bytes(&bytes);
    if bytes.u32()? != LOCATOR64 {
        return if large { Err("it lacks the record of its size".to_owned()) } else { Ok(plain) };
    }
    let (disk, record, disks) = (bytes.u32()?, bytes.u64()?, bytes.u32()?);
    if disk != 0 || disks != 1 || record.checked_add(56) != Some(locator) {
        return Err("its second end record is misplaced".to_owned());
    }
    let bytes = read_at(file, record, 56)?;
    let mut bytes = Bytes(&bytes);
    let (signature, left) = (bytes.u32()?, bytes.u64()?);
    bytes.take(4)?;
    let (disk, first, on_disk, count) = (bytes.u32()?, bytes.u32()?, bytes.u64()?, bytes.u64()?);
    let (size, at) = (bytes.u64()?, bytes.u64()?);
    if signature != END64 || left != 44 || (disk, first) != (0, 0) || on_disk != count {
        return Err("its second end record is broken".to_owned());
    }
    let agrees = |small: u64, large: u64, most: u64| small == most || small == large;
    if !agrees(plain.count, count, 0xffff)
        || !agrees(plain.size, size, 0xffff_ffff)
        || !agrees(plain.at, at, 0xffff_ffff)
    {
        return Err("its two end records disagree".to_owned());
    }
    Ok(Directory { at, size, count, end: record })
}

/// One record of the directory.
fn central(bytes: &mut Bytes<'_>) -> Result<(String, ArchiveEntry), String> {
    if bytes.u32()? != CENTRAL {
        return Err("its directory is broken".to_owned());
    }
    bytes.take(4)?;
    let (flags, method) = (bytes.u16()?, bytes.u16()?);
    bytes.take(4)?;
    let (crc, packed, size) = (bytes.u32()?, bytes.u32()?, bytes.u32()?);
    let (name, extra, comment) = (bytes.u16()?, bytes.u16()?, bytes.u16()?);
    let disk = bytes.u16()?;
    bytes.take(6)?;
    let header = bytes.u32()?;
    let name = bytes.take(usize::from(name))?;
    let name =
        String::from_utf8(name.to_vec()).map_err(|_| "a name in it is not UTF-8".to_owned())?;
    let large = zip64(bytes.take(usize::from(extra))?)?;
    bytes.take(usize::from(comment))?;
    if flags & !KNOWN_FLAGS != 0 || disk != 0 {
        return Err(format!("{name:?} is encrypted, in another part, or of an unknown kind"));
    }
    if method != 0 {
        return Err(format!(
            "{name:?} is compressed (method {method}), but torch does not compress"
        ));
    }
    let mut large = Bytes(large);
    let mut wide = |small: u32| if small == u32::MAX { large.u64() } else { Ok(u64::from(small)) };
    let (size, packed, header) = (wide(size)?, wide(packed)?, wide(header)?);
    if size != packed {
        return Err(format!("{name:?} has {packed} bytes but claims {size}"));
    }
    Ok((name, ArchiveEntry { header, at: 0, size, crc, used: Cell::new(false) }))
}

/// The extra field for large sizes.
fn zip64(extra: &[u8]) -> Result<&[u8], String> {
    let mut bytes = Bytes(extra);
    while !bytes.0.is_empty() {
        let (kind, size) = (bytes.u16()?, bytes.u16()?);
        let field = bytes.take(usize::from(size))?;
        if kind == 1 {
            return Ok(field);
        }
    }
    Ok(&[])
}

/// The folder and the rest of a name that does not leave its folder.
fn checked_name(name: &str) -> Result<(String, String), String> {
    let parts: Vec<&str> = name.split('/').collect();
    let bad = |part: &&str| part.is_empty() || *part == "." || *part == "..";
    let odd =
        name.len() > MAX_NAME || name.contains(['\\', ':']) || name.chars().any(char::is_control);
    if odd || parts.iter().any(bad) || parts.len() < 2 {
        return Err(format!("{name:?} is not a name that torch.save uses"));
    }
    let (folder, rest) = name.split_once('/').unwrap_or((name, ""));
    Ok((folder.to_owned(), rest.to_owned()))
}

/// Checks an entry's local header against the directory, and finds where its content begins.
fn local(file: &CheckedFile, name: &str, entry: &mut ArchiveEntry) -> Result<(), String> {
    let bytes = read_at(file, entry.header, 30)?;
    let mut bytes = Bytes(&bytes);
    let differs = |what: &str| format!("{name:?}: its header and the directory differ in {what}");
    if bytes.u32()? != LOCAL {
        return Err(format!("{name:?} is not where the directory says"));
    }
    bytes.take(2)?;
    let (flags, method) = (bytes.u16()?, bytes.u16()?);
    bytes.take(4)?;
    let (crc, packed, size) = (bytes.u32()?, bytes.u32()?, bytes.u32()?);
    let (name_bytes, extra) = (u64::from(bytes.u16()?), u64::from(bytes.u16()?));
    if method != 0 || flags & !KNOWN_FLAGS != 0 {
        return Err(differs("how it is stored"));
    }
    let rest = read_at(file, entry.header + 30, name_bytes + extra)?;
    let (name_in_header, extra_bytes) = rest.split_at(name_bytes as usize);
    if name_in_header != name.as_bytes() {
        return Err(differs("the name"));
    }
    // If sizes follow the data, the header has zeros; large sizes are in an extra field.
    let later = flags & FOLLOWS != 0 && (crc, packed, size) == (0, 0, 0);
    if !later {
        let mut large = Bytes(zip64(extra_bytes)?);
        let mut wide =
            |small: u32| if small == u32::MAX { large.u64() } else { Ok(u64::from(small)) };
        let (size, packed) = (wide(size)?, wide(packed)?);
        if (size, packed, crc) != (entry.size, entry.size, entry.crc) {
            return Err(differs("size or checksum"));
        }
    }
    entry.at = entry.header + 30 + name_bytes + extra;
    Ok(())
}
