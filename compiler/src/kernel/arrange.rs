//! Rearrangements, and values that depend on nothing.

use super::prelude::*;

kernel! {
    /// In: x [b, t, …]. Out: the same elements as [b, t, dims…]. A view.
    Reshape {
        /// Axes after batch and time.
        dims: Vec<i64>,
    }
    facts: |_| Facts::new("reshape", Class::View).cheap().reads_bf16().apart(Apart::Tokens),
    results: |k, x| {
        vec![value("view", [take(x.dims(0), 2), &fixed(&k.dims)].concat(), x.dtype(0))]
    },
    flops: |_, _| 0,
    value: |k, x, _| {
        let dims = x[0].dims[..2].iter().copied().chain(k.dims.iter().map(|d| *d as usize));
        vec![Tensor { dims: dims.collect(), data: x[0].data.clone() }]
    },
}

kernel! {
    /// In: n tensors [b, t, c_i]. Out: [b, t, Σ c_i], in operand order.
    Concat
    facts: |_| Facts::new("concat", Class::Library).cheap().reads_bf16().apart(Apart::Tokens),
    results: |_, x| {
        let channels = (0..x.count()).map(|i| width(x.dims(i))).sum();
        vec![value("y", with_last(x.dims(0), channels), x.widest(0..x.count()))]
    },
    flops: |_, _| 0,
    value: |_, x, _| vec![concat(x)],
}

kernel! {
    /// In: x [b, t, Σ widths]. Out: one [b, t, w] for each of `widths`, in order. Views.
    Split {
        /// Channels of each result.
        widths: Vec<i64>,
    }
    facts: |_| Facts::new("split", Class::View).cheap().reads_bf16().apart(Apart::Tokens),
    results: |k, x| {
        let part = |w: &i64| value("part", with_last(x.dims(0), *w), x.dtype(0));
        k.widths.iter().map(part).collect()
    },
    flops: |_, _| 0,
    value: |k, x, _| split(x[0], &k.widths),
}

#[cfg(test)]
fn split(x: &Tensor, widths: &[i64]) -> Vec<Tensor> {
    let mut from = 0;
    let part = |width: &i64| {
        let (at, width) = (from, *width as usize);
        from += width;
        let data = x.rows().flat_map(|row| row[at..at + width].to_vec()).collect();
        Tensor { dims: x.with_last(width), data }
    };
    widths.iter().map(part).collect()
}

kernel! {
    /// In: none. Out: zeros of these dims: the gradient of an unused result, the gates of a recurrence without any.
    Zeros {
        /// All axes.
        dims: Vec<Extent>,
    }
    facts: |_| Facts::new("zeros", Class::Library).reads_bf16(),
    results: |k, _| vec![f32("zeros", k.dims.as_slice())],
    flops: |_, _| 0,
    value: |k, _, sizes| {
        vec![Tensor::zeros(k.dims.iter().map(|d| d.at(sizes) as usize).collect())]
    },
}

kernel! {
    /// In: none. Out: \[count\] = 0, 1, …, count − 1.
    Index {
        /// Numbers.
        count: i64,
    }
    facts: |_| Facts::new("index", Class::Library).cheap().reads_bf16(),
    results: |k, _| vec![f32("index", [Extent::Fixed(k.count)])],
    flops: |_, _| 0,
    value: |k, _, _| vec![Tensor::from_fn(vec![k.count as usize], |i| i as f64)],
}

kernel! {
    /// In: x […]. Out: y […] = x in this dtype, rounded to the nearest, ties to even.
    Cast {
        /// The dtype of y.
        to: DType,
    }
    facts: |_| Facts::new("cast", Class::Library).cheap().reads_bf16().apart(Apart::Tokens),
    results: |k, x| vec![value("y", x.dims(0), k.to)],
    flops: |_, _| 0,
    // Exact: the interpreter checks the mathematics; rounding is tested by the runtime.
    value: |_, x, _| vec![x[0].clone()],
}
