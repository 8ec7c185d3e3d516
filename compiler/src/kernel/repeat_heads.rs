//! Heads with copies beside them, and the gradient.

use super::prelude::*;

kernel! {
    /// In: x [b, t, h, d]. Out: y [b, t, h·times, d]; head j is head ⌊j/times⌋ of x.
    RepeatHeads {
        /// Copies of each head.
        times: i64,
    }
    facts: |_| Facts::new("repeat_heads", Class::Library).cheap().reads_bf16().apart(Apart::Tokens),
    results: |k, x| vec![value("y", per_head(x.dims(0), |h| h * k.times), x.dtype(0))],
    flops: |_, _| 0,
    value: |k, x, _| {
        let (mut dims, times) = (x[0].dims.clone(), k.times as usize);
        dims[2] *= times;
        vec![Tensor { dims, data: x[0].rows().flat_map(|head| head.repeat(times)).collect() }]
    },
}

kernel! {
    /// In: dy [b, t, h·times, d]. Out: dx [b, t, h, d], summed over each head's copies.
    RepeatHeadsGrad {
        /// Copies of each head.
        times: i64,
    }
    facts: |_| Facts::new("repeat_heads_grad", Class::Library).rounds_between(true),
    results: |k, x| vec![value("dx", per_head(x.dims(0), |h| h / k.times.max(1)), x.dtype(0))],
    flops: |_, s| s.x(),
    value: |k, x, _| {
        let (dy, times, width) = (x[0], k.times as usize, x[0].width());
        let mut dims = dy.dims.clone();
        dims[2] /= times;
        let mut dx = Tensor::zeros(dims);
        for (n, head) in dy.rows().enumerate() {
            for (i, x) in head.iter().enumerate() {
                dx.data[n / times * width + i] += x;
            }
        }
        vec![dx]
    },
}
