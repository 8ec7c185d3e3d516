//! A model of PyTorch's caching GPU allocator: the bytes that it reserves for a sequence of allocations and releases.
//!
//! The rules are those of libtorch 2.11 with default settings and one stream: sizes are multiples of 512 bytes; up to
//! 1 MiB comes from segments of 2 MiB, less than 10 MiB from segments of 20 MiB, more from a segment of its own, a
//! multiple of 2 MiB; the smallest free block that is large enough is taken, the lowest address among equals, and
//! split; neighbours merge when they are released; a segment is kept.
//!
//! ```
//! use gpu::Allocator;
//!
//! let mut allocator = Allocator::default();
//! let small = allocator.allocate(1000);
//! assert_eq!(allocator.reserved(), 2 << 20);
//! allocator.release(small);
//! let _again = allocator.allocate(1 << 20);
//! assert_eq!(allocator.reserved(), 2 << 20);
//! let _large = allocator.allocate(11 << 20);
//! assert_eq!(allocator.reserved(), (2 << 20) + (12 << 20));
//! ```

use std::collections::{BTreeMap, BTreeSet};

const UNIT: u64 = 512;
const MIB: u64 = 1 << 20;
/// The largest allocation that comes from a small segment.
const SMALL: u64 = MIB;
const SMALL_SEGMENT: u64 = 2 * MIB;
/// Allocations from here on have a segment of their own.
const LARGE: u64 = 10 * MIB;
const LARGE_SEGMENT: u64 = 20 * MIB;
const ROUNDED: u64 = 2 * MIB;

/// A model of the allocator.
#[derive(Clone, Debug, Default)]
pub struct Allocator {
    /// Every block by address.
    blocks: BTreeMap<u64, Block>,
    /// Free blocks by size, then address, of each pool.
    free: [BTreeSet<(u64, u64)>; 2],
    reserved: u64,
    used: u64,
    most_used: u64,
    /// Where the next segment begins. Segments are apart, so that blocks of two never merge.
    next: u64,
}

/// A block that is in use.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "it is in use until it is released"]
pub struct Held(u64);

#[derive(Clone, Copy, Debug)]
struct Block {
    size: u64,
    segment: u64,
    pool: Pool,
    free: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pool {
    Small,
    Large,
}

impl Pool {
    fn index(self) -> usize {
        match self {
            Pool::Small => 0,
            Pool::Large => 1,
        }
    }

    /// Whether the rest of a block is large enough to become a block of its own.
    fn splits(self, rest: u64) -> bool {
        match self {
            Pool::Small => rest >= UNIT,
            Pool::Large => rest > SMALL,
        }
    }
}

impl Allocator {
    /// Allocates a block of at least this many bytes.
    pub fn allocate(&mut self, bytes: u64) -> Held {
        let size = bytes.max(1).next_multiple_of(UNIT);
        let pool = if size <= SMALL { Pool::Small } else { Pool::Large };
        let fits = self.free[pool.index()].range((size, 0)..).next().copied();
        let (available, at) = fits.unwrap_or_else(|| self.reserve(size, pool));
        self.free[pool.index()].remove(&(available, at));
        let segment = self.blocks.get(&at).map_or(at, |block| block.segment);
        let rest = available - size;
        let taken = if pool.splits(rest) {
            let block = Block { size: rest, segment, pool, free: true };
            self.blocks.insert(at + size, block);
            self.free[pool.index()].insert((rest, at + size));
            size
        } else {
            available
        };
        self.blocks.insert(at, Block { size: taken, segment, pool, free: false });
        self.used += taken;
        self.most_used = self.most_used.max(self.used);
        Held(at)
    }

    /// A new segment as one free block.
    fn reserve(&mut self, size: u64, pool: Pool) -> (u64, u64) {
        let bytes = match pool {
            Pool::Small => SMALL_SEGMENT,
            Pool::Large if size < LARGE => LARGE_SEGMENT,
            Pool::Large => size.next_multiple_of(ROUNDED),
        };
        let at = self.next;
        self.next += bytes + ROUNDED;
        self.reserved += bytes;
        self.blocks.insert(at, Block { size: bytes, segment: at, pool, free: true });
        (bytes, at)
    }

    /// Releases a block.
    pub fn release(&mut self, held: Held) {
        let Held(mut at) = held;
        let Some(mut block) = self.blocks.remove(&at) else { return };
        self.used -= block.size;
        let joins = |other: &Block| other.free && other.segment == block.segment;
        let after = self.blocks.get(&(at + block.size)).copied().filter(joins);
        let before = self.blocks.range(..at).next_back().map(|(at, block)| (*at, *block));
        let before = before.filter(|(_, other)| joins(other));
        if let Some(after) = after {
            self.blocks.remove(&(at + block.size));
            self.free[block.pool.index()].remove(&(after.size, at + block.size));
            block.size += after.size;
        }
        if let Some((start, before)) = before {
            self.free[block.pool.index()].remove(&(before.size, start));
            block.size += before.size;
            at = start;
        }
        block.free = true;
        self.blocks.insert(at, block);
        self.free[block.pool.index()].insert((block.size, at));
    }

    /// Bytes of all segments.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// The most bytes of blocks in use at once.
    pub fn most_used(&self) -> u64 {
        self.most_used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_segments_equal_libtorchs() {
        for (bytes, segment) in [
            (0, SMALL_SEGMENT),
            (1, SMALL_SEGMENT),
            (MIB, SMALL_SEGMENT),
            (MIB + 1, LARGE_SEGMENT),
            (10 * MIB - UNIT, LARGE_SEGMENT),
            (10 * MIB, 10 * MIB),
            (10 * MIB + 1, 12 * MIB),
            (1 << 30, 1 << 30),
        ] {
            let mut allocator = Allocator::default();
            let _held = allocator.allocate(bytes);
            assert_eq!(allocator.reserved(), segment, "{bytes}");
        }
    }

    #[test]
    fn a_small_segment_holds_as_many_as_fit() {
        let mut allocator = Allocator::default();
        // 4,096 units in a segment.
        let held: Vec<Held> = (0..4096).map(|_| allocator.allocate(100)).collect();
        assert_eq!(allocator.reserved(), SMALL_SEGMENT);
        let more = allocator.allocate(100);
        assert_eq!((allocator.reserved(), allocator.most_used()), (2 * SMALL_SEGMENT, 4097 * UNIT));
        held.into_iter().chain([more]).for_each(|held| allocator.release(held));
        // Everything has merged again.
        let halves: Vec<Held> = (0..4).map(|_| allocator.allocate(MIB)).collect();
        assert_eq!((allocator.reserved(), halves.len()), (2 * SMALL_SEGMENT, 4));
    }

    #[test]
    fn the_best_fit_is_taken_and_split_if_the_rest_is_large() {
        let mut allocator = Allocator::default();
        let (a, b) = (allocator.allocate(30 * MIB), allocator.allocate(20 * MIB));
        allocator.release(a);
        allocator.release(b);
        // From the segment of 20. A rest of exactly 1 MiB is not split off.
        let c = allocator.allocate(19 * MIB);
        assert_eq!(allocator.used, 20 * MIB);
        // From the segment of 30; the rest of 15 stays for the next allocation.
        let d = allocator.allocate(15 * MIB);
        let e = allocator.allocate(14 * MIB);
        assert_eq!(allocator.reserved(), 50 * MIB);
        [c, d, e].into_iter().for_each(|held| allocator.release(held));
        let _whole = allocator.allocate(30 * MIB);
        assert_eq!(allocator.reserved(), 50 * MIB, "neighbours merge");
    }

    #[test]
    fn blocks_of_two_segments_never_merge() {
        let mut allocator = Allocator::default();
        let held: Vec<Held> = (0..2).map(|_| allocator.allocate(12 * MIB)).collect();
        held.into_iter().for_each(|held| allocator.release(held));
        let _held = allocator.allocate(24 * MIB);
        assert_eq!(allocator.reserved(), 48 * MIB);
    }
}
