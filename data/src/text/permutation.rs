//! Keyed permutations of the numbers below a length, with inverses. Each image is computed alone, and nothing is stored
//! for each number.

/// A keyed bijection of 0..n: a balanced Feistel network on the next even power of two, iterated until the result is in
/// range (Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    n: u64,
    half_bits: u32,
    /// None for the identity permutation.
    keys: Option<[u64; 8]>,
}

impl Permutation {
    /// The permutation of 0..n for `key`; `n` is at least 1.
    pub(super) fn new(n: u64, key: &blake3::Hash) -> Permutation {
        let bits = 64 - n.saturating_sub(1).leading_zeros();
        let mut keys = [0; 8];
        let (mut bytes, mut reader) =
            ([0; 8], blake3::Hasher::new_keyed(key.as_bytes()).finalize_xof());
        for key in &mut keys {
            reader.fill(&mut bytes);
            *key = u64::from_le_bytes(bytes);
        }
        Permutation { n, half_bits: bits.div_ceil(2).max(1), keys: Some(keys) }
    }

    /// The identity permutation of 0..n.
    pub(super) fn identity(n: u64) -> Permutation {
        Permutation { n, half_bits: 1, keys: None }
    }

    /// The image of `i`, which must be below `n`.
    pub(super) fn at(&self, i: u64) -> u64 {
        debug_assert!(i < self.n);
        let Some(keys) = &self.keys else { return i };
        let mask = (1u64 << self.half_bits) - 1;
        let mut value = i;
        // The domain is less than four times n, and the cycle through i returns to i at the latest.
        loop {
            let (mut left, mut right) = (value >> self.half_bits, value & mask);
            for &key in keys {
                (left, right) = (right, left ^ (mixed(right ^ key) & mask));
            }
            value = left << self.half_bits | right;
            if value < self.n {
                return value;
            }
        }
    }

    /// The number with this image, which must be below `n`.
    pub(super) fn inverse(&self, image: u64) -> u64 {
        debug_assert!(image < self.n);
        let Some(keys) = &self.keys else { return image };
        let mask = (1u64 << self.half_bits) - 1;
        let mut value = image;
        loop {
            let (mut left, mut right) = (value >> self.half_bits, value & mask);
            for &key in keys.iter().rev() {
                (left, right) = (right ^ (mixed(left ^ key) & mask), left);
            }
            value = left << self.half_bits | right;
            if value < self.n {
                return value;
            }
        }
    }
}

/// SplitMix64's finaliser (Steele, Lea and Flood 2014).
fn mixed(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(number: u64) -> blake3::Hash {
        blake3::hash(&number.to_le_bytes())
    }

    proptest! {
        #[test]
        fn a_permutation_meets_each_place_once(n in 1u64..3000, seed: u64) {
            let permutation = Permutation::new(n, &key(seed));
            let mut places: Vec<u64> = (0..n).map(|i| permutation.at(i)).collect();
            let back: Vec<u64> = places.iter().map(|position| permutation.inverse(*position)).collect();
            prop_assert!(back.into_iter().eq(0..n));
            places.sort_unstable();
            prop_assert!(places.into_iter().eq(0..n));
        }

        #[test]
        fn a_permutation_of_any_length_gives_no_place_twice(n in 1u64..=u64::MAX >> 2, seed: u64) {
            // Adjacent and distant positions all have different images.
            let permutation = Permutation::new(n, &key(seed));
            let mut tried: Vec<u64> = (0..n.min(500)).collect();
            tried.extend((1..500).map(|i| n - 1 - (n - 1) / 500 * i));
            tried.sort_unstable();
            tried.dedup();
            let count = tried.len();
            let mut places: Vec<u64> = tried.into_iter().map(|i| permutation.at(i)).collect();
            prop_assert!(places.iter().all(|position| *position < n));
            places.sort_unstable();
            places.dedup();
            prop_assert_eq!(places.len(), count);
        }

        #[test]
        fn a_large_permutation_stays_in_range(n in 1u64..=u64::MAX >> 2, i: u64, seed: u64) {
            let permutation = Permutation::new(n, &key(seed));
            prop_assert!(permutation.at(i % n) < n);
            prop_assert_eq!(permutation.inverse(permutation.at(i % n)), i % n);
        }
    }

    #[test]
    fn permutations_of_four_are_about_equally_likely() {
        let mut counts: BTreeMap<Vec<u64>, f64> = BTreeMap::new();
        for seed in 0..24_000 {
            let permutation = Permutation::new(4, &key(seed));
            *counts.entry((0..4).map(|i| permutation.at(i)).collect()).or_default() += 1.0;
        }
        assert_eq!(counts.len(), 24);
        // Eight rounds on two bits are not a perfect shuffle. Each order is within a tenth of its share.
        assert!(counts.values().all(|count| (count / 1000.0 - 1.0).abs() < 0.15), "{counts:?}");
    }
}
