//! Numbers that are dropped at random.

use std::rc::Rc;

use super::prelude::*;

kernel! {
    /// In: x [b, t, …], key [] i64, window [] i64. Out: y [b, t, …] = x / (1 − rate) where it is kept, else 0, with
    /// 1 / (1 − rate) rounded once. Let row r be row r of the batch, and e the number of an element in it, in (t, …)
    /// order. It is kept if word e mod 4 of block ⌊e / 4⌋ of Philox4x32-10 is at least round(rate · 2³²). The generator's
    /// key is of `key` and `place` (`records/src/dropout.rs`); the upper half of its counter is `window` + r. This is its
    /// own gradient rule: dx from dy.
    Dropout {
        /// The probability of 0.
        rate: Decimal,
        /// Name of the call in its graph.
        place: Rc<str>,
    }
    facts: |_| Facts::new("dropout", Class::Ours).cheap().host(2),
    results: |_, x| vec![x.like("y", 0)],
    flops: |_, s| s.y(),
    value: |k, x, _| vec![dropout(x, k.rate.to_f64(), &k.place)],
}

/// A block of Philox4x32-10 (Salmon et al. 2011, section 3.3).
#[cfg(test)]
fn philox(mut x: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let [a, b] = [u64::from(x[0]) * 0xd251_1f53, u64::from(x[2]) * 0xcd9e_8d57]
            .map(|p| [(p >> 32) as u32, p as u32]);
        x = [b[0] ^ x[1] ^ key[0], b[1], a[0] ^ x[3] ^ key[1], a[1]];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    x
}

#[cfg(test)]
fn dropout(x: &[&Tensor], rate: f64, call: &str) -> Tensor {
    let [x, key, window] = x else { panic!("{} operands", x.len()) };
    let mut hasher = blake3::Hasher::new_derive_key("canonc 1 dropout");
    hasher.update(&(key.data[0] as i64).to_le_bytes()).update(call.as_bytes());
    let hash = hasher.finalize();
    let word = |at: usize| u32::from_le_bytes(hash.as_bytes()[4 * at..][..4].try_into().unwrap());
    let row = x.data.len() / x.dims[0];
    let threshold = (rate * f64::from(u32::MAX) + rate).round() as u64;
    let kept = |(i, x): (usize, &f64)| {
        let (window, e) = (window.data[0] as u64 + (i / row) as u64, (i % row) as u64);
        let (window, block) = ([window as u32, (window >> 32) as u32], e / 4);
        let counter = [block as u32, (block >> 32) as u32, window[0], window[1]];
        let word = philox(counter, [word(0), word(1)])[e as usize % 4];
        if u64::from(word) < threshold { 0.0 } else { x * (1.0 / (1.0 - rate)) }
    };
    x.like(x.data.iter().enumerate().map(kept).collect())
}
