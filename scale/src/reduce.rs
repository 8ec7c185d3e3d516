//! Sums one value per micro-batch, which may arrive in any order, always in the same shape.
//!
//! Runs of neighbours are added in sequence, and the runs in a balanced binary tree, where a node adds an aligned power of two
//! of them and a node without a right half is its left half. The shape depends only on the number of micro-batches and the
//! length of a run, so any number of ranks gives equal bits.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// The shape of a sum over micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Number of micro-batches.
    pub count: u64,
    /// How many neighbours are added in sequence, as one leaf of the tree; at least 1.
    pub in_sequence: u64,
}

/// Partial sums; at most one for each level if values arrive in order, and one of a run.
#[derive(Clone, Debug)]
pub struct Tree<T> {
    order: Order,
    /// Sums that wait for the other half, and micro-batches that wait for those before them in their run.
    waiting: BTreeMap<Node, T>,
    /// By run, the sum of its first micro-batches, and the one that comes next.
    begun: BTreeMap<u64, (u64, T)>,
    arrived: u64,
}

/// A node of the tree: the micro-batches from `start` on that this level holds, or as many as there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    /// The first micro-batch, a multiple of what the level holds.
    pub start: u64,
    /// 0 for one micro-batch. Each level holds twice the one below; if runs are longer than 1, level 1 is a run.
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

impl Order {
    /// Micro-batches in a node of this level.
    fn size(self, level: u32) -> u64 {
        let shifted = |size: u64, by: u32| size.checked_mul(1u64.checked_shl(by)?);
        let run = self.in_sequence.max(1);
        let size = match (run, level) {
            (1, level) => shifted(1, level),
            (_, 0) => Some(1),
            (run, level) => shifted(run, level - 1),
        };
        size.unwrap_or(u64::MAX)
    }

    fn range(self, Node { start, level }: Node) -> Range<u64> {
        start..start.saturating_add(self.size(level)).min(self.count)
    }

    /// The fewest nodes that together are these micro-batches, in order.
    pub fn nodes(self, range: Range<u64>) -> Vec<Node> {
        let (mut start, end) = (range.start, range.end.min(self.count));
        let mut nodes = Vec::new();
        while start < end {
            let mut node = Node { start, level: 0 };
            while self.range(node).end < self.count {
                let above = Node { start, level: node.level + 1 };
                let fits = start.is_multiple_of(self.size(above.level));
                if !fits || self.range(above).end > end {
                    break;
                }
                node = above;
            }
            start = self.range(node).end;
            nodes.push(node);
        }
        nodes
    }

    /// The number of sums that wait when the first `done` micro-batches have arrived.
    pub fn waiting(self, done: u64) -> u64 {
        let done = done.min(self.count);
        let complete_runs =
            if done == self.count { done } else { done - done % self.in_sequence.max(1) };
        self.nodes(0..complete_runs).len() as u64 + u64::from(done > complete_runs)
    }

    /// Sums over the [`Order::nodes`] of a range, given the values of its micro-batches in order.
    pub fn partial<T>(
        self,
        range: Range<u64>,
        values: impl IntoIterator<Item = T>,
        mut add: impl FnMut(T, T) -> T,
    ) -> Vec<(Node, T)> {
        let mut values = values.into_iter();
        let nodes = self.nodes(range).into_iter();
        nodes.filter_map(|node| Some((node, self.sum(node, &mut values, &mut add)?))).collect()
    }

    /// The sum over a node, from the values of its micro-batches in order.
    fn sum<T>(
        self,
        node: Node,
        values: &mut impl Iterator<Item = T>,
        add: &mut impl FnMut(T, T) -> T,
    ) -> Option<T> {
        let first = |level| Node { start: node.start, level };
        match node.level.checked_sub(1) {
            None => values.next(),
            Some(0) if self.in_sequence > 1 => {
                let count = self.range(node).end - node.start;
                let mut sum = values.next()?;
                for _ in 1..count {
                    sum = add(sum, values.next()?);
                }
                Some(sum)
            }
            Some(below) => {
                let left = self.sum(first(below), values, add)?;
                let start = node.start + self.size(below);
                if start >= self.count {
                    return Some(left);
                }
                let right = self.sum(Node { start, level: below }, values, add)?;
                Some(add(left, right))
            }
        }
    }
}

impl<T> Tree<T> {
    /// A sum of this shape.
    pub fn new(order: Order) -> Tree<T> {
        Tree { order, waiting: BTreeMap::new(), begun: BTreeMap::new(), arrived: 0 }
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
        let Order { count, in_sequence } = self.order;
        let aligned = node.level < 64 && node.start.is_multiple_of(self.order.size(node.level));
        if node.start >= count || !aligned {
            return Err(ReduceError::Unknown { node, count });
        }
        let range = self.order.range(node);
        if self.overlaps(&range) {
            return Err(ReduceError::Twice { node });
        }
        self.arrived += range.end - range.start;
        if node.level > 0 || in_sequence <= 1 {
            self.rise(node, value, &mut add);
        } else if let Some((run, sum)) = self.run(node.start, value, &mut add) {
            self.rise(run, sum, &mut add);
        }
        Ok(())
    }

    /// Adds a micro-batch to its run, and those that waited for it. Returns the run when it is complete.
    fn run(&mut self, index: u64, value: T, add: &mut impl FnMut(T, T) -> T) -> Option<(Node, T)> {
        let run = Node { start: index - index % self.order.in_sequence, level: 1 };
        let end = self.order.range(run).end;
        let begun = self.begun.remove(&run.start);
        if index != begun.as_ref().map_or(run.start, |(next, _)| *next) {
            self.begun.extend(begun.map(|begun| (run.start, begun)));
            self.waiting.insert(Node { start: index, level: 0 }, value);
            return None;
        }
        let mut sum = match begun {
            None => value,
            Some((_, sum)) => add(sum, value),
        };
        let mut next = index + 1;
        while next < end {
            let Some(value) = self.waiting.remove(&Node { start: next, level: 0 }) else {
                self.begun.insert(run.start, (next, sum));
                return None;
            };
            sum = add(sum, value);
            next += 1;
        }
        Some((run, sum))
    }

    /// Adds a sum to those that wait for it, up to the root, which holds all micro-batches.
    fn rise(&mut self, node: Node, mut value: T, add: &mut impl FnMut(T, T) -> T) {
        let Order { count, .. } = self.order;
        let Node { mut start, mut level } = node;
        while start > 0 || self.order.range(Node { start, level }).end < count {
            let size = self.order.size(level);
            let left = start - start % size.saturating_mul(2);
            let right = left.saturating_add(size);
            if right < count {
                let sibling = Node { start: if start == left { right } else { left }, level };
                let Some(other) = self.waiting.remove(&sibling) else { break };
                value = if start == left { add(value, other) } else { add(other, value) };
            }
            (start, level) = (left, level + 1);
        }
        self.waiting.insert(Node { start, level }, value);
    }

    /// The whole sum; None without micro-batches.
    pub fn finish(mut self) -> Result<Option<T>, ReduceError> {
        let Order { count, .. } = self.order;
        if self.arrived < count {
            return Err(ReduceError::Missing { arrived: self.arrived, count });
        }
        Ok(self.waiting.pop_first().map(|(_, value)| value))
    }

    /// Replaces each waiting sum, for example by a copy that keeps no buffer alive.
    pub fn replace(&mut self, mut by: impl FnMut(T) -> T) {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting = waiting.into_iter().map(|(node, sum)| (node, by(sum))).collect();
        let begun = std::mem::take(&mut self.begun);
        self.begun = begun.into_iter().map(|(run, (next, sum))| (run, (next, by(sum)))).collect();
    }

    /// Whether a waiting sum already holds any of these micro-batches.
    fn overlaps(&self, range: &Range<u64>) -> bool {
        let last = Node { start: range.end.saturating_sub(1), level: u32::MAX };
        let before = self.waiting.range(..=last).next_back();
        let begun = self.begun.range(..range.end).next_back();
        before.is_some_and(|(node, _)| self.order.range(*node).end > range.start)
            || begun.is_some_and(|(_, (next, _))| *next > range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn add(left: f32, right: f32) -> f32 {
        left + right
    }

    fn order(count: usize, in_sequence: u64) -> Order {
        Order { count: count as u64, in_sequence }
    }

    /// The sum, computed directly from its definition.
    fn by_definition(values: &[f32], in_sequence: u64) -> f32 {
        fn tree(runs: &[f32]) -> f32 {
            match runs {
                [one] => *one,
                _ => {
                    let (left, right) = runs.split_at(runs.len().next_power_of_two() / 2);
                    add(tree(left), tree(right))
                }
            }
        }
        let run = |run: &[f32]| run.iter().copied().reduce(add).unwrap();
        tree(&values.chunks(in_sequence as usize).map(run).collect::<Vec<f32>>())
    }

    fn sum(values: &[f32], arrivals: &[u64], in_sequence: u64) -> Option<f32> {
        let mut tree = Tree::new(order(values.len(), in_sequence));
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
            in_sequence in 1u64..10,
        ) {
            let count = values.len() as u64;
            let order = order(values.len(), in_sequence);
            let want = by_definition(&values, in_sequence).to_bits();
            let mut arrivals: Vec<u64> = (0..count).collect();
            arrivals.sort_by_key(|&index| keys[index as usize]);
            prop_assert_eq!(sum(&values, &arrivals, in_sequence).unwrap().to_bits(), want);

            // Each node of `local` ranks adds what it can of its micro-batches, and sends the rest as it is.
            let mut parts = Vec::new();
            for start in (0..count).step_by(local as usize) {
                let range = start..(start + local).min(count);
                let inside = values[range.start as usize..range.end as usize].iter().copied();
                let sums = order.partial(range.clone(), inside, add);
                let mut end = range.start;
                for (node, _) in &sums {
                    prop_assert_eq!(node.start, end);
                    end = order.range(*node).end;
                }
                prop_assert_eq!(end, range.end);
                parts.extend(sums);
            }
            parts.sort_by_key(|(node, _)| keys[node.start as usize]);
            let mut tree = Tree::new(order);
            for (node, value) in parts {
                tree.push_node(node, value, add).unwrap();
            }
            prop_assert_eq!(tree.finish().unwrap().unwrap().to_bits(), want);
        }

        #[test]
        fn in_order_as_many_wait_as_counted(count in 1usize..200, in_sequence in 1u64..20) {
            let mut tree = Tree::new(order(count, in_sequence));
            for index in 0..count as u64 {
                tree.push(index, 1u64, |left, right| left + right).unwrap();
                let waiting = tree.waiting.len() + tree.begun.len();
                prop_assert_eq!(waiting as u64, tree.order.waiting(index + 1));
            }
            prop_assert_eq!(tree.finish(), Ok(Some(count as u64)));
        }
    }

    #[test]
    fn sums_are_a_tree_and_not_a_running_sum() {
        // 1e8 swallows a lone 1 in f32, so the result depends on the pairing.
        let values = [1e8, 1.0, -1e8, 1.0];
        let tree = |in_sequence| sum(&values, &[2, 0, 3, 1], in_sequence);
        let sum = tree(1);
        assert_eq!(sum, Some((1e8f32 + 1.0) + (-1e8f32 + 1.0)));
        let running = Some(((1e8f32 + 1.0) + -1e8f32) + 1.0);
        assert_ne!(sum, running);
        // Unless the lock asks for it.
        assert_eq!(tree(4), running);
    }

    #[test]
    fn in_order_no_more_wait_than_there_are_levels() {
        let mut tree = Tree::new(order(1000, 1));
        for index in 0..1000 {
            tree.push(index, 1u64, |left, right| left + right).unwrap();
            assert!(tree.waiting.len() <= 10);
        }
        assert_eq!(tree.finish(), Ok(Some(1000)));
    }

    #[test]
    fn what_cannot_be_summed_is_an_error() {
        let mut tree = Tree::new(order(8, 1));
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
        assert_eq!(Tree::<f32>::new(order(0, 1)).finish(), Ok(None));
        let mut runs = Tree::new(order(8, 3));
        for index in [0, 1, 5] {
            runs.push(index, 1.0, add).unwrap();
        }
        for index in [0, 1, 5] {
            assert_eq!(runs.push(index, 1.0, add), Err(ReduceError::Twice { node: leaf(index) }));
        }
        for start in [0, 3] {
            let run = Node { start, level: 1 };
            assert_eq!(runs.push_node(run, 1.0, add), Err(ReduceError::Twice { node: run }));
        }
    }
}
