//! The identity of prepared data, which a lock binds.
//!
//! It covers every token, each document's end, the digest of each document's bytes, and every fact of the tokenizer,
//! and depends on nothing else, such as file names. It follows from the list of digests that check every read, so
//! tokens that a lock does not name are never returned.

use super::layout::{BLOCK, ENTRY, START, width};
use super::tokenizer::Info;

/// Digests of the blocks of a sequence of bytes.
#[derive(Default)]
pub(super) struct Blocks {
    hasher: blake3::Hasher,
    filled: u64,
    pub(super) length: u64,
    digests: Vec<u8>,
}

impl Blocks {
    pub(super) fn note(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = (BLOCK - self.filled).min(bytes.len() as u64) as usize;
            let (now, rest) = bytes.split_at(room);
            self.hasher.update(now);
            self.filled += room as u64;
            if self.filled == BLOCK {
                self.digests.extend_from_slice(self.hasher.finalize().as_bytes());
                self.hasher.reset();
                self.filled = 0;
            }
            bytes = rest;
        }
    }

    /// The digest over all blocks so far, including the unfinished one.
    pub(super) fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.digests).update(self.hasher.finalize().as_bytes());
        hasher.finalize().to_hex().to_string()
    }

    /// All block digests, including that of the shorter last block.
    pub(super) fn all(&self) -> Vec<u8> {
        let mut digests = self.digests.clone();
        if self.filled > 0 {
            digests.extend_from_slice(self.hasher.finalize().as_bytes());
        }
        digests
    }
}

/// The identity of documents by source, with that many tokens and these block digests.
pub(super) fn of_blocks(
    info: &Info,
    documents: impl Iterator<Item = u64>,
    tokens: u64,
    blocks: &[u8],
) -> blake3::Hash {
    let Info { kind, digest, vocab, bos, eos } = info;
    let id = |id: &Option<u32>| id.map_or("none".to_owned(), |id| id.to_string());
    let mut text = format!(
        "tokenizer {kind} {}\nvocab {vocab}\nbos {}\neos {}\nwidth {}\ntokens {tokens}\n",
        digest.to_hex(),
        id(bos),
        id(eos),
        width(info),
    );
    for documents in documents {
        text += &format!("source {documents}\n");
    }
    let mut hasher = blake3::Hasher::new_derive_key("canonc 2 data text");
    hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes()).update(blocks);
    hasher.finalize()
}

/// The identity of documents in memory, with bytes as tokens. The same documents in a prepared file have the same one.
pub(super) fn of_bytes(
    documents: impl Iterator<Item = u64>,
    bytes: &[u8],
    ends: &[u64],
    digests: &[blake3::Hash],
) -> blake3::Hash {
    let mut blocks = Blocks::default();
    blocks.note(START);
    blocks.note(bytes);
    let mut entry = Vec::with_capacity(ENTRY as usize);
    for (end, digest) in ends.iter().zip(digests) {
        entry.clear();
        entry.extend(end.to_le_bytes());
        entry.extend(digest.as_bytes());
        blocks.note(&entry);
    }
    of_blocks(&Info::bytes(), documents, bytes.len() as u64, &blocks.all())
}
