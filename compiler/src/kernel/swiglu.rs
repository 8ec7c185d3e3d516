//! A unit with a silu gate, and its gradient.

use super::prelude::*;

kernel! {
    /// In: gate […], up […]. Out: y […] = silu(gate) ⊙ up. Created by `fuse`.
    SwiGlu
    facts: |_| Facts::new("swiglu", Class::Ours).cheap().apart(Apart::Tokens),
    results: |_, x| vec![x.like("y", 0)],
    flops: |_, s| (SILU + 1) * s.x(),
    value: |_, x, _| vec![swiglu(x[0], x[1])],
}

#[cfg(test)]
pub(super) fn swiglu(gate: &Tensor, up: &Tensor) -> Tensor {
    zip(gate, up, |gate, up| silu(gate) * up)
}

kernel! {
    /// In: dy […], gate […], up […]. Out: dgate […], dup […].
    SwiGluGrad
    facts: |_| Facts::new("swiglu_grad", Class::Ours),
    results: |_, x| vec![x.like("dgate", 1), x.like("dup", 2)],
    // dup = dy ⊙ silu(gate); dgate = dy ⊙ up ⊙ silu′(gate).
    flops: |_, s| (SILU_SLOPE + 3) * s.x(),
    value: |_, x, _| grad(x[0], x[1], x[2]).to_vec(),
}

#[cfg(test)]
pub(super) fn grad(dy: &Tensor, gate: &Tensor, up: &Tensor) -> [Tensor; 2] {
    let through = zip(dy, up, |dy, up| dy * up);
    let dgate = zip(&through, gate, |d, gate| d * silu_slope(gate));
    let dup = zip(dy, gate, |dy, gate| dy * silu(gate));
    [dgate, dup]
}
