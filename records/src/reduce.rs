//! In: one value per micro-batch, in any order of arrival, and how to add two. Out: their sum, always added in the same
//! shape: the balanced binary tree over micro-batch indices, where node (level, place) adds the indices place * 2^level
//! up to (place + 1) * 2^level and a node without a right half is its left half. Must stay true: the shape depends only
//! on the number of micro-batches. A rank that owns an aligned subtree adds just that one, and the ranks' sums are
//! added by the same tree over ranks, so any power of two of ranks gives equal bits.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// Partial sums; at most one for each level if values arrive in order.
#[derive(Clone, Debug)]
pub struct Tree<T> {
    owned: Range<u64>,
    /// Sums that wait for the other half, by (first index, level).
    waiting: BTreeMap<(u64, u32), T>,
    arrived: u64,
}

/// Why a sum cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReduceError {
    /// Giving each rank an aligned subtree needs a power of two.
    Ranks {
        /// Number of the rank, from 0.
        rank: u64,
        /// Number of ranks.
        ranks: u64,
    },
    /// A part was given to a rank that does not own it.
    NotOwned {
        /// Index of the part.
        index: u64,
        /// Indices that the rank owns.
        owned: Range<u64>,
    },
    /// A part was given twice.
    Twice {
        /// Index of the part.
        index: u64,
    },
    /// The sum was asked for before all parts were given.
    Missing {
        /// Number of parts given.
        arrived: u64,
        /// Indices that the rank owns.
        owned: Range<u64>,
    },
}

impl fmt::Display for ReduceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ranks { rank, ranks } => {
                write!(
                    f,
                    "rank {rank} of {ranks} owns no aligned part of a step\nhelp: run on 1, 2, 4, ... ranks"
                )
            }
            Self::NotOwned { index, owned } => write!(
                f,
                "micro-batch {index} arrived, but this sum is over {} up to {}\nhelp: this is a bug in canonc; \
                 please report it",
                owned.start, owned.end
            ),
            Self::Twice { index } => write!(
                f,
                "micro-batch {index} arrived twice\nhelp: this is a bug in canonc; please report it"
            ),
            Self::Missing { arrived, owned } => write!(
                f,
                "only {arrived} of micro-batches {} up to {} arrived\nhelp: this is a bug in canonc; please report it",
                owned.start, owned.end
            ),
        }
    }
}

impl std::error::Error for ReduceError {}

impl<T> Tree<T> {
    /// The tree over all of `count` micro-batches.
    pub fn new(count: u64) -> Tree<T> {
        Tree { owned: 0..count, waiting: BTreeMap::new(), arrived: 0 }
    }

    /// The subtree that `rank` of `ranks` owns. The sums of ranks that own any are then the values, by rank, of
    /// `Tree::new(owners(count, ranks))`.
    pub fn for_rank(count: u64, rank: u64, ranks: u64) -> Result<Tree<T>, ReduceError> {
        let owned = owned_by(count, rank, ranks)?;
        Ok(Tree { owned, waiting: BTreeMap::new(), arrived: 0 })
    }

    /// The micro-batches this sum is over.
    pub fn owned(&self) -> Range<u64> {
        self.owned.clone()
    }

    /// Adds the value of micro-batch `index`. Calls `add(left, right)` for each pair that is now complete, with the
    /// lower indices on the left.
    pub fn push(
        &mut self,
        index: u64,
        value: T,
        mut add: impl FnMut(T, T) -> T,
    ) -> Result<(), ReduceError> {
        if !self.owned.contains(&index) {
            return Err(ReduceError::NotOwned { index, owned: self.owned.clone() });
        }
        if self.has(index) {
            return Err(ReduceError::Twice { index });
        }
        self.arrived += 1;
        let (mut start, mut level, mut value) = (index, 0, value);
        // Up to the root, the node that holds all owned indices.
        while start > self.owned.start || self.end_of(start, level) < self.owned.end {
            let size = 1 << level;
            let (left, right) = (start & !size, start | size);
            if right < self.owned.end {
                let other = if start == left { right } else { left };
                let Some(other) = self.waiting.remove(&(other, level)) else { break };
                value = if start == left { add(value, other) } else { add(other, value) };
            }
            (start, level) = (left, level + 1);
        }
        self.waiting.insert((start, level), value);
        Ok(())
    }

    /// The whole sum; None without micro-batches.
    pub fn finish(mut self) -> Result<Option<T>, ReduceError> {
        if self.arrived < self.owned.end.saturating_sub(self.owned.start) {
            return Err(ReduceError::Missing { arrived: self.arrived, owned: self.owned });
        }
        Ok(self.waiting.pop_first().map(|(_, value)| value))
    }

    /// Whether a waiting sum already holds `index`.
    fn has(&self, index: u64) -> bool {
        let before = self.waiting.range(..=(index, u32::MAX)).next_back();
        before.is_some_and(|(&(start, level), _)| index < self.end_of(start, level))
    }

    fn end_of(&self, start: u64, level: u32) -> u64 {
        1u64.checked_shl(level)
            .and_then(|size| start.checked_add(size))
            .unwrap_or(u64::MAX)
            .min(self.owned.end)
    }
}

/// The micro-batches of `rank`: an aligned subtree of the tree over the next power of two, cut at `count`.
pub fn owned_by(count: u64, rank: u64, ranks: u64) -> Result<Range<u64>, ReduceError> {
    if !ranks.is_power_of_two() || rank >= ranks {
        return Err(ReduceError::Ranks { rank, ranks });
    }
    let each = share(count, ranks);
    let start = rank.saturating_mul(each).min(count);
    Ok(start..start.saturating_add(each).min(count))
}

/// Number of ranks that own any micro-batch; they are the first ones. Fewer than `ranks` when there are too few
/// micro-batches, or when their number is far enough from a power of two.
pub fn owners(count: u64, ranks: u64) -> u64 {
    count.div_ceil(share(count, ranks.max(1)))
}

fn share(count: u64, ranks: u64) -> u64 {
    (count.checked_next_power_of_two().unwrap_or(1 << 63) / ranks).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn add(left: f32, right: f32) -> f32 {
        left + right
    }

    /// The tree, computed directly from its definition.
    fn recursively(values: &[f32]) -> f32 {
        match values {
            [one] => *one,
            _ => {
                let (left, right) = values.split_at(values.len().next_power_of_two() / 2);
                add(recursively(left), recursively(right))
            }
        }
    }

    fn sum(tree: Tree<f32>, values: &[f32], arrivals: &[u64]) -> Option<f32> {
        let mut tree = tree;
        let owned = tree.owned();
        for &index in arrivals.iter().filter(|index| owned.contains(index)) {
            tree.push(index, values[index as usize], add).unwrap();
        }
        tree.finish().unwrap()
    }

    proptest! {
        #[test]
        fn arrival_and_ranks_change_no_bit(
            values in prop::collection::vec(-1e6f32..1e6, 1..70),
            keys in prop::collection::vec(any::<u64>(), 70),
            log_ranks in 0u32..6,
        ) {
            let count = values.len() as u64;
            let want = recursively(&values).to_bits();
            let mut arrivals: Vec<u64> = (0..count).collect();
            arrivals.sort_by_key(|&index| keys[index as usize]);
            prop_assert_eq!(sum(Tree::new(count), &values, &arrivals).unwrap().to_bits(), want);

            let ranks = 1 << log_ranks;
            let parts: Vec<f32> = (0..ranks)
                .filter_map(|rank| sum(Tree::for_rank(count, rank, ranks).unwrap(), &values, &arrivals))
                .collect();
            prop_assert_eq!(parts.len() as u64, owners(count, ranks));
            let mut ranks_arrive: Vec<u64> = (0..parts.len() as u64).collect();
            ranks_arrive.sort_by_key(|&rank| keys[69 - rank as usize]);
            let total = sum(Tree::new(parts.len() as u64), &parts, &ranks_arrive);
            prop_assert_eq!(total.unwrap().to_bits(), want);
        }

        #[test]
        fn ranks_own_every_micro_batch_once(count in 0u64..1000, log_ranks in 0u32..8) {
            let ranks = 1 << log_ranks;
            let owned: Vec<u64> = (0..ranks).flat_map(|rank| owned_by(count, rank, ranks).unwrap()).collect();
            prop_assert!(owned.into_iter().eq(0..count));
        }
    }

    #[test]
    fn the_shape_is_not_a_running_sum() {
        // 1e8 swallows a lone 1 in f32, so the result depends on the pairing.
        let values = [1e8, 1.0, -1e8, 1.0];
        let sum = sum(Tree::new(4), &values, &[2, 0, 3, 1]);
        assert_eq!(sum, Some((1e8f32 + 1.0) + (-1e8f32 + 1.0)));
        assert_ne!(sum, Some(((1e8f32 + 1.0) + -1e8f32) + 1.0));
    }

    #[test]
    fn in_order_no_more_wait_than_there_are_levels() {
        let mut tree = Tree::new(1000);
        for index in 0..1000 {
            tree.push(index, 1u64, |left, right| left + right).unwrap();
            assert!(tree.waiting.len() <= 10);
        }
        assert_eq!(tree.finish(), Ok(Some(1000)));
    }

    #[test]
    fn what_cannot_be_summed_is_an_error() {
        let mut tree = Tree::for_rank(8, 1, 2).unwrap();
        assert_eq!(tree.owned(), 4..8);
        for index in [5, 4, 7] {
            tree.push(index, 1.0, add).unwrap();
        }
        for index in [4, 5, 7] {
            assert_eq!(tree.push(index, 1.0, add), Err(ReduceError::Twice { index }));
        }
        assert_eq!(tree.push(3, 1.0, add), Err(ReduceError::NotOwned { index: 3, owned: 4..8 }));
        let missing = tree.finish().unwrap_err();
        assert_eq!(missing, ReduceError::Missing { arrived: 3, owned: 4..8 });
        assert!(missing.to_string().starts_with("only 3 of micro-batches 4 up to 8 arrived"));
        assert!(matches!(Tree::<f32>::for_rank(8, 0, 3), Err(ReduceError::Ranks { .. })));
        assert!(matches!(Tree::<f32>::for_rank(8, 2, 2), Err(ReduceError::Ranks { .. })));
        assert_eq!(Tree::<f32>::new(0).finish(), Ok(None));
    }
}
