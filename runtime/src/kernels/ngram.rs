//! Table rows for hashed n-grams, by libtorch, with the hash of `compiler/src/op/ngram.rs`.
//!
//! Only integers are used, so every device computes the same rows.

use tch::{Kind, Tensor};

use super::KernelError;

/// The start of the hash, and its factor: those of FNV-1a.
const START: u64 = 0xcbf2_9ce4_8422_2325;
const FACTOR: i64 = 0x100_0000_01b3;

/// rows [b, t] i64, whole [b, t] of `kind`, past [b, order − 1] i64.
pub fn run(
    tokens: &Tensor,
    past: Option<&Tensor>,
    order: i64,
    rows: i64,
    kind: Kind,
) -> Result<[Tensor; 3], KernelError> {
    let (batch, time) = tokens.size2()?;
    let before = match past {
        Some(past) => past.shallow_clone(),
        None => Tensor::f_zeros([batch, order - 1], (Kind::Int64, tokens.device()))?,
    };
    // 0 where there is no token.
    let seen = Tensor::f_cat(&[before, tokens.f_add_scalar(1)?], 1)?; // [b, order − 1 + t]
    let start = START as i64 ^ order;
    let mut hash = Tensor::f_full([batch, time], start, (Kind::Int64, tokens.device()))?;
    for offset in 0..order {
        let token = seen.f_narrow(1, offset, time)?.f_sub_scalar(1)?;
        // 64 bits that wrap, with and without a sign.
        hash = hash.f_bitwise_xor_tensor(&token)?.f_mul_scalar(FACTOR)?;
    }
    // Shifts of integers with a sign copy it.
    let shifted = |hash: &Tensor, by: i64| {
        let kept = i64::MAX >> (by - 1);
        hash.f_bitwise_right_shift_tensor_scalar(by)?.f_bitwise_and(kept)
    };
    let hash = hash.f_bitwise_xor_tensor(&shifted(&hash, 32)?)?;
    // The remainder without a sign, from that of the upper 63 bits.
    let upper = shifted(&hash, 1)?.f_remainder(rows)?.f_mul_scalar(2)?;
    let row = upper.f_add(&hash.f_bitwise_and(1)?)?.f_remainder(rows)?;
    // If the oldest token is there, all are.
    let is_full = seen.f_narrow(1, 0, time)?.f_gt(0)?;
    let row = row.f_mul(&is_full.f_to_kind(Kind::Int64)?)?;
    let next = super::arrange::copy(&seen.f_narrow(1, time, order - 1)?)?;
    Ok([row, is_full.f_to_kind(kind)?, next])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same in integers without a sign.
    fn row(tokens: &[u64], rows: u64) -> i64 {
        let hash = tokens.iter().fold(START ^ tokens.len() as u64, |hash, token| {
            (hash ^ token).wrapping_mul(FACTOR as u64)
        });
        ((hash ^ (hash >> 32)) % rows) as i64
    }

    #[test]
    fn rows_are_those_of_unsigned_integers() {
        let ids: Vec<i64> = (0..200).map(|n| n * n * 7919 % 50_000).collect();
        let tokens = Tensor::from_slice(&ids).reshape([2, 100]);
        for (order, rows) in [(2, 64), (3, 1), (4, 67_108_863), (64, 1009)] {
            let [got, is_full, next] = run(&tokens, None, order, rows, Kind::Float).unwrap();
            for (b, of) in ids.chunks(100).enumerate() {
                for at in 0..100usize {
                    let index = [b as i64, at as i64];
                    let there = at + 1 >= order as usize;
                    assert_eq!(is_full.double_value(&index), f64::from(u8::from(there)));
                    let window = (at + 1).saturating_sub(order as usize)..=at;
                    let window: Vec<u64> = of[window].iter().map(|id| *id as u64).collect();
                    let want = if there { row(&window, rows as u64) } else { 0 };
                    assert_eq!(got.int64_value(&index), want, "{order} {rows} {at}");
                }
            }
            assert!(next == tokens.narrow(1, 101 - order, order - 1) + 1);
        }
    }
}
