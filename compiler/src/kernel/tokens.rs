//! Sums and means over batch and time.

use super::prelude::*;

kernel! {
    /// In: dy [b, t, dims…]. Out: [dims…] = Σ_{b,t} dy: gradients of biases and of parameters that
    /// were broadcast over batch and time.
    SumTokens
    facts: |_| Facts::new("sum_tokens", Class::Ours),
    results: |_, x| vec![f32("sum", skip(x.dims(0), 2))],
    flops: |_, s| s.x(),
    value: |_, x, _| vec![sum(x[0])],
}

#[cfg(test)]
pub(super) fn sum(x: &Tensor) -> Tensor {
    let dims = x.dims[2..].to_vec();
    let inner: usize = dims.iter().product();
    let mut sum = Tensor::zeros(dims);
    for (at, x) in x.data.iter().enumerate() {
        sum.data[at % inner] += x;
    }
    sum
}

kernel! {
    /// In: x [b, t, c]. Out: \[c\] f32: the mean over b and t.
    MeanTokens
    facts: |_| Facts::new("mean_tokens", Class::Ours),
    results: |_, x| vec![f32("mean", skip(x.dims(0), 2))],
    flops: |_, s| s.x(),
    value: |_, x, _| {
        let tokens = (x[0].dims[0] * x[0].dims[1]) as f64;
        vec![sum(x[0]).map(|sum| sum / tokens)]
    },
}

kernel! {
    /// In: dmean \[c\], x [b, t, c]. Out: dx [b, t, c] = dmean / (b t).
    MeanTokensGrad
    facts: |_| Facts::new("mean_tokens_grad", Class::Library),
    results: |_, x| vec![x.like("dx", 1)],
    flops: |_, _| 0,
    value: |_, x, _| {
        let (tokens, width) = ((x[1].dims[0] * x[1].dims[1]) as f64, x[0].data.len());
        vec![Tensor::from_fn(x[1].dims.clone(), |i| x[0].data[i % width] / tokens)]
    },
}
