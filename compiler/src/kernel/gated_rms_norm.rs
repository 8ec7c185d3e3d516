//! A norm with a silu gate before or after it, and its gradient.

use std::fmt;

use super::prelude::*;
#[cfg(test)]
use super::{rms_norm, swiglu};

/// The position of a norm's silu gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// Multiplies the input of the norm (Mamba2).
    Before,
    /// Multiplies its output (gated linear attention, Gated DeltaNet).
    After,
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Gate::Before => "before",
            Gate::After => "after",
        })
    }
}

kernel! {
    /// In: x […, c], gate […, c], weight \[c\]. Out: y […, c], rstd […]. Created by `fuse`. With gate
    /// `After` the norm: y = weight ⊙ x · rstd ⊙ silu(gate), rstd = 1/sqrt(mean x² + eps). With gate
    /// `Before`: u = x ⊙ silu(gate), y = weight ⊙ u · rstd, rstd = 1/sqrt(mean u² + eps).
    GatedRmsNorm {
        /// Added to the mean of squares.
        eps: Decimal,
        /// Position of the gate.
        gate: Gate,
    }
    facts: |_| Facts::new("gated_rms_norm", Class::GatedNorm).cheap().apart(Apart::Tokens),
    results: |_, x| vec![x.like("y", 0), f32("rstd", outer(x.dims(0)))],
    flops: |_, s| (4 + SILU + 1) * s.x(),
    value: |k, x, _| {
        let (x, gate, weight, eps) = (x[0], x[1], x[2], k.eps.to_f64());
        match k.gate {
            Gate::Before => rms_norm::norm(&swiglu::swiglu(gate, x), Some(weight), eps),
            Gate::After => {
                let mut normalised = rms_norm::norm(x, Some(weight), eps);
                normalised[0] = swiglu::swiglu(gate, &normalised[0]);
                normalised
            }
        }
    },
}

kernel! {
    /// In: dy […, c], x […, c], gate […, c], weight \[c\], rstd […]. Out: dx […, c], dgate […, c],
    /// dweight \[c\].
    GatedRmsNormGrad {
        /// Position of the gate.
        gate: Gate,
    }
    facts: |_| Facts::new("gated_rms_norm_grad", Class::GatedNorm),
    results: |_, x| vec![x.like("dx", 1), x.like("dgate", 2), x.f32_like("dweight", 3)],
    flops: |_, s| (9 + SILU_SLOPE + 3) * s.x(),
    value: |k, x, _| grad(x, k.gate),
}

#[cfg(test)]
fn grad(x: &[&Tensor], order: Gate) -> Vec<Tensor> {
    let [dy, x, gate, weight, rstd] = x else { panic!("{} operands", x.len()) };
    match order {
        Gate::Before => {
            let gradients = rms_norm::grad(dy, &swiglu::swiglu(gate, x), weight, rstd);
            let [dgate, dx] = swiglu::grad(&gradients[0], gate, x);
            vec![dx, dgate, gradients[1].clone()]
        }
        Gate::After => {
            let c = x.width();
            let n = (0..x.data.len()).map(|i| x.data[i] * rstd.data[i / c] * weight.data[i % c]);
            let n = x.like(n.collect());
            let [dgate, dn] = swiglu::grad(dy, gate, &n);
            let gradients = rms_norm::grad(&dn, x, weight, rstd);
            vec![gradients[0].clone(), dgate, gradients[1].clone()]
        }
    }
}
