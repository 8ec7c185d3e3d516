//! ReLU² of an MLP, and its gradient.

use super::prelude::*;

kernel! {
    /// In: x […]. Out: y […] = max(x, 0)². Created by `fuse`.
    ReluSquared
    facts: |_| Facts::new("relu_squared", Class::Ours).cheap().apart(Apart::Tokens),
    results: |_, x| vec![x.like("y", 0)],
    flops: |_, s| s.x(),
    value: |_, x, _| vec![x[0].map(|x| x.max(0.0) * x.max(0.0))],
}

kernel! {
    /// In: dy […], x […]. Out: dx […] = 2 dy ⊙ max(x, 0).
    ReluSquaredGrad
    facts: |_| Facts::new("relu_squared_grad", Class::Ours),
    results: |_, x| vec![x.like("dx", 1)],
    flops: |_, s| 2 * s.x(),
    value: |_, x, _| vec![zip(x[0], x[1], |dy, x| 2.0 * dy * x.max(0.0))],
}
