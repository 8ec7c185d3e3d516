//! In: one value per micro-batch, in any order of arrival, and how to add two. Out: their sum, always added in the same
//! shape: the balanced binary tree over micro-batch indices, where node (level, place) adds the indices place * 2^level
//! up to (place + 1) * 2^level and a node without a right half is its left half. Must stay true: the shape depends only
//! on the number of micro-batches, not on which rank computes which value or adds which pair, so any number of ranks
//! gives equal bits.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// Partial sums; at most one for each level if values arrive in order.
#[derive(Clone, Debug)]
pub struct Tree<T> {
    count: u64,
    /// Sums that wait for the other half.
    waiting: BTreeMap<Node, T>,
    arrived: u64,
}

/// A node of the tree: the micro-batches from `start` on, 2^`level` of them or as many as there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    /// The first micro-batch, a multiple of 2^level.
    pub start: u64,
    /// 0 for one micro-batch.
    pub level: u32,
}

/// Why a sum cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReduceError {
    /// A part that the tree does not have.
    Unknown {
        /// The part.
        node: Node,
        /// Number of micro-batches.
        count: u64,
    },
    /// A part was given twice.
    Twice {
        /// The part.
        node: Node,
    },
    /// The sum was asked for before all parts were given.
    Missing {
        /// Number of micro-batches in the given parts.
        arrived: u64,
        /// Number of micro-batches.
        count: u64,
    },
}

impl fmt::Display for ReduceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { node: Node { start, level }, count } => {
                write!(
                    f,
                    "a sum at level {level} from micro-batch {start} arrived, but there are {count}"
                )?;
            }
            Self::Twice { node: Node { start, level: 0 } } => {
                write!(f, "micro-batch {start} arrived twice")?;
            }
            Self::Twice { node: Node { start, level } } => {
                write!(f, "the sum at level {level} from micro-batch {start} arrived twice")?;
            }
            Self::Missing { arrived, count } => {
                write!(f, "only {arrived} of {count} micro-batches arrived")?;
            }
        }
        f.write_str("\nhelp: this is a bug in canonc; please report it")
    }
}

impl std::error::Error for ReduceError {}

impl<T> Tree<T> {
    /// The tree over `count` micro-batches.
    pub fn new(count: u64) -> Tree<T> {
        Tree { count, waiting: BTreeMap::new(), arrived: 0 }
    }

    /// Adds the value of micro-batch `index`. Calls `add(left, right)` for each pair that is now complete, with the
    /// lower indices on the left.
    pub fn push(
        &mut self,
        index: u64,
        value: T,
        add: impl FnMut(T, T) -> T,
    ) -> Result<(), ReduceError> {
        self.push_node(Node { start: index, level: 0 }, value, add)
    }

    /// Like [`Tree::push`], for the sum over a node.
    pub fn push_node(
        &mut self,
        node: Node,
        value: T,
        mut add: impl FnMut(T, T) -> T,
    ) -> Result<(), ReduceError> {
        let count = self.count;
        let aligned = node.level < 64 && node.start.trailing_zeros() >= node.level;
        if node.start >= count || !aligned {
            return Err(ReduceError::Unknown { node, count });
        }
        let range = node.range(count);
        if self.overlaps(&range) {
            return Err(ReduceError::Twice { node });
        }
        self.arrived += range.end - range.start;
        let (Node { mut start, mut level }, mut value) = (node, value);
        // Up to the root, which holds all indices.
        while start > 0 || (Node { start, level }).range(count).end < count {
            let size = 1 << level;
            let (left, right) = (start & !size, start | size);
            if right < count {
                let other = if start == left { right } else { left };
                let Some(other) = self.waiting.remove(&Node { start: other, level }) else { break };
                value = if start == left { add(value, other) } else { add(other, value) };
            }
            (start, level) = (left, level + 1);
        }
        self.waiting.insert(Node { start, level }, value);
        Ok(())
    }

    /// The whole sum; None without micro-batches.
    pub fn finish(mut self) -> Result<Option<T>, ReduceError> {
        if self.arrived < self.count {
            return Err(ReduceError::Missing { arrived: self.arrived, count: self.count });
        }
        Ok(self.waiting.pop_first().map(|(_, value)| value))
    }

    /// Replaces each waiting sum, for example by a copy that keeps no buffer alive.
    pub fn replace(&mut self, mut by: impl FnMut(T) -> T) {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting = waiting.into_iter().map(|(node, sum)| (node, by(sum))).collect();
    }

    /// The sums so far, to be given to another tree.
    pub fn into_parts(self) -> impl Iterator<Item = (Node, T)> {
        self.waiting.into_iter()
    }

    /// Whether a waiting sum already holds any of these micro-batches.
    fn overlaps(&self, range: &Range<u64>) -> bool {
        let last = Node { start: range.end.saturating_sub(1), level: u32::MAX };
        let before = self.waiting.range(..=last).next_back();
        before.is_some_and(|(node, _)| node.range(self.count).end > range.start)
    }
}

impl Node {
    fn range(self, count: u64) -> Range<u64> {
        let size = 1u64.checked_shl(self.level).unwrap_or(u64::MAX);
        self.start..self.start.saturating_add(size).min(count)
    }
}

/// The fewest nodes that together are the micro-batches `range` of `count`, in order.
pub fn nodes(range: Range<u64>, count: u64) -> Vec<Node> {
    let (mut start, end) = (range.start, range.end.min(count));
    let mut nodes = Vec::new();
    while start < end {
        let mut node = Node { start, level: 0 };
        loop {
            let parent = Node { start, level: node.level + 1 };
            let fits = start.trailing_zeros() >= parent.level && parent.range(count).end <= end;
            if !fits || node.range(count).end == count {
                break;
            }
            node = parent;
        }
        start = node.range(count).end;
        nodes.push(node);
    }
    nodes
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

    fn sum(values: &[f32], arrivals: &[u64]) -> Option<f32> {
        let mut tree = Tree::new(values.len() as u64);
        for &index in arrivals {
            tree.push(index, values[index as usize], add).unwrap();
        }
        tree.finish().unwrap()
    }

    proptest! {
        #[test]
        fn arrival_and_nodes_of_ranks_change_no_bit(
            values in prop::collection::vec(-1e6f32..1e6, 1..70),
            keys in prop::collection::vec(any::<u64>(), 70),
            local in 1u64..12,
        ) {
            let count = values.len() as u64;
            let want = recursively(&values).to_bits();
            let mut arrivals: Vec<u64> = (0..count).collect();
            arrivals.sort_by_key(|&index| keys[index as usize]);
            prop_assert_eq!(sum(&values, &arrivals).unwrap().to_bits(), want);

            // Each node of `local` ranks adds what it can of its micro-batches, and sends the rest as it is.
            let mut parts = Vec::new();
            for start in (0..count).step_by(local as usize) {
                let range = start..(start + local).min(count);
                let mut tree = Tree::new(count);
                for index in arrivals.iter().filter(|index| range.contains(index)) {
                    tree.push(*index, values[*index as usize], add).unwrap();
                }
                let made: Vec<_> = tree.into_parts().collect();
                let found: Vec<Node> = made.iter().map(|(node, _)| *node).collect();
                prop_assert_eq!(
                    found.iter().map(|node| node.range(count)).collect::<Vec<_>>(),
                    nodes(range, count).iter().map(|node| node.range(count)).collect::<Vec<_>>()
                );
                parts.extend(made);
            }
            parts.sort_by_key(|(node, _)| keys[node.start as usize]);
            let mut tree = Tree::new(count);
            for (node, value) in parts {
                tree.push_node(node, value, add).unwrap();
            }
            prop_assert_eq!(tree.finish().unwrap().unwrap().to_bits(), want);
        }
    }

    #[test]
    fn the_shape_is_not_a_running_sum() {
        // 1e8 swallows a lone 1 in f32, so the result depends on the pairing.
        let values = [1e8, 1.0, -1e8, 1.0];
        let sum = sum(&values, &[2, 0, 3, 1]);
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
        let mut tree = Tree::new(8);
        let leaf = |start| Node { start, level: 0 };
        for index in [5, 4, 7] {
            tree.push(index, 1.0, add).unwrap();
        }
        for index in [4, 5, 7] {
            assert_eq!(tree.push(index, 1.0, add), Err(ReduceError::Twice { node: leaf(index) }));
        }
        let over = Node { start: 4, level: 2 };
        assert_eq!(tree.push_node(over, 1.0, add), Err(ReduceError::Twice { node: over }));
        assert_eq!(tree.push(8, 1.0, add), Err(ReduceError::Unknown { node: leaf(8), count: 8 }));
        let askew = Node { start: 1, level: 1 };
        assert_eq!(
            tree.push_node(askew, 1.0, add),
            Err(ReduceError::Unknown { node: askew, count: 8 })
        );
        let missing = tree.finish().unwrap_err();
        assert_eq!(missing, ReduceError::Missing { arrived: 3, count: 8 });
        assert!(missing.to_string().starts_with("only 3 of 8 micro-batches arrived"));
        assert_eq!(Tree::<f32>::new(0).finish(), Ok(None));
    }
}
