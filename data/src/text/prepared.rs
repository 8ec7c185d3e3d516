//! Reads a prepared file of version 2, a part at a time.
//!
//! A byte is used only after this very read passed its block's digest. The list of those digests was read once, has its
//! own digest, and decides the identity that a lock binds. Every returned id is one of the tokenizer's. Memory holds a
//! few bytes per piece, neither tokens nor documents' ends; sizes in a damaged file never decide an allocation.
//!
//! The file: magic; tokens of all documents, 1, 2 or 4 bytes each; each document's end and the digest of its bytes;
//! digests of blocks of all that; a manifest in TOML; the offsets of these parts, and the digest of the last three.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use dsl::Problem;
use serde::{Deserialize, Serialize};

use disk::checked::{CheckedFile, ReadBuffer, ReadFault, read_at};

use super::identity;
use super::layout::{BLOCK, ENTRY, START, SourceRange, documents_hasher, width};
use super::lines::LineCounts;
use super::tokenizer::{Info, Kind};

/// Bytes of three offsets and a digest.
const TRAILER: u64 = 24 + 32;

/// The manifest of a prepared file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the file format.
    pub version: u32,
    /// The identity of the documents, for any tokenizer.
    pub identity: String,
    /// Number of documents in all sources.
    pub documents: u64,
    /// Number of tokens in all documents, without marks.
    pub tokens: u64,
    /// The tokenizer that made the tokens.
    pub tokenizer: TokenizerEntry,
    /// The sources, in the order of their documents.
    #[serde(rename = "source")]
    pub sources: Vec<SourceEntry>,
}

/// Facts about a tokenizer in the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerEntry {
    /// Its kind, by the name that recipes use.
    pub kind: String,
    /// Digest of everything that decides an id, in hexadecimal.
    pub digest: String,
    /// Number of token ids, including special ones.
    pub vocab: u32,
    /// The token before a document.
    pub bos: Option<u32>,
    /// The token after a document.
    pub eos: Option<u32>,
}

/// Counts for one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceEntry {
    /// The source's name.
    pub name: String,
    /// Number of its documents.
    pub documents: u64,
    /// Number of its tokens, without marks.
    pub tokens: u64,
    /// Its files, in reading order.
    #[serde(rename = "file")]
    pub files: Vec<FileEntry>,
}

/// Counts for one file, with every line accounted for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Name of the file, as given.
    pub name: String,
    /// Lines of a text file, rows of a table.
    pub lines: u64,
    /// Documents read, without empty ones.
    pub documents: u64,
    /// Bytes of the documents in UTF-8.
    pub bytes: u64,
    /// Lines of white space.
    pub blank: u64,
    /// Lines with malformed JSON or without text.
    pub malformed: u64,
    /// Documents of zero bytes.
    pub empty: u64,
}

impl FileEntry {
    pub(super) fn from_report(name: &str, report: &LineCounts) -> FileEntry {
        let LineCounts { lines, documents, bytes, blank, malformed, empty, first_bad: _ } = report;
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

    pub(super) fn report(&self) -> LineCounts {
        let FileEntry { name: _, lines, documents, bytes, blank, malformed, empty } = self;
        LineCounts {
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
    pub(super) fn from_info(info: &Info) -> TokenizerEntry {
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

/// The digest over the data that lists all other digests.
pub(super) fn trailer_digest(blocks: &[u8], manifest: &[u8], offsets: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_derive_key("canonc 1 data text prepared");
    hasher.update(blocks).update(manifest).update(offsets).finalize()
}

/// An open file. Every read checks its bytes.
#[derive(Debug)]
pub(super) struct Prepared {
    file: CheckedFile,
    path: PathBuf,
    width: u64,
    vocab: u32,
    documents_at: u64,
    manifest: Manifest,
}

/// A prepared file that was opened, and what it says of its documents.
pub(super) struct Opened {
    pub(super) sources: Vec<SourceRange>,
    pub(super) identity: blake3::Hash,
    /// The digest of the documents alone, for any tokenizer.
    pub(super) documents_digest: blake3::Hash,
    pub(super) tokenizer: Info,
    pub(super) prepared: Prepared,
}

/// The parts at the end of a file, which are in no block: they are read once, so the digested bytes are the ones used.
struct Tail {
    documents_at: u64,
    blocks_at: u64,
    /// The digests of all blocks.
    blocks: Vec<u8>,
    manifest: Vec<u8>,
}

impl Tail {
    fn read(file: &File, path: &Path) -> Result<Tail, Problem> {
        let damaged = |how: &str| damaged(path, how);
        let length = file.metadata().map_err(|error| unreadable(path, &error))?.len();
        let Some(trailer_at) = length.checked_sub(TRAILER).filter(|at| *at >= START.len() as u64)
        else {
            return Err(damaged("it ends too early"));
        };
        let read = |range: Range<u64>| -> Result<Vec<u8>, Problem> {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            read_at(file, &mut bytes, range.start).map_err(|error| unreadable(path, &error))?;
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
        // This holds names of files and sources. A file with a longer list was damaged or forged.
        if trailer_at.saturating_sub(manifest_at) > disk::SMALL {
            return Err(damaged("its manifest is too large"));
        }
        if !ordered
            || listed != blocks_at.div_ceil(BLOCK) * 32
            || !(blocks_at - documents_at).is_multiple_of(ENTRY)
        {
            return Err(damaged("its parts are not contiguous"));
        }
        let (blocks, manifest) = (read(blocks_at..manifest_at)?, read(manifest_at..trailer_at)?);
        if written != trailer_digest(&blocks, &manifest, offsets).as_bytes() {
            return Err(damaged("the digest at its end does not match its list of digests"));
        }
        Ok(Tail { documents_at, blocks_at, blocks, manifest })
    }
}

/// The documents of each source of a manifest.
fn source_ranges(manifest: &Manifest, path: &Path) -> Result<Vec<SourceRange>, Problem> {
    let mut sources = Vec::new();
    let mut start = 0u32;
    for SourceEntry { name, documents, tokens: _, files: _ } in &manifest.sources {
        let end = u32::try_from(*documents).ok().and_then(|count| start.checked_add(count));
        let end = end.ok_or_else(|| damaged(path, "it has too many documents"))?;
        if name.chars().any(char::is_control) {
            return Err(damaged(path, "the name of a source has a control character"));
        }
        sources.push(SourceRange { name: name.clone(), documents: start..end });
        start = end;
    }
    Ok(sources)
}

/// Opens a file that begins like one of version 2.
pub(super) fn open(file: File, path: &Path) -> Result<Opened, Problem> {
    let damaged = |how: &str| damaged(path, how);
    let Tail { documents_at, blocks_at, blocks, manifest } = Tail::read(&file, path)?;
    let text = std::str::from_utf8(&manifest).map_err(|_| damaged("its manifest is not text"))?;
    let manifest: Manifest = toml::from_str(text)
        .map_err(|error| damaged(&format!("its manifest: {}", error.message())))?;
    let info = manifest.tokenizer.info().ok_or_else(|| damaged("its tokenizer is unknown"))?;
    let documents = blake3::Hash::from_hex(&manifest.identity)
        .map_err(|_| damaged("the digest of its documents is malformed"))?;
    let counts = manifest.sources.iter().map(|source| source.documents);
    let identity = identity::of_blocks(&info, counts, manifest.tokens, &blocks);
    let sources = source_ranges(&manifest, path)?;
    let blocks: Vec<blake3::Hash> =
        blocks.as_chunks::<32>().0.iter().map(|bytes| blake3::Hash::from_bytes(*bytes)).collect();
    let prepared = Prepared {
        file: CheckedFile::new(file, blocks_at, blocks),
        width: width(&info),
        vocab: info.vocab,
        documents_at,
        path: path.to_owned(),
        manifest,
    };
    let (count, total, computed) = prepared.documents()?;
    if sources.last().map_or(0, |source| u64::from(source.documents.end)) != count
        || total != prepared.manifest.tokens
        || prepared.tokens_at(total) != documents_at
    {
        return Err(damaged("its manifest has wrong counts"));
    }
    if computed != documents {
        return Err(damaged("its identity does not match its documents"));
    }
    Ok(Opened { sources, identity, documents_digest: documents, tokenizer: info, prepared })
}

impl Prepared {
    pub(super) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn tokens_at(&self, token: u64) -> u64 {
        (START.len() as u64).saturating_add(token.saturating_mul(self.width))
    }

    /// Appends tokens by their range among all tokens.
    pub(super) fn tokens(
        &self,
        range: Range<u64>,
        scratch: &mut ReadBuffer,
        out: &mut Vec<u32>,
    ) -> Result<(), Problem> {
        let before = out.len();
        let bytes = self.bytes(self.tokens_at(range.start)..self.tokens_at(range.end), scratch)?;
        match self.width {
            1 => out.extend(bytes.iter().map(|byte| u32::from(*byte))),
            2 => out.extend(
                bytes.as_chunks::<2>().0.iter().map(|id| u32::from(u16::from_le_bytes(*id))),
            ),
            _ => out.extend(bytes.as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id))),
        }
        // A model has no row for such a token.
        let read = out.iter().skip(before).copied();
        match (range.start..).zip(read).find(|(_, id)| *id >= self.vocab) {
            None => Ok(()),
            Some((position, id)) => {
                let vocab = self.vocab;
                Err(damaged(
                    &self.path,
                    &format!(
                        "its token {position} has id {id}, but its tokenizer has ids below {vocab}"
                    ),
                ))
            }
        }
    }

    /// Returns the digest of each document's bytes.
    pub(super) fn digests(
        &self,
        documents: Range<u32>,
        to: &mut dyn FnMut(u32, &blake3::Hash),
    ) -> Result<(), Problem> {
        self.entries(u64::from(documents.start)..u64::from(documents.end), |number, _, digest| {
            to(u32::try_from(number).unwrap_or(u32::MAX), &blake3::Hash::from_bytes(*digest));
        })
    }

    /// Checks every block and every token's id; where the tokens are the documents' bytes, also every document against
    /// its digest. For other tokenizers, only preparing the documents again shows whether the tokens are right.
    pub(super) fn check(&self) -> Result<(), Problem> {
        let mut scratch = ReadBuffer::default();
        for block in self.file.blocks() {
            self.bytes(block, &mut scratch)?;
        }
        let mut ids = Vec::new();
        let (together, all) = (BLOCK / self.width, self.manifest.tokens);
        for start in (0..all).step_by(together as usize) {
            ids.clear();
            self.tokens(start..all.min(start + together), &mut scratch, &mut ids)?;
        }
        if self.manifest.tokenizer.kind != Kind::Bytes.name() {
            return Ok(());
        }
        let (mut start, mut wrong) = (0, Ok(()));
        self.entries(0..self.manifest.documents, |number, end, digest| {
            if wrong.is_ok() {
                wrong = self.check_document(number, start..end, digest, &mut scratch);
            }
            start = end;
        })?;
        wrong
    }

    fn check_document(
        &self,
        number: u64,
        bytes: Range<u64>,
        digest: &[u8; 32],
        scratch: &mut ReadBuffer,
    ) -> Result<(), Problem> {
        let mut hasher = blake3::Hasher::new();
        let Range { start, end } = self.tokens_at(bytes.start)..self.tokens_at(bytes.end);
        for part in (start..end).step_by(BLOCK as usize) {
            hasher.update(self.bytes(part..end.min(part + BLOCK), scratch)?);
        }
        if hasher.finalize() == *digest {
            return Ok(());
        }
        Err(damaged(&self.path, &format!("document {number} does not match its digest")))
    }

    /// The number of documents and of their tokens, and the identity of all documents.
    fn documents(&self) -> Result<(u64, u64, blake3::Hash), Problem> {
        let count = (self.file.covered() - self.documents_at) / ENTRY;
        let (mut last, mut ordered) = (0, true);
        let mut identity = documents_hasher();
        let mut sources = self.manifest.sources.iter().map(|source| source.documents);
        // Documents of the source still to come.
        let mut left = 0;
        self.entries(0..count, |_, end, digest| {
            while left == 0
                && let Some(documents) = sources.next()
            {
                identity.update(&documents.to_le_bytes());
                left = documents;
            }
            left = left.saturating_sub(1);
            identity.update(digest);
            ordered &= last <= end;
            last = end;
        })?;
        if !ordered {
            return Err(damaged(&self.path, "its documents overlap"));
        }
        for documents in sources {
            identity.update(&documents.to_le_bytes());
        }
        Ok((count, last, identity.finalize()))
    }

    /// Range of a document's tokens among all tokens.
    pub(super) fn token_range(
        &self,
        document: u64,
        scratch: &mut ReadBuffer,
    ) -> Result<Range<u64>, Problem> {
        let first = document.saturating_sub(1);
        let at = |document: u64| self.documents_at + document * ENTRY;
        let bytes = self.bytes(at(first)..at(document + 1), scratch)?;
        let mut ends = bytes.as_chunks::<{ ENTRY as usize }>().0.iter().map(|entry| {
            let (end, _digest) = entry.split_at(8);
            number(end)
        });
        let before = if document == 0 { 0 } else { ends.next().unwrap_or(0) };
        Ok(before..ends.next().unwrap_or(before))
    }

    /// Appends where each of these documents ends, in tokens.
    pub(super) fn ends(
        &self,
        documents: Range<u64>,
        scratch: &mut ReadBuffer,
        out: &mut Vec<u64>,
    ) -> Result<(), Problem> {
        let at = |document: u64| self.documents_at + document * ENTRY;
        let bytes = self.bytes(at(documents.start)..at(documents.end), scratch)?;
        out.extend(bytes.as_chunks::<{ ENTRY as usize }>().0.iter().map(|entry| {
            let (end, _digest) = entry.split_at(8);
            number(end)
        }));
        Ok(())
    }

    /// Bytes in memory to check what is read.
    pub(super) fn memory(&self) -> u64 {
        self.file.memory()
    }

    /// Calls back with the number, end and digest of each document.
    fn entries(
        &self,
        documents: Range<u64>,
        mut to: impl FnMut(u64, u64, &[u8; 32]),
    ) -> Result<(), Problem> {
        const TOGETHER: u64 = 4096;
        let mut scratch = ReadBuffer::default();
        let mut number_of = documents.start;
        while number_of < documents.end {
            let end = documents.end.min(number_of + TOGETHER);
            let at = |document: u64| self.documents_at + document * ENTRY;
            let bytes = self.bytes(at(number_of)..at(end), &mut scratch)?;
            for entry in bytes.as_chunks::<{ ENTRY as usize }>().0 {
                let (end_bytes, digest) = entry.split_at(8);
                if let Ok(digest) = digest.try_into() {
                    to(number_of, number(end_bytes), digest);
                }
                number_of += 1;
            }
        }
        Ok(())
    }

    fn bytes<'b>(
        &self,
        range: Range<u64>,
        scratch: &'b mut ReadBuffer,
    ) -> Result<&'b [u8], Problem> {
        self.file.read(range, scratch).map_err(|fault| match &fault {
            ReadFault::Changed { .. } | ReadFault::Cut { .. } | ReadFault::Outside { .. } => {
                damaged(&self.path, &fault.to_string())
            }
            ReadFault::Io { error, .. } => disk::cannot_read(
                error,
                format!("cannot read {}: {fault}", self.path.display()),
                "check its disk, and repeat",
            ),
        })
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

fn damaged(path: &Path, how: &str) -> Problem {
    Problem::input(
        format!("{} is damaged: {how}", path.display()),
        "prepare it again with `canonc data prepare`, or restore the file",
    )
}

pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Problem {
    disk::cannot_read(
        error,
        format!("cannot read {}: {error}", path.display()),
        "make it with `canonc data prepare`",
    )
}
