//! Sums over channels, and numbers copied to channels.

use super::prelude::*;

kernel! {
    /// In: x […, c]. Out: Σ x over the last axis: […, 1], or […] without `keep`.
    SumChannels {
        /// Whether the axis stays, with an extent of 1.
        keep: bool,
    }
    facts: |_| Facts::new("sum_channels", Class::Library).cheap(),
    results: |k, x| {
        let one: &[Extent] = if k.keep { &[Extent::Fixed(1)] } else { &[] };
        vec![value("sum", [outer(x.dims(0)), one].concat(), x.dtype(0))]
    },
    flops: |_, s| s.x(),
    value: |k, x, _| {
        let mut dims = x[0].outer();
        dims.extend(k.keep.then_some(1));
        vec![Tensor { dims, data: x[0].rows().map(|row| row.iter().sum()).collect() }]
    },
}

kernel! {
    /// In: x […, 1], or […] if not `kept`. Out: […, width], copies along the last axis.
    Spread {
        /// Channels of the result.
        width: i64,
        /// Whether x has the axis, with an extent of 1.
        kept: bool,
    }
    facts: |_| Facts::new("spread", Class::Library).cheap().reads_bf16(),
    results: |k, x| {
        let rows = if k.kept { outer(x.dims(0)) } else { x.dims(0) };
        vec![value("y", [rows, &[Extent::Fixed(k.width)]].concat(), x.dtype(0))]
    },
    flops: |_, _| 0,
    value: |k, x, _| {
        let (mut dims, width) = (x[0].dims.clone(), k.width as usize);
        if k.kept {
            assert_eq!(dims.pop(), Some(1));
        }
        dims.push(width);
        vec![Tensor { dims, data: x[0].data.iter().flat_map(|x| vec![*x; width]).collect() }]
    },
}
