//! The gradients' norm, clipping, and AdamW.

use super::prelude::*;

kernel! {
    /// In: every gradient, in parameter order. Out: norm [] f64: the square root of the sum, in
    /// that order, of each gradient's sum of squares.
    GradNorm
    facts: |_| Facts::new("grad_norm", Class::Ours),
    results: |_, _| vec![scalar("norm", DType::F64)],
    flops: |_, s| 2 * s.first(s.inputs.len()),
    value: |_, x, _| {
        let squares = x.iter().map(|g| g.data.iter().map(|x| x * x).sum::<f64>()).sum();
        vec![Tensor::number(libm::sqrt(squares))]
    },
}

kernel! {
    /// In: norm [] f64. Out: coefficient [] f64 = min(1, max / (norm + 1e-6)), or 1 without `max`.
    Clip {
        /// Largest norm that is left as it is; None clips nothing.
        max: Option<Decimal>,
    }
    facts: |_| Facts::new("clip", Class::Library),
    results: |_, _| vec![scalar("coefficient", DType::F64)],
    flops: |_, _| 0,
    value: |k, x, _| {
        let clipped = |max: Decimal| (max.to_f64() / (x[0].data[0] + 1e-6)).min(1.0);
        vec![Tensor::number(k.max.map_or(1.0, clipped))]
    },
}

kernel! {
    /// In: parameter p, gradient g, moments m and v, all with one shape; coefficient [] f64, learning
    /// rate lr [] f64, step number n [] i64 from 1. Out: p, m, v, written over their inputs. lr ← rate · lr;
    /// g ← coefficient · g; p ← p (1 − lr · decay); m ← β1 m + (1 − β1) g; v ← β2 v + (1 − β2) g²;
    /// p ← p − lr · (m / (1 − β1ⁿ)) / (sqrt(v) / sqrt(1 − β2ⁿ) + eps) (Loshchilov and Hutter 2019,
    /// algorithm 2).
    AdamW {
        /// Decay of the running mean.
        beta1: Decimal,
        /// Decay of the running mean of squares.
        beta2: Decimal,
        /// Added to the denominator.
        eps: Decimal,
        /// Weight decay; 0 for parameters without.
        decay: Decimal,
        /// Factor of the learning rate.
        rate: Decimal = Decimal::ONE,
    }
    facts: |_| Facts::new("adamw", Class::Ours).host(2).over(&[0, 2, 3]),
    results: |_, x| vec![x.like("p", 0), x.like("m", 2), x.like("v", 3)],
    // Clipping 1, decay 1, mean 3, mean of squares 4, step 7.
    flops: |_, s| 16 * s.x(),
    value: |k, x, _| adamw(k, x),
}

#[cfg(test)]
fn adamw(k: &AdamW, x: &[&Tensor]) -> Vec<Tensor> {
    let [p, g, m, v, coefficient, lr, step] = x else { panic!("{} operands", x.len()) };
    let [beta1, beta2, eps, decay, rate] =
        [k.beta1, k.beta2, k.eps, k.decay, k.rate].map(|number| number.to_f64());
    let (lr, step) = (rate * lr.data[0], step.data[0]);
    let (mut p, mut m, mut v) = ((*p).clone(), (*m).clone(), (*v).clone());
    for i in 0..p.data.len() {
        let g = coefficient.data[0] * g.data[i];
        p.data[i] *= 1.0 - lr * decay;
        m.data[i] = beta1 * m.data[i] + (1.0 - beta1) * g;
        v.data[i] = beta2 * v.data[i] + (1.0 - beta2) * g * g;
        let mean = m.data[i] / (1.0 - libm::pow(beta1, step));
        let root = libm::sqrt(v.data[i]) / libm::sqrt(1.0 - libm::pow(beta2, step));
        p.data[i] -= lr * mean / (root + eps);
    }
    vec![p, m, v]
}
