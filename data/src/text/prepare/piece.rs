//! A piece of input after its tokenization, and where in the input it ends.

use super::super::lines::LineCounts;
use super::super::losses::Losses;
use super::input::RecordPosition;
use super::{Input, SourceInput};

/// A file of the request by number, and a position in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputPosition {
    pub(super) file: usize,
    pub(super) place: RecordPosition,
}

/// The result for a piece.
pub(super) struct TokenizedPiece {
    pub(super) after: InputPosition,
    /// Tokens of its documents, in the format of a prepared file.
    pub(super) tokens: Vec<u8>,
    /// Number of tokens in each document, and the digest of its bytes.
    pub(super) documents: Vec<(u64, blake3::Hash)>,
    pub(super) report: LineCounts,
    pub(super) losses: Losses,
    pub(super) weight: usize,
    /// Bytes of the file read so far.
    pub(super) read: u64,
}

/// The files of all sources, in order.
pub(super) fn inputs(sources: &[SourceInput]) -> Vec<&Input> {
    sources.iter().flat_map(|source| &source.files).collect()
}
