//! Products with the matrices of chosen experts, and their gradients.

#[cfg(test)]
use super::linear;
use super::prelude::*;

kernel! {
    /// In: x [b, t, i] or [b, t, k, i], ids [b, t, k] i64, weight [e, o, i], if `bias` bias [e, o]. Out: y [b, t, k, o] =
    /// x weight\[id\]ᵀ (+ bias\[id\]).
    ExpertLinear {
        /// Whether a bias is added.
        bias: bool,
    }
    facts: |_| Facts::new("expert_linear", Class::Experts).reads_bf16(),
    results: |_, x| {
        let width = skip(x.dims(2), 1).get(..1).unwrap_or(&[]);
        vec![value("y", [x.dims(1), width].concat(), x.dtype(0))]
    },
    flops: |_, s| 2 * s.y() * s.input(0).last(),
    value: |k, x, _| {
        let (ids, weight, bias) = (x[1], x[2], k.bias.then(|| x[3]));
        let dims = [ids.dims.as_slice(), &[weight.dims[1]]].concat();
        let each = |(x, id): (Tensor, usize)| {
            let bias = bias.map(|bias| expert(bias, id));
            linear::linear(&x, &expert(weight, id), bias.as_ref()).data
        };
        vec![Tensor { dims, data: pairs(x[0], ids).flat_map(each).collect() }]
    },
}

kernel! {
    /// In: dy [b, t, k, o], ids [b, t, k] i64, weight [e, o, i]. Out: dx [b, t, k, i] = dy weight\[id\].
    ExpertLinearGradInput
    facts: |_| Facts::new("expert_linear_grad_input", Class::Experts).reads_bf16(),
    results: |_, x| vec![value("dx", [x.dims(1), skip(x.dims(2), 2)].concat(), x.dtype(0))],
    flops: |_, s| 2 * s.y() * s.input(0).last(),
    value: |_, x, _| {
        let (dy, ids, weight) = (x[0], x[1], x[2]);
        let each = |(dy, id)| linear::grad_input(&dy, &expert(weight, id)).data;
        let dims = dy.with_last(weight.width());
        vec![Tensor { dims, data: pairs(dy, ids).flat_map(each).collect() }]
    },
}

kernel! {
    /// In: dy [b, t, k, o], ids [b, t, k] i64, x [b, t, i] or [b, t, k, i]. Out: dweight [e, o, i]: Σ dyᵀ x where ids = e,
    /// in (b, t) order; zeros where there are none.
    ExpertLinearGradWeight {
        /// Matrices of the weight.
        experts: i64,
    }
    facts: |_| Facts::new("expert_linear_grad_weight", Class::Experts).reads_bf16(),
    results: |k, x| {
        let experts = [Extent::Fixed(k.experts)];
        vec![f32("dweight", [&experts, last(x.dims(0)), last(x.dims(2))].concat())]
    },
    flops: |_, s| 2 * s.x() * s.input(2).last(),
    value: |k, x, _| {
        let (dy, ids, x) = (x[0], x[1], x[2]);
        let mut sum = Tensor::zeros(vec![k.experts as usize, dy.width(), x.width()]);
        let each = dy.width() * x.width();
        for ((dy, id), (x, _)) in pairs(dy, ids).zip(pairs(x, ids)) {
            let product = linear::grad_weight(&dy, &x);
            for (sum, x) in sum.data[id * each..].iter_mut().zip(product.data) {
                *sum += x;
            }
        }
        vec![sum]
    },
}

kernel! {
    /// In: dy [b, t, k, o], ids [b, t, k] i64. Out: dbias [e, o]: Σ dy where ids = e, in (b, t) order.
    ExpertSum {
        /// Rows of the bias.
        experts: i64,
    }
    facts: |_| Facts::new("expert_sum", Class::Ours),
    results: |k, x| {
        vec![f32("dbias", [&[Extent::Fixed(k.experts)], last(x.dims(0))].concat())]
    },
    flops: |_, s| s.x(),
    value: |k, x, _| {
        let mut sum = Tensor::zeros(vec![k.experts as usize, x[0].width()]);
        for (dy, id) in pairs(x[0], x[1]) {
            for (i, x) in dy.data.iter().enumerate() {
                sum.add_at(&[id, i], *x);
            }
        }
        vec![sum]
    },
}

/// Each pair's x: that of its token, or its own.
#[cfg(test)]
fn pairs<'a>(x: &'a Tensor, ids: &'a Tensor) -> impl Iterator<Item = (Tensor, usize)> + 'a {
    let copies = if x.dims.len() == ids.dims.len() { ids.width() } else { 1 };
    let rows = x.rows().flat_map(move |row| std::iter::repeat_n(row, copies));
    rows.zip(&ids.data)
        .map(|(row, id)| (Tensor { dims: vec![1, row.len()], data: row.to_vec() }, *id as usize))
}

/// One matrix, or one row, of a stack.
#[cfg(test)]
fn expert(stack: &Tensor, id: usize) -> Tensor {
    let dims = stack.dims[1..].to_vec();
    let count: usize = dims.iter().product();
    Tensor { dims, data: stack.data[id * count..][..count].to_vec() }
}
