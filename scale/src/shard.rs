//! The part of each parameter that each rank owns.
//!
//! A border between two ranks is a border of blocks, so that sums over blocks do not depend on the number of ranks. A unit's
//! elements, parameter after parameter, are the ranks' parts one after another, so that one collective moves the unit without
//! reordering.

use std::collections::BTreeMap;
use std::ops::Range;

use compiler::graph::Graph;

/// Elements per block: the norm of the gradients is a sum over blocks.
pub const BLOCK: u64 = 1 << 14;

/// The parameters of a model, divided among ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shards {
    ranks: u64,
    units: Vec<Unit>,
    positions: Vec<ParamPosition>,
}

/// Parameters that are exchanged together: those of one layer, or one that belongs to no layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Parameters by index, in parameter order.
    pub params: Vec<usize>,
    /// For each parameter, the first of its blocks in the unit; then the number of blocks.
    blocks: Vec<u64>,
    /// Elements that each rank owns.
    owned: Vec<u64>,
}

/// Where a parameter is in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ParamPosition {
    unit: usize,
    /// The first of its blocks in the unit.
    first: u64,
    elements: u64,
}

impl Shards {
    /// Divides a model's parameters.
    pub fn new(graph: &Graph, ranks: u64) -> Shards {
        let sizes: Vec<(Option<u64>, u64)> = graph
            .params()
            .iter()
            .map(|param| (layer(&param.path), param.shape.iter().product::<i64>() as u64))
            .collect();
        Shards::from_sizes(&sizes, ranks)
    }

    /// Divides parameters with these layers and numbers of elements. At least one rank.
    pub fn from_sizes(params: &[(Option<u64>, u64)], ranks: u64) -> Shards {
        let ranks = ranks.max(1);
        let mut layers: BTreeMap<u64, usize> = BTreeMap::new();
        let mut units: Vec<Unit> = Vec::new();
        let mut positions = Vec::with_capacity(params.len());
        for (index, (layer, elements)) in params.iter().enumerate() {
            let next = units.len();
            let at = layer.map_or(next, |layer| *layers.entry(layer).or_insert(next));
            if at == next {
                units.push(Unit { params: Vec::new(), blocks: vec![0], owned: Vec::new() });
            }
            if let Some(unit) = units.get_mut(at) {
                let first = unit.blocks.last().copied().unwrap_or(0);
                positions.push(ParamPosition { unit: at, first, elements: *elements });
                unit.params.push(index);
                unit.blocks.push(first + elements.div_ceil(BLOCK));
            }
        }
        let mut shards = Shards { ranks, units, positions };
        for at in 0..shards.units.len() {
            let owned = shards.units.get(at).map_or_else(Vec::new, |unit| {
                let elements_of =
                    |rank| unit.params.iter().map(|param| shards.length(*param, rank)).sum();
                (0..ranks).map(elements_of).collect()
            });
            if let Some(unit) = shards.units.get_mut(at) {
                unit.owned = owned;
            }
        }
        shards
    }

    /// The units, in the order of their first parameters.
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u64 {
        self.ranks
    }

    /// Number of parameters.
    pub fn params(&self) -> usize {
        self.positions.len()
    }

    /// The unit of a parameter.
    pub fn unit_of(&self, param: usize) -> usize {
        self.positions.get(param).map_or(0, |position| position.unit)
    }

    /// The elements of a parameter that a rank owns; empty for most ranks if the parameter is small.
    pub fn part(&self, param: usize, rank: u64) -> Range<u64> {
        let Some(ParamPosition { unit, first, elements }) = self.positions.get(param) else {
            return 0..0;
        };
        let Some(unit) = self.units.get(*unit) else { return 0..0 };
        let border = |rank: u64| {
            let block = unit.border(rank, self.ranks).saturating_sub(*first);
            block.saturating_mul(BLOCK).min(*elements)
        };
        border(rank)..border(rank + 1)
    }

    /// Number of elements of a parameter that a rank owns.
    pub fn length(&self, param: usize, rank: u64) -> u64 {
        let part = self.part(param, rank);
        part.end - part.start
    }

    /// Elements of a unit that a rank owns.
    pub fn owned(&self, unit: usize, rank: u64) -> u64 {
        let unit = self.units.get(unit);
        unit.and_then(|unit| unit.owned.get(rank as usize)).copied().unwrap_or(0)
    }

    /// Elements of a unit.
    pub fn elements(&self, unit: usize) -> u64 {
        self.units.get(unit).map_or(0, |unit| unit.owned.iter().sum())
    }
}

impl Unit {
    /// The first block of a rank.
    fn border(&self, rank: u64, ranks: u64) -> u64 {
        let blocks = u128::from(self.blocks.last().copied().unwrap_or(0));
        (blocks * u128::from(rank.min(ranks)) / u128::from(ranks)) as u64
    }
}

/// The layer in a parameter's path, as 3 in `layers.3.mixer.wq`.
fn layer(path: &str) -> Option<u64> {
    path.strip_prefix("layers.")?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_element_has_one_owner_and_borders_are_block_borders(
            params in prop::collection::vec((prop::option::of(0u64..4), 0u64..100_000), 1..12),
            ranks in 1u64..600,
        ) {
            let shards = Shards::from_sizes(&params, ranks);
            for (param, (_, elements)) in params.iter().enumerate() {
                let mut end = 0;
                for rank in 0..ranks {
                    let part = shards.part(param, rank);
                    prop_assert_eq!(part.start, end);
                    prop_assert!(part.end.is_multiple_of(BLOCK) || part.end == *elements);
                    end = part.end;
                }
                prop_assert_eq!(end, *elements);
            }
            let mut seen: Vec<usize> = shards.units().iter().flat_map(|unit| unit.params.clone()).collect();
            seen.sort_unstable();
            prop_assert!(seen.into_iter().eq(0..params.len()));
        }

        #[test]
        fn a_rank_after_another_is_a_unit_in_order(
            sizes in prop::collection::vec(0u64..100_000, 1..8),
            ranks in 1u64..40,
        ) {
            let params: Vec<_> = sizes.iter().map(|size| (Some(0), *size)).collect();
            let shards = Shards::from_sizes(&params, ranks);
            let mut walk: Vec<(usize, u64)> = Vec::new();
            for rank in 0..ranks {
                for param in 0..params.len() {
                    let part = shards.part(param, rank);
                    walk.extend((!part.is_empty()).then_some((param, part.start)));
                }
            }
            prop_assert!(walk.is_sorted(), "{:?}", walk);
        }

        #[test]
        fn shares_differ_by_at_most_a_block(size in 0u64..10_000_000, ranks in 1u64..600) {
            let shards = Shards::from_sizes(&[(None, size)], ranks);
            let owned: Vec<u64> = (0..ranks).map(|rank| shards.owned(0, rank)).collect();
            let (least, most) = (owned.iter().min().unwrap(), owned.iter().max().unwrap());
            prop_assert!(most - least <= 2 * BLOCK);
        }
    }

    #[test]
    fn a_layer_is_a_unit_and_so_is_any_other_parameter() {
        assert_eq!(layer("layers.12.mixer.wq"), Some(12));
        assert_eq!(layer("embed"), None);
        let shards = Shards::from_sizes(
            &[(None, 5), (Some(0), 7), (Some(1), 7), (Some(0), 3), (None, 1)],
            2,
        );
        let params: Vec<_> = shards.units().iter().map(|unit| unit.params.clone()).collect();
        assert_eq!(params, [vec![0], vec![1, 3], vec![2], vec![4]]);
    }
}
