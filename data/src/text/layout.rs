//! What a prepared file and documents in memory have in common: sizes that identities depend on, sources, one digest.

use std::ops::Range;

use super::tokenizer::{Info, Kind};

/// Bytes per digest.
pub(super) use disk::checked::BLOCK;

/// The header before the tokens. Its length makes them start at an even offset.
pub(super) const START: &[u8; 16] = b"canonc text 2\n\0\0";
/// Bytes per document: its end, in tokens, and the digest of its bytes.
pub(super) const ENTRY: u64 = 40;

/// A named range of documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRange {
    /// The source's name.
    pub name: String,
    /// Numbers of its documents.
    pub documents: Range<u32>,
}

/// Bytes per token in the file.
pub(super) fn width(info: &Info) -> u64 {
    match (info.kind, info.vocab) {
        (Kind::Bytes, _) => 1,
        (Kind::File(_), 0..=0x1_0000) => 2,
        (Kind::File(_), _) => 4,
    }
}

/// Hashes each source's number of documents and their digests.
pub(super) fn documents_hasher() -> blake3::Hasher {
    blake3::Hasher::new_derive_key("canonc 1 data text")
}
