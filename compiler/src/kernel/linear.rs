//! Products with a matrix, and their gradients.

use super::prelude::*;

kernel! {
    /// In: x [b, t, i], weight [o, i], and if `bias` bias \[o\]. Out: y [b, t, o] = x weightᵀ (+ bias).
    Linear {
        /// Whether a bias is added.
        bias: bool,
    }
    facts: |_| Facts::new("linear", Class::Product).reads_bf16().apart(Apart::Tokens),
    results: |_, x| {
        vec![value("y", [outer(x.dims(0)), take(x.dims(1), 1)].concat(), x.dtype(0))]
    },
    flops: |_, s| 2 * s.y() * s.input(0).last(),
    value: |k, x, _| vec![linear(x[0], x[1], k.bias.then(|| x[2]))],
}

#[cfg(test)]
pub(super) fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let dot = |row: &[f64], w: &[f64]| row.iter().zip(w).map(|(a, b)| a * b).sum::<f64>();
    let mut data = Vec::new();
    for row in x.rows() {
        for (o, w) in weight.rows().enumerate() {
            data.push(dot(row, w) + bias.map_or(0.0, |b| b.data[o]));
        }
    }
    Tensor { dims: x.with_last(weight.dims[0]), data }
}

kernel! {
    /// In: dy [b, t, o], weight [o, i]. Out: dx [b, t, i] = dy weight.
    LinearGradInput
    facts: |_| Facts::new("linear_grad_input", Class::Product).reads_bf16(),
    results: |_, x| {
        vec![value("dx", [outer(x.dims(0)), skip(x.dims(1), 1)].concat(), x.dtype(0))]
    },
    flops: |_, s| 2 * s.x() * s.input(1).last(),
    value: |_, x, _| vec![grad_input(x[0], x[1])],
}

#[cfg(test)]
pub(super) fn grad_input(dy: &Tensor, weight: &Tensor) -> Tensor {
    let i = weight.width();
    let mut dx = Tensor::zeros(dy.with_last(i));
    for (n, row) in dy.rows().enumerate() {
        for (g, w) in row.iter().zip(weight.rows()) {
            for (j, w) in w.iter().enumerate() {
                dx.data[n * i + j] += g * w;
            }
        }
    }
    dx
}

kernel! {
    /// In: dy [b, t, o], x [b, t, i]. Out: dweight [o, i] = Σ_{b,t} dyᵀ x.
    LinearGradWeight
    facts: |_| Facts::new("linear_grad_weight", Class::Product).reads_bf16(),
    results: |_, x| vec![f32("dweight", [skip(x.dims(0), 2), skip(x.dims(1), 2)].concat())],
    flops: |_, s| 2 * s.input(0).tokens() * s.y(),
    value: |_, x, _| vec![grad_weight(x[0], x[1])],
}

#[cfg(test)]
pub(super) fn grad_weight(dy: &Tensor, x: &Tensor) -> Tensor {
    let mut dw = Tensor::zeros(vec![dy.width(), x.width()]);
    for (dy, x) in dy.rows().zip(x.rows()) {
        for (o, g) in dy.iter().enumerate() {
            for (i, x) in x.iter().enumerate() {
                dw.add_at(&[o, i], g * x);
            }
        }
    }
    dw
}
