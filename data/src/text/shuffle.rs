//! In: a window's number, the windows that are shuffled together, a key. Out: the cut of the stream of documents that
//! the window is. Must stay true: each is a bijection, computed for one number alone, so that any window is found
//! without the others and a run that is resumed or resharded reads the same windows.
//!
//! Cut `c` of the stream is its tokens [c*S, c*S + S]. Consecutive cuts are neighbours of one document, so a batch of
//! consecutive cuts is a part of one book.

use std::ops::Range;

use super::order::Permutation;
use crate::Split;

/// In which order the cuts of the stream are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// All cuts of one pass over the documents, permuted.
    Windows,
    /// As they come: the documents of a pass in an order of its own, the cuts of each document together.
    Documents,
    /// Lingua's: documents in the order of their files, and so many consecutive cuts permuted at a time. Its buffer is
    /// filled, shuffled, and filled again while it is emptied, so what leaves it between two shuffles is exactly what
    /// was in it. The permutations are ours; its own are numpy's.
    Buffer { windows: u64 },
}

impl Shuffle {
    /// Lingua holds nothing out: what is measured is drawn from all of the held-out documents.
    pub(super) fn of_split(self, split: Split) -> Shuffle {
        match (self, split) {
            (Shuffle::Buffer { .. }, Split::HeldOut) => Shuffle::Windows,
            (order, _) => order,
        }
    }
}

/// The cuts that begin in a part of the stream.
pub(super) fn cuts_of(part: Range<u64>, seq_len: u64) -> Range<u64> {
    part.start.div_ceil(seq_len)..part.end.div_ceil(seq_len)
}

/// The cut that is window `number`, which is one of the epoch's, as its cuts are.
pub(super) fn in_epoch(number: u64, cuts: Range<u64>, key: &blake3::Hash) -> u64 {
    let count = cuts.end.saturating_sub(cuts.start);
    if !cuts.contains(&number) {
        return number;
    }
    cuts.start + Permutation::new(count, key).at(number - cuts.start)
}

/// The cut that is window `number` where `windows` of them are shuffled together.
pub(super) fn in_buffer(number: u64, windows: u64, key: impl Fn(&str) -> blake3::Hash) -> u64 {
    let windows = windows.max(1);
    let (full, place) = (number / windows, number % windows);
    full * windows + Permutation::new(windows, &key(&format!("buffer {full}\n"))).at(place)
}
