//! The norm by the root of the mean square, over the last axis, and its gradient.

use super::prelude::*;

kernel! {
    /// In: x […, c], weight \[c\]. Out: y […, c] = weight ⊙ x · rstd, rstd […] = 1/sqrt(mean x² + eps), in f32.
    RmsNorm {
        /// Added to the mean of squares.
        eps: Decimal,
    }
    facts: |_| Facts::new("rms_norm", Class::Ours).cheap().apart(Apart::Tokens),
    results: |_, x| vec![x.like("y", 0), f32("rstd", outer(x.dims(0)))],
    // Square, add; times rstd, times weight.
    flops: |_, s| 4 * s.x(),
    value: |k, x, _| norm(x[0], Some(x[1]), k.eps.to_f64()),
}

/// With a weight by the mean of squares, without by their sum.
#[cfg(test)]
pub(super) fn norm(x: &Tensor, weight: Option<&Tensor>, eps: f64) -> Vec<Tensor> {
    let c = x.width();
    let mean = if weight.is_some() { c as f64 } else { 1.0 };
    let squares = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>();
    let inverse: Vec<f64> =
        x.rows().map(|row| 1.0 / libm::sqrt(squares(row) / mean + eps)).collect();
    let w = |i: usize| weight.map_or(1.0, |w| w.data[i % c]);
    let y = x.data.iter().enumerate().map(|(i, x)| w(i) * x * inverse[i / c]).collect();
    vec![x.like(y), Tensor { dims: x.outer(), data: inverse }]
}

kernel! {
    /// In: dy […, c], x […, c], weight \[c\], rstd […]. Out: dx […, c], dweight \[c\].
    /// With n = x · rstd, g = dy ⊙ weight: dx = rstd (g − n mean(g ⊙ n)), dweight = Σ… dy ⊙ n.
    RmsNormGrad
    facts: |_| Facts::new("rms_norm_grad", Class::Ours),
    results: |_, x| vec![x.like("dx", 1), x.f32_like("dweight", 2)],
    // n, g, the mean's products and sums, g − n mean, times rstd; dy ⊙ n and its sum.
    flops: |_, s| 9 * s.x(),
    value: |_, x, _| grad(x[0], x[1], x[2], x[3]),
}

#[cfg(test)]
pub(super) fn grad(dy: &Tensor, x: &Tensor, weight: &Tensor, rstd: &Tensor) -> Vec<Tensor> {
    let c = x.width();
    let mut dx = Vec::new();
    let mut dw = vec![0.0; c];
    for ((dy, x), r) in dy.rows().zip(x.rows()).zip(&rstd.data) {
        let n: Vec<f64> = x.iter().map(|x| x * r).collect();
        let g: Vec<f64> = dy.iter().zip(&weight.data).map(|(dy, w)| dy * w).collect();
        let mean = g.iter().zip(&n).map(|(g, n)| g * n).sum::<f64>() / c as f64;
        dx.extend(g.iter().zip(&n).map(|(g, n)| r * (g - n * mean)));
        for (dw, (dy, n)) in dw.iter_mut().zip(dy.iter().zip(&n)) {
            *dw += dy * n;
        }
    }
    vec![x.like(dx), weight.like(dw)]
}
