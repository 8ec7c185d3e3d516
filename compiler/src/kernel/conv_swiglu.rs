//! A convolution over time with the gated unit after it, and its gradient.

use super::prelude::*;
#[cfg(test)]
use super::{Activation, causal_conv::reference::Conv, swiglu};

kernel! {
    /// `CausalConv` of gate and up, then `SwiGlu`. In: gate [b, t, c], up [b, t, c], weight [2c, kernel], if `bias`
    /// bias \[2c\], if `state` past [b, kernel − 1, 2c]. Out: y [b, t, c] = silu(g) ⊙ u with g, u the convolution's
    /// results. Created by `fuse`.
    ConvSwiGlu {
        /// Number of taps.
        kernel: i64,
        /// Whether gate and up are added to the convolution's results.
        residual: bool,
        /// Whether a bias is added.
        bias: bool,
        /// Whether a past is given.
        state: bool,
    }
    facts: |k| {
        let facts = Facts::new("conv_swiglu", Class::Convolution { taps: k.kernel });
        facts.cheap().apart(Apart::Sequences)
    },
    results: |_, x| vec![x.like("y", 0)],
    flops: |k, s| {
        let conv = 2 * i128::from(k.kernel) + i128::from(k.bias) + i128::from(k.residual);
        (2 * conv + SILU + 1) * s.y()
    },
    value: |k, x, _| {
        let past = k.state.then(|| x[3 + usize::from(k.bias)]);
        let conv = Conv::new(k.kernel, k.residual, Activation::Identity);
        let convolved = conv.forward(&x[..2], x[2], k.bias.then(|| x[3]), past);
        vec![swiglu::swiglu(&convolved[0], &convolved[1])]
    },
}

kernel! {
    /// In: dy [b, t, c], gate [b, t, c], up [b, t, c], weight [2c, kernel], if `bias` bias \[2c\]; zeros before the
    /// start. Out: dgate [b, t, c], dup [b, t, c], dweight [2c, kernel], if `bias` dbias \[2c\]; g and u are computed
    /// again.
    ConvSwiGluGrad {
        /// Number of taps.
        kernel: i64,
        /// Whether gate and up were added to the convolution's results.
        residual: bool,
        /// Whether a bias was added.
        bias: bool,
    }
    facts: |k| Facts::new("conv_swiglu_grad", Class::Convolution { taps: k.kernel }),
    results: |k, x| {
        [x.like("dgate", 1), x.like("dup", 2), x.f32_like("dweight", 3)]
            .into_iter()
            .chain(k.bias.then(|| x.f32_like("dbias", 4)))
            .collect()
    },
    // The convolution again, silu's slope, dx and dweight.
    flops: |k, s| {
        let conv = 6 * i128::from(k.kernel) + 2 * (i128::from(k.bias) + i128::from(k.residual));
        (2 * conv + SILU_SLOPE + 3) * s.y()
    },
    value: |k, x, _| {
        let conv = Conv::new(k.kernel, k.residual, Activation::Identity);
        let bias = k.bias.then(|| x[4]);
        let convolved = conv.forward(&x[1..3], x[3], bias, None);
        let slopes = swiglu::grad(x[0], &convolved[0], &convolved[1]);
        conv.backward(&[&slopes[0], &slopes[1]], &x[1..3], x[3], bias)
    },
}
