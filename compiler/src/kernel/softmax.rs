//! Softmax over the last axis, and its gradient.

use super::prelude::*;

kernel! {
    /// In: x […, c]. Out: y […, c] = exp(x − m) / Σ exp(x − m) over the last axis, m its maximum.
    Softmax
    facts: |_| Facts::new("softmax", Class::Library).cheap(),
    results: |_, x| vec![x.like("y", 0)],
    // Subtract the maximum, exp, add, divide.
    flops: |_, s| (FUNCTION + 3) * s.x(),
    value: |_, x, _| {
        let mut y = Vec::new();
        for row in x[0].rows() {
            let total: f64 = row.iter().map(|x| libm::exp(*x)).sum();
            y.extend(row.iter().map(|x| libm::exp(*x) / total));
        }
        vec![x[0].like(y)]
    },
}

kernel! {
    /// In: dy […, c], y […, c]. Out: dx […, c] = y (dy − Σ dy ⊙ y).
    SoftmaxGrad
    facts: |_| Facts::new("softmax_grad", Class::Library),
    results: |_, x| vec![x.like("dx", 1)],
    // The sum's products and sums, dy − sum, times y.
    flops: |_, s| 4 * s.x(),
    value: |_, x, _| {
        let mut dx = Vec::new();
        for (dy, y) in x[0].rows().zip(x[1].rows()) {
            let dot = dy.iter().zip(y).map(|(a, b)| a * b).sum::<f64>();
            dx.extend(dy.iter().zip(y).map(|(dy, y)| y * (dy - dot)));
        }
        vec![x[1].like(dx)]
    },
}
