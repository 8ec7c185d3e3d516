//! numpy's legacy `RandomState`, which one published prompt uses: CPython's generator, seeded the plain way; bounds use
//! masking and rejection.

use super::{N, Random};

/// `numpy.random.RandomState(seed)`.
#[derive(Clone, Debug)]
pub struct RandomState {
    random: Random,
}

impl RandomState {
    /// Matsumoto and Nishimura's `init_genrand`.
    pub fn new(seed: u32) -> RandomState {
        let mut state = [seed; N];
        for k in 1..N {
            let last = state[k - 1];
            state[k] = 1_812_433_253u32.wrapping_mul(last ^ (last >> 30)).wrapping_add(k as u32);
        }
        RandomState { random: Random { state, words: [0; N], next: N } }
    }

    /// `randint(low, high)`, which excludes `high`. The caller guarantees `low < high`.
    pub fn randint(&mut self, low: u32, high: u32) -> u32 {
        debug_assert!(low < high);
        let range = high - 1 - low;
        let mask = u32::MAX.checked_shr(range.leading_zeros()).unwrap_or(0);
        loop {
            let value = self.random.next_u32() & mask;
            if value <= range {
                return low + value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::golden;

    #[test]
    fn draws_equal_numpy() {
        for id in ["np-randint-50-200-s0", "np-randint-50-200-s42"] {
            let case = golden::case("capo", id);
            let mut numpy = RandomState::new(case["np_seed"].as_u64().unwrap() as u32);
            for want in golden::tokens(&case["values"]) {
                assert_eq!(numpy.randint(50, 200), want);
            }
        }
    }
}
