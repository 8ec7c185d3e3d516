//! Sequences moved by tokens.

#[cfg(test)]
use super::IGNORED;
use super::prelude::*;

kernel! {
    /// In: x [b, t, c]; if `state` past [b, 1, c], else zeros. Out: y [b, t, c]: past, then x without its last step.
    Shift {
        /// Whether a past is given.
        state: bool,
    }
    facts: |_| Facts::new("shift", Class::Library).cheap().reads_bf16().apart(Apart::Sequences),
    results: |_, x| vec![x.like("y", 0)],
    flops: |_, _| 0,
    value: |k, x, _| {
        let zeros = Tensor::zeros(vec![x[0].dims[0], 1, x[0].width()]);
        let past = if k.state { x[1] } else { &zeros };
        vec![past.append(&x[0].times(0, x[0].dims[1] - 1))]
    },
}

kernel! {
    /// In: dy [b, t, c]. Out: dx [b, t, c]: dy without its first step, then zeros.
    ShiftGrad
    facts: |_| Facts::new("shift_grad", Class::Library).reads_bf16(),
    results: |_, x| vec![x.like("dx", 0)],
    flops: |_, _| 0,
    value: |_, x, _| {
        let zeros = Tensor::zeros(vec![x[0].dims[0], 1, x[0].width()]);
        vec![x[0].times(1, x[0].dims[1]).append(&zeros)]
    },
}

kernel! {
    /// In: targets [b, t] i64. Out: [b, t] i64: the target `by` places later in the row, ignored where there is none.
    ShiftTargets {
        /// Places.
        by: i64,
    }
    facts: |_| Facts::new("shift_targets", Class::Library).reads_bf16(),
    results: |_, x| vec![x.like("targets", 0)],
    flops: |_, _| 0,
    value: |k, x, _| {
        let (targets, time, by) = (x[0], x[0].dims[1], k.by as usize);
        vec![Tensor::from_fn(targets.dims.clone(), |i| match i % time + by {
            later if later < time => targets.data[i + by],
            _ => IGNORED as f64,
        })]
    },
}
