//! Sums and products element by element.

use super::prelude::*;

kernel! {
    /// In: a, b, with equal trailing dims; if only one has [b, t] in front, the other is broadcast.
    /// Out: y = a + b.
    Add
    facts: |_| Facts::new("add", Class::Library).cheap().reads_bf16().apart(Apart::Tokens),
    // In f64, sums of losses.
    results: |_, x| match x.dtype(0) {
        DType::F64 => vec![x.like("y", 0)],
        DType::F32 | DType::Bf16 | DType::I64 => vec![broadcast(x)],
    },
    flops: |_, s| s.y(),
    value: |_, x, _| vec![zip(x[0], x[1], |a, b| a + b)],
}

kernel! {
    /// In: as `Add`. Out: y = a ⊙ b.
    Mul
    facts: |_| Facts::new("mul", Class::Library).cheap().reads_bf16().apart(Apart::Tokens),
    results: |_, x| vec![broadcast(x)],
    flops: |_, s| s.y(),
    value: |_, x, _| vec![zip(x[0], x[1], |a, b| a * b)],
}

kernel! {
    /// In: x […]. Out: y […] = by · x, with `by` rounded once, to the nearest f64.
    Scale {
        /// The factor.
        by: Root,
    }
    facts: |_| Facts::new("scale", Class::Library).cheap().reads_bf16().apart(Apart::Tokens),
    results: |_, x| vec![x.like("y", 0)],
    flops: |_, s| s.y(),
    value: |k, x, _| vec![x[0].map(|x| k.by.to_f64() * x)],
}

kernel! {
    /// In: x […]. Out: y […] = x + by, with `by` rounded once, to the nearest f64.
    Offset {
        /// The number that is added.
        by: Root,
    }
    facts: |_| Facts::new("offset", Class::Library).cheap().reads_bf16().apart(Apart::Tokens),
    results: |_, x| vec![x.like("y", 0)],
    flops: |_, s| s.y(),
    value: |k, x, _| vec![x[0].map(|x| k.by.to_f64() + x)],
}

kernel! {
    /// In: a, b with one shape and dtype. Out: a + b, written over a.
    Accumulate
    facts: |_| Facts::new("accumulate", Class::Library).over(&[0]),
    results: |_, x| vec![x.like("sum", 0)],
    flops: |_, s| s.y(),
    value: |_, x, _| vec![zip(x[0], x[1], |a, b| a + b)],
}

fn broadcast(x: OperandTypes<'_>) -> Value {
    let longer = usize::from(x.dims(1).len() > x.dims(0).len());
    value("y", x.dims(longer), x.widest(0..2))
}
