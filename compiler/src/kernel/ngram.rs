//! Rows of a table by the hash of the last tokens.

use super::prelude::*;

kernel! {
    /// In: tokens [b, t] i64, and if `state` past [b, order − 1] i64, ids plus 1, 0 for none. Out: rows [b, t] i64, whole
    /// [b, t], the next past. The row of the last `order` tokens by the hash in `op/ngram.rs`, with whole = 1; where there
    /// are fewer, both are 0.
    Ngram {
        /// Tokens of an n-gram.
        order: i64,
        /// Rows of the table.
        rows: i64,
        /// Whether it goes on after earlier tokens.
        state: bool,
    }
    facts: |_| Facts::new("ngram", Class::Library).cheap().reads_bf16(),
    results: |k, x| {
        let tokens = take(x.dims(0), 2);
        let past = [Extent::Batch, Extent::Fixed(k.order - 1)];
        vec![
            value("rows", tokens, DType::I64),
            f32("whole", tokens),
            value("past", past, DType::I64),
        ]
    },
    flops: |_, _| 0,
    value: |k, x, _| ngram(x[0], k.state.then(|| x[1]), k.order as usize, k.rows as u64),
}

#[cfg(test)]
fn ngram(tokens: &Tensor, past: Option<&Tensor>, order: usize, rows: u64) -> Vec<Tensor> {
    let (batch, time) = (tokens.dims[0], tokens.dims[1]);
    let (mut ids, mut complete, mut next) = (Vec::new(), Vec::new(), Vec::new());
    for b in 0..batch {
        let before = match past {
            Some(past) => past.data[b * (order - 1)..][..order - 1].to_vec(),
            None => vec![0.0; order - 1],
        };
        let new = tokens.data[b * time..][..time].iter().map(|token| token + 1.0);
        let seen: Vec<f64> = before.into_iter().chain(new).collect();
        for window in seen.windows(order).take(time) {
            let is_whole = window.iter().all(|id| *id > 0.0);
            let mut hash = 0xcbf2_9ce4_8422_2325u64 ^ order as u64;
            for id in window {
                hash = (hash ^ (*id as u64).wrapping_sub(1)).wrapping_mul(0x100_0000_01b3);
            }
            let row = (hash ^ (hash >> 32)) % rows;
            ids.push(if is_whole { row as f64 } else { 0.0 });
            complete.push(f64::from(u8::from(is_whole)));
        }
        next.extend_from_slice(&seen[seen.len() - (order - 1)..]);
    }
    let tensor = |dims: &[usize], data| Tensor { dims: dims.to_vec(), data };
    vec![
        tensor(&[batch, time], ids),
        tensor(&[batch, time], complete),
        tensor(&[batch, order - 1], next),
    ]
}
