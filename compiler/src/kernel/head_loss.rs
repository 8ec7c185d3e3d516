//! Logits and loss by chunks of tokens, so that memory does not grow with tokens × vocabulary.

use super::prelude::*;
#[cfg(test)]
use super::{cross_entropy, linear, tokens};

kernel! {
    /// `Linear`, `CrossEntropy` and `Argmax` for `rows` tokens at a time. In: x [b, t, i], weight [v, i], if `bias`
    /// bias \[v\], targets [b, t] i64. Out: nll [b, t], loss [] f64, counted [] i64, argmax [b, t] i64, as in those
    /// kernels; losses of chunks are added in order. Created by `fuse`.
    HeadLoss {
        /// Whether a bias is added.
        bias: bool,
        /// As in `CrossEntropy`.
        nll_square: Decimal,
        /// As in `CrossEntropy`.
        z_loss: Decimal,
        /// Tokens of a chunk, in (batch, time) order; the last chunk may have fewer.
        rows: i64,
    }
    facts: |_| Facts::new("head_loss", Class::Head).reads_bf16(),
    results: |_, x| {
        let tokens = take(x.dims(0), 2);
        vec![
            f32("nll", tokens),
            scalar("loss", DType::F64),
            scalar("counted", DType::I64),
            value("argmax", tokens, DType::I64),
        ]
    },
    flops: |_, s| 2 * s.input(0).tokens() * s.input(1).elements(),
    scratch: |k, s, bf16| scratch(s, k.rows, false, bf16),
    value: |k, x, _| {
        let logits = linear::linear(x[0], x[1], k.bias.then(|| x[2]));
        let targets = x[2 + usize::from(k.bias)];
        let terms = [k.nll_square, k.z_loss];
        let [nll, _, loss, counted] = cross_entropy::losses(&logits, targets, terms);
        vec![nll, loss, counted, cross_entropy::argmax(&logits)]
    },
}

kernel! {
    /// `HeadLoss` with gradients. In: x [b, t, i], weight [v, i], if `bias` bias \[v\], targets [b, t] i64,
    /// scale [] f64. Out: loss [] f64, counted [] i64, dx [b, t, i], dweight [v, i], if `bias` dbias \[v\]: those of
    /// `CrossEntropyGrad`, `LinearGradInput`, `LinearGradWeight` and `SumTokens`. Sums over tokens add the chunks in
    /// order. Created by `fuse`.
    HeadLossGrad {
        /// As in `HeadLoss`.
        bias: bool,
        /// As in `CrossEntropy`.
        nll_square: Decimal,
        /// As in `CrossEntropy`.
        z_loss: Decimal,
        /// As in `HeadLoss`.
        rows: i64,
        /// As in `CrossEntropyGrad`.
        weight: Root = Root::ONE,
    }
    facts: |_| Facts::new("head_loss_grad", Class::Head).reads_bf16().host(1),
    results: |k, x| {
        [scalar("loss", DType::F64), scalar("counted", DType::I64)]
            .into_iter()
            .chain([x.like("dx", 0), x.f32_like("dweight", 1)])
            .chain(k.bias.then(|| x.f32_like("dbias", 2)))
            .collect()
    },
    // Logits, dx, dweight.
    flops: |_, s| 6 * s.input(0).tokens() * s.input(1).elements(),
    scratch: |k, s, bf16| scratch(s, k.rows, true, bf16),
    value: |k, x, _| {
        let logits = linear::linear(x[0], x[1], k.bias.then(|| x[2]));
        let [targets, scale] = [0, 1].map(|i| x[2 + usize::from(k.bias) + i]);
        let terms = [k.nll_square, k.z_loss];
        let [nll, lse, loss, counted] = cross_entropy::losses(&logits, targets, terms);
        let d = cross_entropy::grad(&[&logits, targets, &nll, &lse, scale], terms, k.weight);
        let (dx, dweight) = (linear::grad_input(&d, x[1]), linear::grad_weight(&d, x[0]));
        let dbias = k.bias.then(|| tokens::sum(&d));
        [loss, counted, dx, dweight].into_iter().chain(dbias).collect()
    },
}

/// The logits of a chunk of tokens; in f32 the weight, rearranged for its product; for the gradient of several chunks
/// also that of x, which is joined from theirs, and in bf16 the gradient of the weight from one chunk.
fn scratch(shapes: &Shapes, rows: i64, gradient: bool, read: Bf16) -> i128 {
    let (x, weight) = (shapes.input(0), shapes.input(1));
    let (rows, bf16) = (i128::from(rows), weight.dtype == DType::Bf16);
    // In bf16 there are both, the product's result and the same in f32, unless the kernel reads the former.
    let logit_bytes = match (bf16, read) {
        (false, _) => 4,
        (true, Bf16::Some) => 6,
        (true, Bf16::Most) => 2,
    };
    let logits = rows.min(x.tokens()) * weight.at(0) * logit_bytes;
    let rearranged = if bf16 || read == Bf16::Most { 0 } else { weight.bytes };
    let several = gradient && rows < x.tokens();
    let joined = if several { x.bytes } else { 0 };
    // A GPU's product is in f32 at once.
    let copies = if read == Bf16::Most { 2 } else { 3 };
    let of_a_chunk = if several && bf16 { copies * weight.bytes } else { 0 };
    logits + rearranged + joined + of_a_chunk
}
