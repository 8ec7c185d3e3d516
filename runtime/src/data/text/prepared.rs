//! In: the path of a prepared file of version 2. Out: its tokens and digests, read where they stand. Must stay true: a
//! byte is used only after the digest of its block has been found right, and what lists those digests only after its
//! own; memory is what documents' ends take, not tokens; sizes written in a damaged file never decide an allocation.
//!
//! The file: magic; tokens of all documents, 1, 2 or 4 bytes each; for each document where it ends and the digest of its
//! bytes; digests of blocks of all that; a manifest in TOML; where these begin, and the digest of the last three.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::data::DataError;

use super::index::{Source, TextIndex, identity_hasher};
use super::lines::Report;
use super::tokenizer::{Info, Kind};

/// What stands before the tokens, so that they begin at an even place.
pub(super) const START: &[u8; 16] = b"canonc text 2\n\0\0";
/// Bytes under one digest.
pub(super) const BLOCK: u64 = 1 << 18;
/// Of one document: where it ends, in tokens, and the digest of its bytes.
pub(super) const ENTRY: u64 = 40;
/// Three offsets and a digest.
const TRAILER: u64 = 24 + 32;

/// What a prepared file says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub version: u32,
    /// Of the documents, whatever made tokens of them.
    pub identity: String,
    pub documents: u64,
    pub tokens: u64,
    pub tokenizer: TokenizerEntry,
    #[serde(rename = "source")]
    pub sources: Vec<SourceEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerEntry {
    pub kind: String,
    pub digest: String,
    pub vocab: u32,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceEntry {
    pub name: String,
    pub documents: u64,
    pub tokens: u64,
    #[serde(rename = "file")]
    pub files: Vec<FileEntry>,
}

/// What a file gave, every line of it accounted for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    pub name: String,
    pub lines: u64,
    pub documents: u64,
    pub bytes: u64,
    pub blank: u64,
    pub malformed: u64,
    pub empty: u64,
}

impl FileEntry {
    pub(super) fn of(name: &str, report: &Report) -> FileEntry {
        let Report { lines, documents, bytes, blank, malformed, empty, first_bad: _ } = report;
        FileEntry {
            name: name.to_owned(),
            lines: *lines,
            documents: *documents,
            bytes: *bytes,
            blank: *blank,
            malformed: *malformed,
            empty: *empty,
        }
    }

    pub(super) fn report(&self) -> Report {
        let FileEntry { name: _, lines, documents, bytes, blank, malformed, empty } = self;
        Report {
            lines: *lines,
            documents: *documents,
            bytes: *bytes,
            blank: *blank,
            malformed: *malformed,
            empty: *empty,
            first_bad: Vec::new(),
        }
    }
}

impl TokenizerEntry {
    pub(super) fn of(info: &Info) -> TokenizerEntry {
        let Info { kind, digest, vocab, bos, eos } = info;
        TokenizerEntry {
            kind: kind.name().to_owned(),
            digest: digest.to_hex().to_string(),
            vocab: *vocab,
            bos: *bos,
            eos: *eos,
        }
    }

    fn info(&self) -> Option<Info> {
        let TokenizerEntry { kind, digest, vocab, bos, eos } = self;
        let kind = Kind::parse(kind)?;
        let digest = blake3::Hash::from_hex(digest).ok()?;
        let below = |id: &Option<u32>| id.is_none_or(|id| id < *vocab);
        (below(bos) && below(eos)).then_some(Info {
            kind,
            digest,
            vocab: *vocab,
            bos: *bos,
            eos: *eos,
        })
    }
}

/// Bytes of a token in the file.
pub(super) fn width(info: &Info) -> u64 {
    match (info.kind, info.vocab) {
        (Kind::Bytes, _) => 1,
        (Kind::Huggingface | Kind::Sentencepiece | Kind::Tiktoken, 0..=0x1_0000) => 2,
        (Kind::Huggingface | Kind::Sentencepiece | Kind::Tiktoken, _) => 4,
    }
}

/// The digest over what lists all other digests.
pub(super) fn trailer_digest(blocks: &[u8], manifest: &[u8], offsets: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_derive_key("canonc 1 data text prepared");
    hasher.update(blocks).update(manifest).update(offsets).finalize()
}

/// An open file whose blocks are checked as they are first touched.
#[derive(Debug)]
pub(super) struct Prepared {
    file: File,
    path: PathBuf,
    width: u64,
    documents_at: u64,
    /// Where what the blocks cover ends.
    covered: u64,
    blocks: Vec<blake3::Hash>,
    checked: Vec<AtomicBool>,
    manifest: Manifest,
}

/// Opens a file that begins as one of version 2 does.
pub(super) fn open(file: File, path: &Path) -> Result<TextIndex, DataError> {
    let damaged = |how: &str| damaged(path, how);
    let length = file.metadata().map_err(|error| unreadable(path, &error))?.len();
    let Some(trailer_at) = length.checked_sub(TRAILER).filter(|at| *at >= START.len() as u64)
    else {
        return Err(damaged("it ends too early"));
    };
    let read = |range: Range<u64>| -> Result<Vec<u8>, DataError> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        read_at(&file, &mut bytes, range.start).map_err(|error| unreadable(path, &error))?;
        Ok(bytes)
    };
    let trailer = read(trailer_at..length)?;
    let (offsets, written) = trailer.split_at(24);
    let offset = |at: usize| number(offsets.get(at..at + 8).unwrap_or_default());
    let (documents_at, blocks_at, manifest_at) = (offset(0), offset(8), offset(16));
    let ordered = (START.len() as u64) <= documents_at
        && documents_at <= blocks_at
        && blocks_at <= manifest_at
        && manifest_at <= trailer_at;
    let listed = manifest_at.saturating_sub(blocks_at);
    if !ordered
        || listed != blocks_at.div_ceil(BLOCK) * 32
        || !(blocks_at - documents_at).is_multiple_of(ENTRY)
    {
        return Err(damaged("its parts do not follow each other"));
    }
    let (blocks, manifest) = (read(blocks_at..manifest_at)?, read(manifest_at..trailer_at)?);
    if written != trailer_digest(&blocks, &manifest, offsets).as_bytes() {
        return Err(damaged("the digest at its end is not that of its list of digests"));
    }
    let text = std::str::from_utf8(&manifest).map_err(|_| damaged("its manifest is not text"))?;
    let manifest: Manifest = toml::from_str(text)
        .map_err(|error| damaged(&format!("its manifest: {}", error.message())))?;
    let info = manifest.tokenizer.info().ok_or_else(|| damaged("its tokenizer is unknown"))?;
    let identity = blake3::Hash::from_hex(&manifest.identity)
        .map_err(|_| damaged("its identity is no digest"))?;
    let mut sources = Vec::new();
    let mut start = 0u32;
    for SourceEntry { name, documents, tokens: _, files: _ } in &manifest.sources {
        let end = u32::try_from(*documents).ok().and_then(|count| start.checked_add(count));
        let end = end.ok_or_else(|| damaged("it has more documents than can be numbered"))?;
        sources.push(Source { name: name.clone(), documents: start..end });
        start = end;
    }
    let blocks: Vec<blake3::Hash> =
        blocks.as_chunks::<32>().0.iter().map(|bytes| blake3::Hash::from_bytes(*bytes)).collect();
    let prepared = Prepared {
        checked: blocks.iter().map(|_| AtomicBool::new(false)).collect(),
        blocks,
        width: width(&info),
        documents_at,
        covered: blocks_at,
        path: path.to_owned(),
        file,
        manifest,
    };
    let ends = prepared.ends()?;
    let total = ends.last().copied().unwrap_or(0);
    if u64::from(start) != ends.len() as u64
        || total != prepared.manifest.tokens
        || prepared.tokens_at(total) > documents_at
    {
        return Err(damaged("its manifest does not count what it holds"));
    }
    Ok(TextIndex::of_prepared(sources, ends, identity, info, prepared))
}

impl Prepared {
    pub(super) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn tokens_at(&self, token: u64) -> u64 {
        (START.len() as u64).saturating_add(token.saturating_mul(self.width))
    }

    /// Appends tokens by their place among all.
    pub(super) fn tokens(
        &self,
        range: Range<u64>,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u32>,
    ) -> Result<(), DataError> {
        self.bytes(self.tokens_at(range.start)..self.tokens_at(range.end), scratch)?;
        match self.width {
            1 => out.extend(scratch.iter().map(|byte| u32::from(*byte))),
            2 => out.extend(
                scratch.as_chunks::<2>().0.iter().map(|id| u32::from(u16::from_le_bytes(*id))),
            ),
            _ => out.extend(scratch.as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id))),
        }
        Ok(())
    }

    /// Gives the digest of each document's bytes.
    pub(super) fn digests(
        &self,
        documents: Range<u32>,
        to: &mut dyn FnMut(u32, &blake3::Hash),
    ) -> Result<(), DataError> {
        self.entries(u64::from(documents.start)..u64::from(documents.end), |number, _, digest| {
            to(u32::try_from(number).unwrap_or(u32::MAX), &blake3::Hash::from_bytes(*digest));
        })
    }

    /// Every block, and the identity of the documents.
    pub(super) fn check(&self) -> Result<(), DataError> {
        let mut scratch = Vec::new();
        for block in 0..self.blocks.len() {
            self.check_block(block, &mut scratch)?;
        }
        let mut identity = identity_hasher();
        let mut start = 0;
        for SourceEntry { documents, .. } in &self.manifest.sources {
            identity.update(&documents.to_le_bytes());
            self.entries(start..start + documents, |_, _, digest| {
                identity.update(digest);
            })?;
            start += documents;
        }
        if identity.finalize().to_hex().as_str() != self.manifest.identity {
            return Err(damaged(&self.path, "its identity is not that of its documents"));
        }
        Ok(())
    }

    fn ends(&self) -> Result<Vec<u64>, DataError> {
        let count = (self.covered - self.documents_at) / ENTRY;
        let mut ends = Vec::with_capacity(count as usize);
        let (mut last, mut ordered) = (0, true);
        self.entries(0..count, |_, end, _| {
            ordered &= last <= end;
            last = end;
            ends.push(end);
        })?;
        if !ordered {
            return Err(damaged(&self.path, "its documents overlap"));
        }
        Ok(ends)
    }

    /// Gives number, end and digest of each document.
    fn entries(
        &self,
        documents: Range<u64>,
        mut to: impl FnMut(u64, u64, &[u8; 32]),
    ) -> Result<(), DataError> {
        const TOGETHER: u64 = 4096;
        let mut scratch = Vec::new();
        let mut number_of = documents.start;
        while number_of < documents.end {
            let end = documents.end.min(number_of + TOGETHER);
            let at = |document: u64| self.documents_at + document * ENTRY;
            self.bytes(at(number_of)..at(end), &mut scratch)?;
            for entry in scratch.as_chunks::<{ ENTRY as usize }>().0 {
                let (place, digest) = entry.split_at(8);
                if let Ok(digest) = digest.try_into() {
                    to(number_of, number(place), digest);
                }
                number_of += 1;
            }
        }
        Ok(())
    }

    /// Reads bytes whose blocks have been found right.
    fn bytes(&self, range: Range<u64>, scratch: &mut Vec<u8>) -> Result<(), DataError> {
        if range.end > self.covered || range.start > range.end {
            return Err(damaged(&self.path, "a document lies outside of it"));
        }
        if range.start < range.end {
            for block in range.start / BLOCK..=(range.end - 1) / BLOCK {
                self.check_block(block as usize, scratch)?;
            }
        }
        scratch.resize((range.end - range.start) as usize, 0);
        read_at(&self.file, scratch, range.start).map_err(|error| unreadable(&self.path, &error))
    }

    fn check_block(&self, block: usize, scratch: &mut Vec<u8>) -> Result<(), DataError> {
        let (Some(checked), Some(digest)) = (self.checked.get(block), self.blocks.get(block))
        else {
            return Err(damaged(&self.path, "a block is not listed"));
        };
        if checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let start = block as u64 * BLOCK;
        scratch.resize((self.covered - start).min(BLOCK) as usize, 0);
        read_at(&self.file, scratch, start).map_err(|error| unreadable(&self.path, &error))?;
        if blake3::hash(scratch) != *digest {
            return Err(damaged(
                &self.path,
                &format!(
                    "bytes {start} to {} are not what was written",
                    start + scratch.len() as u64
                ),
            ));
        }
        checked.store(true, Ordering::Relaxed);
        Ok(())
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

fn damaged(path: &Path, how: &str) -> DataError {
    DataError::new(
        format!("{} is damaged: {how}", path.display()),
        "make it again with `canonc data prepare`, or restore the file",
    )
}

fn unreadable(path: &Path, error: &std::io::Error) -> DataError {
    DataError::new(
        format!("cannot read {}: {error}", path.display()),
        "make it with `canonc data prepare`",
    )
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

/// Other systems move the file's one place, so one reader has it at a time.
#[cfg(not(unix))]
fn read_at(mut file: &File, bytes: &mut [u8], at: u64) -> std::io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(bytes)
}
