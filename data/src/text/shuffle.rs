//! Maps a window's number to its cut of the document stream.
//!
//! Cut `c` of the stream is its tokens [c*S, c*S + S]. Consecutive cuts usually belong to one document, so a batch of
//! consecutive cuts is one part of a book.
//!
//! Each mapping is a bijection, computed for one number alone, so any window can be found without the others, and a
//! resumed or resharded run reads the same windows.

use std::ops::Range;

use lab::experiment::Shuffle;

use super::permutation::Permutation;
use crate::Split;

/// The order of a split. Lingua holds nothing out; we measure on all of the held-out documents.
///
/// `Windows` permutes all cuts of one pass over the documents. `Documents` keeps stream order: the documents of a pass
/// in a permuted order, the cuts of each document together. `Buffer` is Lingua's order: documents in the order of their
/// files, with blocks of this many consecutive cuts permuted. Lingua fills its buffer, shuffles it, and refills it
/// while emptying it, so between two shuffles exactly its content comes out. The permutations are ours; Lingua's are
/// numpy's.
pub(super) fn of_split(order: Shuffle, split: Split) -> Shuffle {
    match (order, split) {
        (Shuffle::Buffer { .. }, Split::HeldOut) => Shuffle::Windows,
        (order, _) => order,
    }
}

/// The cuts that begin in a range of the stream.
pub(super) fn cuts_of(part: Range<u64>, seq_len: u64) -> Range<u64> {
    part.start.div_ceil(seq_len)..part.end.div_ceil(seq_len)
}

/// The cut for window `number`, permuted within the epoch's `cuts`. Other numbers are unchanged.
pub(super) fn in_epoch(number: u64, cuts: Range<u64>, key: &blake3::Hash) -> u64 {
    let count = cuts.end.saturating_sub(cuts.start);
    if !cuts.contains(&number) {
        return number;
    }
    cuts.start + Permutation::new(count, key).at(number - cuts.start)
}

/// The cut for window `number` when each block of `windows` windows is shuffled.
pub(super) fn in_buffer(number: u64, windows: u64, key: impl Fn(&str) -> blake3::Hash) -> u64 {
    let windows = windows.max(1);
    let (full, position) = (number / windows, number % windows);
    full * windows + Permutation::new(windows, &key(&format!("buffer {full}\n"))).at(position)
}
