//! The norm by the root of the sum of squares, over the last axis, and its gradient.

use super::prelude::*;
#[cfg(test)]
use super::rms_norm::norm;

kernel! {
    /// In: x […, c]. Out: y […, c] = x · rnorm, rnorm […] = 1/sqrt(Σ x² + eps), in f32.
    L2Norm {
        /// Added to the sum of squares.
        eps: Decimal,
    }
    facts: |_| Facts::new("l2_norm", Class::Ours).cheap().apart(Apart::Tokens),
    results: |_, x| vec![x.like("y", 0), f32("rnorm", outer(x.dims(0)))],
    // Square, add; times rnorm.
    flops: |_, s| 3 * s.x(),
    value: |k, x, _| norm(x[0], None, k.eps.to_f64()),
}

kernel! {
    /// In: dy […, c], x […, c], rnorm […]. Out: dx […, c] = rnorm (dy − y Σ(dy ⊙ y)) with y = x · rnorm.
    L2NormGrad
    facts: |_| Facts::new("l2_norm_grad", Class::Ours),
    results: |_, x| vec![x.like("dx", 1)],
    // y, the sum's products and sums, dy − y sum, times rnorm.
    flops: |_, s| 6 * s.x(),
    value: |_, x, _| {
        let (dy, x, rnorm) = (x[0], x[1], x[2]);
        let mut dx = Vec::new();
        for ((dy, x), r) in dy.rows().zip(x.rows()).zip(&rnorm.data) {
            let y: Vec<f64> = x.iter().map(|x| r * x).collect();
            let dot = dy.iter().zip(&y).map(|(a, b)| a * b).sum::<f64>();
            dx.extend(dy.iter().zip(&y).map(|(dy, y)| r * (dy - y * dot)));
        }
        vec![x.like(dx)]
    },
}
