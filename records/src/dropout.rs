//! The draws of dropout: which elements are kept.
//!
//! An element's draw is a function of its key, place, window and number alone, in integer arithmetic, so that threads,
//! micro-batches, ranks, resumption, recomputation and platforms get equal bits.

use blake3::Hasher;

use crate::init::philox::Philox;

/// Elements that are drawn together.
const GROUP: u64 = 32;

/// The draws of one call of `dropout`.
#[derive(Clone, Copy, Debug)]
pub struct Mask {
    /// The first two words of the digest of key and place.
    pub philox: [u32; 2],
    /// Words below it are dropped.
    pub threshold: u64,
    /// What kept elements are multiplied by: 1 / (1 − rate).
    pub factor: f64,
}

/// The key of a run's dropout: windows are a function of `seeds.data`, so their draws are, too.
pub fn key(dropout: u64, data: u64) -> u64 {
    let mut hasher = Hasher::new_derive_key("canonc 1 dropout key");
    hasher.update(&dropout.to_le_bytes()).update(&data.to_le_bytes());
    hasher.finalize().as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl Mask {
    /// The draws of a call, by its name in the graph, at this rate, which is below 1.
    pub fn new(key: u64, call: &str, rate: f64) -> Mask {
        let mut hasher = Hasher::new_derive_key("canonc 1 dropout");
        hasher.update(&key.to_le_bytes()).update(call.as_bytes());
        let two_to_32 = 4_294_967_296.0;
        Mask {
            philox: Philox::new(&hasher.finalize()).key(),
            threshold: (rate * two_to_32).round() as u64,
            factor: 1.0 / (1.0 - rate),
        }
    }

    /// `y[i]` = `x[i]` times the factor, or 0, for elements `first..` of a window.
    pub fn apply(&self, window: u64, first: u64, x: &[f32], y: &mut [f32]) {
        let philox = Philox::at(self.philox, window);
        let factor = self.factor as f32;
        let (mut x, mut y, mut at) = (x, y, first);
        while !x.is_empty() {
            // A range that begins inside a group of blocks takes the rest of it.
            let skipped = (at % GROUP) as usize;
            let words = philox.words((at - at % GROUP) / 4);
            let words = words.get(skipped..).unwrap_or_default();
            let count = words.len().min(x.len()).min(y.len());
            let (now, later) = x.split_at(count);
            let (out, rest) = std::mem::take(&mut y).split_at_mut(count);
            for ((x, y), word) in now.iter().zip(out).zip(words) {
                *y = if u64::from(*word) < self.threshold { 0.0 } else { x * factor };
            }
            (x, y, at) = (later, rest, at + count as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(mask: &Mask, window: u64, first: u64, count: usize) -> Vec<bool> {
        let mut y = vec![0.0; count];
        mask.apply(window, first, &vec![1.0; count], &mut y);
        y.iter().map(|y| *y != 0.0).collect()
    }

    #[test]
    fn the_bits_never_change() {
        // Every run with dropout depends on these bits.
        let mut hasher = Hasher::new();
        for (rate, call) in [(0.1, "layers.3.dropout.0"), (0.5, "dropout.0")] {
            for window in [0, 7, 1 << 40] {
                let mask = Mask::new(42, call, rate);
                let kept = kept(&mask, window, 64, 1001);
                hasher.update(&kept.iter().map(|kept| u8::from(*kept)).collect::<Vec<_>>());
            }
        }
        hasher.update(&key(1, 2).to_le_bytes());
        assert_eq!(
            hasher.finalize().to_hex().as_str(),
            "9dbe417c3e506e14f3d5fe2af06b3e76aac9ffb96c99581bf7c37d12e47306ef"
        );
    }

    #[test]
    fn any_cut_gives_equal_bits() {
        let mask = Mask::new(3, "layers.0.dropout.1", 0.3);
        let full = kept(&mask, 5, 0, 323);
        for at in [0, 1, 31, 32, 33, 200, 323] {
            let parts = [kept(&mask, 5, 0, at), kept(&mask, 5, at as u64, full.len() - at)];
            assert_eq!(parts.concat(), full);
        }
    }

    #[test]
    fn a_share_of_about_the_rate_is_dropped_independently() {
        let count = 1 << 16;
        for rate in [0.0, 0.1, 0.5, 0.9] {
            let kept_by = |key, call, window| kept(&Mask::new(key, call, rate), window, 0, count);
            let one = kept_by(1, "dropout.0", 0);
            let share = |kept: &mut dyn Iterator<Item = bool>| {
                kept.filter(|kept| !kept).count() as f64 / count as f64
            };
            let off = |share: f64, want: f64| {
                (share - want).abs() / (want * (1.0 - want) / count as f64).sqrt().max(1e-9)
            };
            assert!(off(share(&mut one.iter().copied()), rate) < 4.0, "{rate}");
            // Neighbours, windows, places and keys: both of a pair are dropped with the product of the rates.
            let shifted: Vec<bool> = one.iter().skip(1).chain(&one[..1]).copied().collect();
            let others = [
                shifted,
                kept_by(1, "dropout.0", 1),
                kept_by(1, "dropout.1", 0),
                kept_by(2, "dropout.0", 0),
            ];
            for other in others {
                let both = share(&mut one.iter().zip(&other).map(|(a, b)| *a || *b));
                assert!(off(both, rate * rate) < 4.0, "{rate}: {both}");
            }
        }
    }

    #[test]
    fn kept_elements_are_scaled_and_dropped_ones_are_zero() {
        let mask = Mask::new(1, "dropout.0", 0.25);
        let x = [f32::NAN, f32::INFINITY, -3.0, 3.0].repeat(20);
        let mut y = vec![7.0; x.len()];
        mask.apply(0, 0, &x, &mut y);
        for ((x, y), kept) in x.iter().zip(&y).zip(kept(&mask, 0, 0, 80)) {
            let want = if kept { x * (4.0 / 3.0) } else { 0.0 };
            assert_eq!(y.to_bits(), want.to_bits());
        }
    }
}
