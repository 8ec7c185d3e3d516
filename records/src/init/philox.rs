//! Uniform draws by a 256-bit key and an element number.
//!
//! It is Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3") with 64 bits of
//! the key as its key, 64 more as the upper half of its counter and the block number as the lower half; each block of four
//! words gives two elements.

/// Philox under one key.
#[derive(Clone, Copy, Debug)]
pub struct Philox {
    key: [u32; 2],
    upper: [u32; 2],
}

/// Blocks computed together, so that the compiler can keep them in vector registers.
const LANES: usize = 8;

impl Philox {
    /// The generator of a key, at its first block.
    pub fn new(key: &blake3::Hash) -> Philox {
        let mut words = [0u32; 4];
        for (word, bytes) in words.iter_mut().zip(key.as_bytes().chunks_exact(4)) {
            *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
        }
        let [one, two, three, four] = words;
        Philox { key: [one, two], upper: [three, four] }
    }

    /// The generator with this key, and this number as the upper half of its counter.
    pub fn at(key: [u32; 2], upper: u64) -> Philox {
        Philox { key, upper: [upper as u32, (upper >> 32) as u32] }
    }

    /// Its key.
    pub fn key(&self) -> [u32; 2] {
        self.key
    }

    /// The words of blocks `block..block + 8`, in order.
    pub fn words(&self, block: u64) -> [u32; 4 * LANES] {
        let words = lanes(self, block);
        std::array::from_fn(|at| words[at % 4][at / 4])
    }

    /// The draws of elements `first..first + out.len()`: multiples of 2^-52 plus 2^-53, so never 0 or 1.
    pub fn uniforms(&self, first: u64, out: &mut [f64]) {
        let mut block = first / 2;
        // An odd start takes the second half of its block.
        let (head, rest) = out.split_at_mut(usize::from(first % 2 == 1).min(out.len()));
        if let [only] = head {
            *only = unit(lanes(self, block), 0)[1];
            block += 1;
        }
        for chunk in rest.chunks_mut(2 * LANES) {
            let words = lanes(self, block);
            for (lane, pair) in chunk.chunks_mut(2).enumerate() {
                for (out, value) in pair.iter_mut().zip(unit(words, lane)) {
                    *out = value;
                }
            }
            block = block.wrapping_add(LANES as u64);
        }
    }
}

fn unit(words: [[u32; LANES]; 4], lane: usize) -> [f64; 2] {
    let [a, b, c, d] = words.map(|words| u64::from(words[lane]));
    [a | b << 32, c | d << 32].map(|bits| ((bits >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64))
}

/// Blocks `block..block + LANES`.
fn lanes(philox: &Philox, block: u64) -> [[u32; LANES]; 4] {
    let Philox { key, upper } = *philox;
    let blocks: [u64; LANES] = std::array::from_fn(|lane| block.wrapping_add(lane as u64));
    let (low, high) = (blocks.map(|block| block as u32), blocks.map(|block| (block >> 32) as u32));
    rounds([low, high, [upper[0]; LANES], [upper[1]; LANES]], key)
}

fn rounds(mut counters: [[u32; LANES]; 4], mut key: [u32; 2]) -> [[u32; LANES]; 4] {
    let [x0, x1, x2, x3] = &mut counters;
    for _ in 0..10 {
        for (((x0, x1), x2), x3) in x0.iter_mut().zip(&mut *x1).zip(&mut *x2).zip(&mut *x3) {
            let first = u64::from(*x0) * 0xd251_1f53;
            let second = u64::from(*x2) * 0xcd9e_8d57;
            (*x0, *x1) = ((second >> 32) as u32 ^ *x1 ^ key[0], second as u32);
            (*x2, *x3) = ((first >> 32) as u32 ^ *x3 ^ key[1], first as u32);
        }
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_equal_the_authors_known_answers() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, want) in cases {
            let words = rounds(counter.map(|word| [word; LANES]), key);
            assert_eq!(words, want.map(|word| [word; LANES]));
        }
    }

    #[test]
    fn words_are_those_of_numbered_blocks() {
        let philox = Philox::at([1, 2], 3 | 4 << 32);
        let words = philox.words(6);
        for (at, word) in words.into_iter().enumerate() {
            assert_eq!(
                word,
                rounds([[6 + at as u32 / 4; LANES], [0; LANES], [3; LANES], [4; LANES]], [1, 2])
                    [at % 4][0]
            );
        }
    }

    #[test]
    fn elements_are_halves_of_numbered_blocks() {
        let philox = Philox { key: [1, 2], upper: [3, 4] };
        let mut all = [0.0; 100];
        philox.uniforms(6, &mut all);
        for (at, &value) in all.iter().enumerate() {
            let element = 6 + at as u64;
            assert_eq!(value, unit(lanes(&philox, element / 2), 0)[element as usize % 2]);
            assert!(value > 0.0 && value < 1.0);
        }
        let mut part = [0.0; 7];
        philox.uniforms(9, &mut part);
        assert_eq!(part, all[3..10]);
        // The counter's lower half is 64 bits: blocks past 2^32 differ from the first ones.
        let (mut near, mut far) = ([0.0; 2], [0.0; 2]);
        philox.uniforms(0, &mut near);
        philox.uniforms(1 << 33, &mut far);
        assert_ne!(near, far);
    }
}
