//! CPython's random numbers, bit for bit: the draws of CPython 3.11's `random.Random(seed)`, in the same order and using
//! the same generator words.
//!
//! Every published sample is a function of these draws, so one extra or missing draw, or one reversed comparison, changes
//! all later data. The vectors under `tests/golden/playground` (rng, set_order, capo) pin them. `set` is the hash of an
//! int tuple and the iteration order of a set of them; `numpy` is numpy's legacy draws.

pub mod numpy;
pub mod set;

const N: usize = 624;
const M: usize = 397;

/// `random.Random`: MT19937 with CPython's derived draws.
///
/// Matsumoto and Nishimura 1998, "Mersenne Twister"; seeding is the authors' `init_by_array`.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u32; N],
    /// The tempered words of this state, computed together so that the compiler can vectorise the loop.
    words: [u32; N],
    next: usize,
}

impl Random {
    /// `random.Random(seed)`.
    pub fn new(seed: u64) -> Random {
        Random::from_words(&[seed as u32, (seed >> 32) as u32])
    }

    /// `random.Random(s)`, where the absolute value of the integer `s` has these 32-bit words, least significant first.
    pub fn from_words(words: &[u32]) -> Random {
        let used = words.iter().rposition(|&word| word != 0).map_or(1, |last| last + 1);
        let key = words.get(..used).unwrap_or(&[0]);
        let mut random = Random { state: [0; N], words: [0; N], next: N };
        init_by_array(&mut random.state, key);
        random
    }

    /// `random.Random(int.from_bytes(key, "little"))`: how keyed windows seed their own generator.
    pub fn from_key(key: &[u8; 32]) -> Random {
        let mut words = [0u32; 8];
        for (word, bytes) in words.iter_mut().zip(key.chunks_exact(4)) {
            *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
        }
        Random::from_words(&words)
    }

    /// One generator word: `getrandbits(32)`.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        if self.next >= N {
            self.refill();
        }
        let word = self.words[self.next];
        self.next += 1;
        word
    }

    /// `random()`: a multiple of 2^-53 in [0, 1).
    #[inline]
    pub fn random(&mut self) -> f64 {
        let high = f64::from(self.next_u32() >> 5);
        let low = f64::from(self.next_u32() >> 6);
        (high * 67_108_864.0 + low) * (1.0 / 9_007_199_254_740_992.0)
    }

    /// `getrandbits(bits)` for 0 to 128 bits. Words fill from the low end; only the last one is shifted.
    pub fn getrandbits(&mut self, bits: u32) -> u128 {
        debug_assert!(bits <= 128);
        let mut value = 0;
        let mut filled = 0;
        while filled < bits {
            let left = bits - filled;
            let word = self.next_u32() >> (32 - left.min(32));
            value |= u128::from(word) << filled;
            filled += 32;
        }
        value
    }

    /// `_randbelow(n)`: uniform over 0..n, by rejection over the bit length of `n`, so `n` = 1 draws too. `n` = 0 gives
    /// 0 without a draw, as in CPython.
    #[inline]
    pub fn below(&mut self, n: u32) -> u32 {
        if n == 0 {
            return 0;
        }
        let shift = n.leading_zeros();
        // Up to half of all words are rejected, unpredictably, so test four at a time without a branch.
        if let Some([one, two, three, four]) =
            self.words.get(self.next..).and_then(|words| words.first_chunk())
        {
            let words = [one >> shift, two >> shift, three >> shift, four >> shift];
            let taken = words.map(|word| u32::from(word < n));
            let taken = taken[0] | taken[1] << 1 | taken[2] << 2 | taken[3] << 3;
            if taken != 0 {
                let first = taken.trailing_zeros() as usize & 3;
                self.next += first + 1;
                return words[first];
            }
            self.next += 4;
        }
        loop {
            let word = self.next_u32() >> shift;
            if word < n {
                return word;
            }
        }
    }

    /// [`Random::below`] over an index range.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        match u32::try_from(len) {
            Ok(len) => self.below(len) as usize,
            Err(_) => self.below_wide(len as u64) as usize,
        }
    }

    fn below_wide(&mut self, n: u64) -> u64 {
        if let Ok(n) = u32::try_from(n) {
            return u64::from(self.below(n));
        }
        let bits = 64 - n.leading_zeros();
        loop {
            let value = self.getrandbits(bits) as u64;
            if value < n {
                return value;
            }
        }
    }

    /// `randint(low, high)`, both ends included. The caller guarantees `low <= high`.
    pub fn randint(&mut self, low: i64, high: i64) -> i64 {
        debug_assert!(low <= high);
        let span = (high as u64).wrapping_sub(low as u64).wrapping_add(1);
        low.wrapping_add(self.below_wide(span) as i64)
    }

    /// `shuffle(items)`, of at most `u32::MAX` items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        self.pick_down(items, 2);
    }

    /// `sample(range(n), k)` into `out`, in pick order. The caller guarantees `k <= n` (CPython raises otherwise).
    pub fn sample(&mut self, n: u32, k: u32, out: &mut Vec<u32>) {
        debug_assert!(k <= n);
        out.clear();
        if n <= sample_set_size(k) {
            // CPython writes the last live entry over the picked one. The freed entry can hold the pick, so the tail
            // holds the picks in reverse order.
            out.extend(0..n);
            self.pick_down(out, n - k + 1);
            out.reverse();
            out.truncate(k as usize);
        } else {
            self.sample_by_rejection(n, k, out);
        }
    }

    /// [`Random::sample`] for `k` up to 4, without a list: the first `k` entries are the picks.
    #[inline]
    pub fn sample_few(&mut self, n: u32, k: u32) -> [u32; 4] {
        debug_assert!(k <= n && k <= 4);
        let mut picks = [u32::MAX; 4];
        if n <= sample_set_size(k) {
            // Stores only the pool entries that differ from 0..n: each picked position holds the last live entry.
            let (mut places, mut entries) = ([u32::MAX; 4], [0; 4]);
            for i in 0..k.min(4) {
                let position = self.below(n - i);
                let (mut pick, mut last) = (position, n - i - 1);
                for (&changed, &entry) in places.iter().zip(&entries) {
                    pick = if changed == position { entry } else { pick };
                    last = if changed == n - i - 1 { entry } else { last };
                }
                // A position that changes again is found under its newest entry only.
                for changed in &mut places {
                    *changed = if *changed == position { u32::MAX } else { *changed };
                }
                let i = i as usize;
                (picks[i], places[i], entries[i]) = (pick, position, last);
            }
        } else {
            for i in 0..k.min(4) as usize {
                picks[i] = loop {
                    let pick = self.below(n);
                    if !picks.contains(&pick) {
                        break pick;
                    }
                };
            }
        }
        picks
    }

    /// For `live` from all items down to `least`: swaps a drawn item among the first `live` with the last of them. A
    /// rejected word swaps the last one with itself, which avoids a branch.
    fn pick_down<T>(&mut self, items: &mut [T], least: u32) {
        debug_assert!(u32::try_from(items.len()).is_ok() && least > 0);
        let mut live = items.len() as u32;
        while live >= least {
            let shift = live.leading_zeros();
            // All numbers from `live` down to here have the same bit length.
            let least = least.max(1 << (31 - shift));
            while live >= least {
                let word = self.next_u32() >> shift;
                let taken = word < live;
                let last = live as usize - 1;
                items.swap(if taken { word as usize } else { last }, last);
                live -= u32::from(taken);
            }
        }
    }

    fn sample_by_rejection(&mut self, n: u32, k: u32, out: &mut Vec<u32>) {
        // A short scan is cheaper than a set; one bit per candidate keeps long samples linear.
        let mut seen = if k > 64 { vec![0u64; n as usize / 64 + 1] } else { Vec::new() };
        while out.len() < k as usize {
            let pick = self.below(n);
            let taken = match seen.get_mut(pick as usize / 64) {
                Some(bits) => {
                    let bit = 1 << (pick % 64);
                    let taken = *bits & bit != 0;
                    *bits |= bit;
                    taken
                }
                None => out.contains(&pick),
            };
            if !taken {
                out.push(pick);
            }
        }
    }

    /// `choices(population, weights)[0]` as an index into the population.
    pub fn choose(&mut self, weights: &Weights) -> usize {
        let Weights { cumulative } = weights;
        let Some((&total, searched)) = cumulative.split_last() else { return 0 };
        let x = self.random() * (total + 0.0);
        searched.partition_point(|&bound| bound <= x)
    }

    /// `choices(range(n))[0]`.
    pub fn choose_uniform(&mut self, n: u32) -> u32 {
        (self.random() * f64::from(n)) as u32
    }

    fn refill(&mut self) {
        twist(&mut self.state);
        for (word, &raw) in self.words.iter_mut().zip(&self.state) {
            let mut y = raw;
            y ^= y >> 11;
            y ^= (y << 7) & 0x9d2c_5680;
            y ^= (y << 15) & 0xefc6_0000;
            *word = y ^ (y >> 18);
        }
        self.next = 0;
    }
}

/// Cumulative weights of `choices`: running left-to-right f64 sums.
#[derive(Clone, Debug)]
pub struct Weights {
    cumulative: Vec<f64>,
}

impl Weights {
    /// Running sums of these weights.
    pub fn new(weights: impl IntoIterator<Item = f64>) -> Weights {
        let mut cumulative: Vec<f64> = Vec::new();
        for weight in weights {
            // The first sum is the first weight: 0.0 + w differs from w only for -0.0, which is not a valid weight.
            cumulative.push(cumulative.last().copied().unwrap_or(0.0) + weight);
        }
        Weights { cumulative }
    }

    /// The published law of sizes 3..=largest, p(n) proportional to 1 / (sqrt(largest) + n). Index `i` of a draw means
    /// size `i + 3`.
    pub fn sizes(largest: u32) -> Weights {
        let bias = libm::sqrt(f64::from(largest));
        let raw: Vec<f64> =
            (3..=largest).map(|size| 1.0 / ((f64::from(size) + bias) + 1e-12)).collect();
        let sum: f64 = raw.iter().fold(0.0, |sum, weight| sum + weight);
        Weights::new(raw.iter().map(|weight| weight / sum))
    }
}

/// Up to this many candidates `sample` copies the population; above it, it draws again for picks already taken. CPython
/// finds the exponent with a float logarithm; 3k is never a power of 4, so this integer rule gives the same result.
fn sample_set_size(k: u32) -> u32 {
    if k <= 5 {
        return 21;
    }
    let mut power: u64 = 4;
    while power < 3 * u64::from(k) {
        power *= 4;
    }
    u32::try_from(21 + power).unwrap_or(u32::MAX)
}

fn init_by_array(state: &mut [u32; N], key: &[u32]) {
    state[0] = 19_650_218;
    for k in 1..N {
        let last = state[k - 1];
        state[k] = 1_812_433_253u32.wrapping_mul(last ^ (last >> 30)).wrapping_add(k as u32);
    }
    let (mut i, mut j) = (1, 0);
    for _ in 0..N.max(key.len()) {
        let last = state[i - 1];
        state[i] = (state[i] ^ (last ^ (last >> 30)).wrapping_mul(1_664_525))
            .wrapping_add(key[j])
            .wrapping_add(j as u32);
        i = step(state, i);
        j = if j + 1 >= key.len() { 0 } else { j + 1 };
    }
    for _ in 0..N - 1 {
        let last = state[i - 1];
        state[i] =
            (state[i] ^ (last ^ (last >> 30)).wrapping_mul(1_566_083_941)).wrapping_sub(i as u32);
        i = step(state, i);
    }
    state[0] = 0x8000_0000;
}

fn step(state: &mut [u32; N], i: usize) -> usize {
    if i + 1 < N {
        return i + 1;
    }
    state[0] = state[N - 1];
    1
}

fn twist(state: &mut [u32; N]) {
    fn mix(low: u32, high: u32, far: u32) -> u32 {
        let y = (low & 0x8000_0000) | (high & 0x7fff_ffff);
        far ^ (y >> 1) ^ (0x9908_b0df & (y & 1).wrapping_neg())
    }
    for k in 0..N - M {
        state[k] = mix(state[k], state[k + 1], state[k + M]);
    }
    for k in N - M..N - 1 {
        state[k] = mix(state[k], state[k + 1], state[k + M - N]);
    }
    state[N - 1] = mix(state[N - 1], state[0], state[M - 1]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use support::golden;

    fn hex_float(text: &str) -> f64 {
        let (sign, text) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
        let (mantissa, exponent) = text.strip_prefix("0x").unwrap().split_once('p').unwrap();
        let (integer, fraction) = mantissa.split_once('.').unwrap();
        let digits = u64::from_str_radix(&format!("{integer}{fraction}"), 16).unwrap();
        let exponent = exponent.parse::<i32>().unwrap() - 4 * fraction.len() as i32;
        sign * digits as f64 * libm::ldexp(1.0, exponent)
    }

    fn integers(value: &Value) -> Vec<i64> {
        value.as_array().unwrap().iter().map(|item| item.as_i64().unwrap()).collect()
    }

    #[test]
    fn draws_equal_cpython() {
        let cases = golden::cases("rng");
        assert_eq!(cases.len(), 16);
        for case in &cases {
            if case["id"].as_str().unwrap().starts_with("ndist") {
                check_sizes(case);
            } else {
                check_draws(case);
            }
        }
    }

    fn check_draws(case: &Value) {
        let seed: u64 = case["seed"].as_str().unwrap().parse().unwrap();
        let fresh = || Random::new(seed);

        let bytes: Vec<u8> = fresh().state.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(golden::sha256(&bytes), case["state624_sha256_after_seed"]);
        assert_eq!(fresh().next, case["index_after_seed"]);

        let mut random = fresh();
        let words: Vec<i64> = (0..1305).map(|_| i64::from(random.next_u32())).collect();
        assert_eq!(words[..20], integers(&case["u32_first20"]));
        assert_eq!(words[1300..], integers(&case["u32_1300_to_1305"]));

        let mut random = fresh();
        for want in case["random_hex_first8"].as_array().unwrap() {
            assert_eq!(random.random(), hex_float(want.as_str().unwrap()));
        }
        // uniform(0, 1) is 0 + (1 - 0) * random(). No published path uses it.
        assert_eq!(fresh().random(), hex_float(case["uniform_0_1_hex"].as_str().unwrap()));

        let mut random = fresh();
        for pair in case["getrandbits_seq"].as_array().unwrap() {
            let bits = u32::try_from(pair[0].as_u64().unwrap()).unwrap();
            assert_eq!(random.getrandbits(bits).to_string(), pair[1].as_str().unwrap(), "{bits}");
        }

        check_choices(case, seed);
    }

    /// What `randint`, `choice`, `shuffle`, `sample` and `choices` draw.
    fn check_choices(case: &Value, seed: u64) {
        let fresh = || Random::new(seed);
        let repeat = |count: usize, draw: &dyn Fn(&mut Random) -> i64| -> Vec<i64> {
            let mut random = fresh();
            (0..count).map(|_| draw(&mut random)).collect()
        };
        let check = |name: &str, got: Vec<i64>| assert_eq!(got, integers(&case[name]), "{name}");
        check("randint_0_9_x30", repeat(30, &|random| random.randint(0, 9)));
        check("randint_m5_5_x10", repeat(10, &|random| random.randint(-5, 5)));
        check("randint_0_2p33_x5", repeat(5, &|random| random.randint(0, 1 << 33)));
        let mut random = fresh();
        let mut ones: Vec<i64> = (0..5).map(|_| random.randint(1, 1)).collect();
        ones.push(i64::from(random.next_u32()));
        check("randint_1_1_x5_then_u32", ones);

        let mut random = fresh();
        let letters: String = (0..20).map(|_| char::from(b"abc"[random.index(3)])).collect();
        assert_eq!(letters, case["choice_abc_x20"]);

        let mut random = fresh();
        let mut items: Vec<i64> = (0..20).collect();
        random.shuffle(&mut items);
        random.shuffle(&mut [0]);
        items.push(i64::from(random.next_u32()));
        check("shuffle_20_then_1_then_u32", items);

        let mut picks = Vec::new();
        for row in case["sample_range_n_k_then_u32"].as_array().unwrap() {
            let (n, k) = (row[0].as_u64().unwrap() as u32, row[1].as_u64().unwrap() as u32);
            let mut random = fresh();
            random.sample(n, k, &mut picks);
            if k <= 4 {
                let few = fresh().sample_few(n, k);
                assert_eq!(few[..k as usize], picks, "sample(range({n}), {k})");
            }
            let got: Vec<i64> = picks.iter().map(|&pick| i64::from(pick)).collect();
            assert_eq!(got, integers(&row[2]), "sample(range({n}), {k})");
            assert_eq!(random.next_u32(), row[3], "sample(range({n}), {k})");
        }

        let weights = Weights::new([1.0, 2.0, 3.5, 0.0, 4.0]);
        check("choices_w_1_2_3.5_0_4_x20", repeat(20, &|random| random.choose(&weights) as i64));
        check("choices_unweighted_7_x20", repeat(20, &|random| random.choose_uniform(7).into()));
    }

    fn check_sizes(case: &Value) {
        let largest = case["N"].as_u64().unwrap() as u32;
        let hex = |name: &str| hex_float(case[name].as_str().unwrap());
        assert_eq!(libm::sqrt(f64::from(largest)), hex("bias_hex"));
        let weights = Weights::sizes(largest);
        assert_eq!(weights.cumulative[0], hex("w_first_hex"));
        assert_eq!(*weights.cumulative.last().unwrap(), hex("cum_last_hex"));
        let bytes: Vec<u8> = weights.cumulative.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        assert_eq!(golden::sha256(&bytes), case["cum_sha256_f64le"]);
        let mut random = Random::new(42);
        let draws: Vec<i64> = (0..50).map(|_| random.choose(&weights) as i64 + 3).collect();
        assert_eq!(draws, integers(&case["draws_seed42_x50"]));
    }

    #[test]
    fn rejection_with_a_bit_set_equals_the_scan() {
        // Above 64 picks, a bitmap holds the taken ones; CPython's set holds the same ones.
        let (n, k) = (1000, 65);
        let mut by_bits = Vec::new();
        Random::new(3).sample(n, k, &mut by_bits);
        let mut random = Random::new(3);
        let mut by_scan = Vec::new();
        while by_scan.len() < k as usize {
            let pick = random.below(n);
            if !by_scan.contains(&pick) {
                by_scan.push(pick);
            }
        }
        assert_eq!(by_bits, by_scan);
    }

    #[test]
    fn a_few_picks_equal_a_sample() {
        let (mut random, mut other, mut picks) = (Random::new(3), Random::new(3), Vec::new());
        for round in 0..4000 {
            let n = 1 + round % 30;
            let k = 1 + round / 30 % n.min(4);
            random.sample(n, k, &mut picks);
            assert_eq!(other.sample_few(n, k)[..k as usize], picks, "sample(range({n}), {k})");
        }
        assert_eq!(random.next_u32(), other.next_u32());
    }

    #[test]
    fn below_zero_candidates_draws_nothing() {
        let mut random = Random::new(1);
        assert_eq!(random.below(0), 0);
        assert_eq!(random.next_u32(), Random::new(1).next_u32());
    }

    #[test]
    fn a_key_is_the_little_endian_integer() {
        let mut key = [0u8; 32];
        key[0] = 42;
        assert_eq!(Random::from_key(&key).next_u32(), Random::new(42).next_u32());
    }
}
