//! Compact tables over all documents of a set: marks that find the n-th marked number, and prefix sums.
//!
//! They take bits for each document, not bytes, so that those of a billion documents fit in memory next to a model.

use std::collections::BTreeMap;

/// Words of marks between two counts.
const WORDS: usize = 8;

/// Marks on a range of numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Marked {
    words: Vec<u64>,
    /// Number of marks before each group of [`WORDS`] words.
    before: Vec<u32>,
    count: u64,
}

/// Marks that are being set.
#[derive(Debug)]
pub(super) struct Marking {
    words: Vec<u64>,
}

impl Marking {
    /// No marks on the numbers below `length`. At most 2^32 can be marked.
    pub(super) fn new(length: u64) -> Marking {
        Marking { words: vec![0; length.div_ceil(64) as usize] }
    }

    pub(super) fn mark(&mut self, number: u64) {
        if let Some(word) = self.words.get_mut((number / 64) as usize) {
            *word |= 1 << (number % 64);
        }
    }

    pub(super) fn done(self) -> Marked {
        let Marking { words } = self;
        let (mut before, mut count) = (Vec::with_capacity(words.len().div_ceil(WORDS)), 0u64);
        for group in words.chunks(WORDS) {
            before.push(count as u32);
            count += group.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        }
        Marked { words, before, count }
    }
}

impl Marked {
    /// How many numbers are marked.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        self.words.get((number / 64) as usize).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// The marked number at `position` among the marked ones, which must be below their count.
    pub(super) fn at(&self, position: u64) -> u64 {
        debug_assert!(position < self.count);
        let group = self.before.partition_point(|before| u64::from(*before) <= position);
        let group = group.saturating_sub(1);
        let mut left = position - self.before.get(group).map_or(0, |before| u64::from(*before));
        for (at, word) in self.words.iter().enumerate().skip(group * WORDS) {
            let ones = u64::from(word.count_ones());
            if left < ones {
                let mut word = *word;
                for _ in 0..left {
                    word &= word - 1;
                }
                return at as u64 * 64 + u64::from(word.trailing_zeros());
            }
            left -= ones;
        }
        u64::MAX
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> u64 {
        (size_of_val(self.words.as_slice()) + size_of_val(self.before.as_slice())) as u64
    }
}

/// The sums of the first 1, 2, 3, … of a sequence of numbers, after Elias (1974) and Fano (1971): the low bits of each
/// sum as they are, the rest as marks at (high bits of sum i) + i. Takes 2 + log2(mean) bits for each number.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    low: Vec<u64>,
    /// Low bits of each sum.
    width: u32,
    high: Marked,
    total: u64,
}

impl Sums {
    /// The sums of the numbers that were counted.
    pub(super) fn new(counted: Counted) -> Sums {
        let count = counted.low.len() as u64;
        let total = counted.total;
        let width = total.checked_div(count).and_then(u64::checked_ilog2).unwrap_or(0);
        let mut low = vec![0u64; (count * u64::from(width)).div_ceil(64) as usize];
        let mut high = Marking::new((total >> width) + count + 1);
        let mut sum = 0;
        for number in 0..count {
            sum += counted.get(number);
            high.mark((sum >> width) + number);
            if width > 0 {
                let part = sum & ((1 << width) - 1);
                let bit = number * u64::from(width);
                let (word, shift) = ((bit / 64) as usize, bit % 64);
                low[word] |= part << shift;
                if shift + u64::from(width) > 64 {
                    low[word + 1] |= part >> (64 - shift);
                }
            }
        }
        let high = high.done();
        Sums { low, width, high, total }
    }

    /// The sum of all numbers.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The sum of the first `count` numbers.
    pub(super) fn before(&self, count: u64) -> u64 {
        let Some(number) = count.checked_sub(1) else { return 0 };
        let high = self.high.at(number) - number;
        if self.width == 0 {
            return high;
        }
        let bit = number * u64::from(self.width);
        let (word, shift) = ((bit / 64) as usize, bit % 64);
        let mut low = self.low[word] >> shift;
        if shift + u64::from(self.width) > 64 {
            low |= self.low[word + 1] << (64 - shift);
        }
        high << self.width | low & ((1 << self.width) - 1)
    }

    /// The number that `at` falls into: the first one with a sum above it. `at` must be below the total.
    pub(super) fn find(&self, at: u64) -> u64 {
        let (mut first, mut last) = (0, self.high.count().saturating_sub(1));
        while first < last {
            let middle = first + (last - first) / 2;
            if self.before(middle + 1) > at {
                last = middle;
            } else {
                first = middle + 1;
            }
        }
        first
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> u64 {
        size_of_val(self.low.as_slice()) as u64 + self.high.bytes()
    }
}

/// Numbers that are counted up in any order.
#[derive(Debug)]
pub(super) struct Counted {
    low: Vec<u32>,
    /// Multiples of 2^32, where a number is that large.
    high: BTreeMap<u64, u64>,
    total: u64,
}

impl Counted {
    /// This many zeros.
    pub(super) fn new(count: u64) -> Counted {
        Counted { low: vec![0; count as usize], high: BTreeMap::new(), total: 0 }
    }

    /// Adds `more` to a number.
    pub(super) fn add(&mut self, number: u64, more: u64) {
        let Some(low) = self.low.get_mut(number as usize) else { return };
        let sum = u64::from(*low) + (more & u64::from(u32::MAX));
        *low = sum as u32;
        let carried = (sum >> 32) + (more >> 32);
        if carried > 0 {
            *self.high.entry(number).or_default() += carried;
        }
        self.total += more;
    }

    fn get(&self, number: u64) -> u64 {
        let low = self.low.get(number as usize).copied().unwrap_or(0);
        u64::from(low) + (self.high.get(&number).copied().unwrap_or(0) << 32)
    }

    /// Bytes in memory.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        size_of_val(self.low.as_slice()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Numbers of very different sizes.
    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), 0u64..5, 0u64..5000, 0u64..1 << 40]
    }

    proptest! {
        #[test]
        fn marks_are_looked_up_by_position_and_by_number(marks in prop::collection::vec(any::<bool>(), 0..3000)) {
            let marked: Vec<u64> = (0..).zip(&marks).filter(|(_, on)| **on).map(|(at, _)| at).collect();
            let mut table = Marking::new(marks.len() as u64);
            marked.iter().for_each(|number| table.mark(*number));
            let table = table.done();
            prop_assert_eq!(table.count(), marked.len() as u64);
            for (position, number) in marked.iter().enumerate() {
                prop_assert_eq!(table.at(position as u64), *number);
            }
            for (number, on) in marks.iter().enumerate() {
                prop_assert_eq!(table.contains(number as u64), *on);
            }
            prop_assert!(!table.contains(marks.len() as u64 + 64));
        }

        #[test]
        fn sums_equal_those_of_a_list(numbers in prop::collection::vec(number(), 1..700), tried in prop::collection::vec(any::<u64>(), 20)) {
            let mut counted = Counted::new(numbers.len() as u64);
            // In any order, and in several parts.
            for (at, number) in numbers.iter().enumerate().rev() {
                counted.add(at as u64, number / 3);
            }
            for (at, number) in numbers.iter().enumerate() {
                counted.add(at as u64, number - number / 3);
            }
            let sums = Sums::new(counted);
            let mut ends = vec![0];
            for number in &numbers {
                ends.push(ends[ends.len() - 1] + number);
            }
            for (count, end) in ends.iter().enumerate() {
                prop_assert_eq!(sums.before(count as u64), *end);
            }
            let total = ends[ends.len() - 1];
            prop_assert_eq!(sums.total(), total);
            for at in tried.into_iter().filter_map(|at| at.checked_rem(total)).chain(ends.iter().copied()) {
                if at < total {
                    let wanted = ends[1..].partition_point(|end| *end <= at);
                    prop_assert_eq!(sums.find(at), wanted as u64);
                }
            }
        }
    }

    #[test]
    fn a_number_above_32_bits_is_carried() {
        let mut counted = Counted::new(2);
        for _ in 0..3 {
            counted.add(1, u64::from(u32::MAX));
        }
        counted.add(1, 5 << 32);
        assert_eq!(counted.get(1), 3 * u64::from(u32::MAX) + (5 << 32));
        assert_eq!(counted.get(0), 0);
    }
}
