//! Choices of experts, and projections by the chosen ones, pair by pair.

use super::norms;
use super::tensor::Tensor;

/// The largest of each row, and their places; equal ones by place.
pub(super) fn top_k(scores: &Tensor, bias: Option<&Tensor>, count: usize) -> Vec<Tensor> {
    let (mut values, mut ids) = (Vec::new(), Vec::new());
    for row in scores.rows() {
        let by = |i: usize| row[i] + bias.map_or(0.0, |bias| bias.data[i]);
        let mut left: Vec<usize> = (0..row.len()).collect();
        for _ in 0..count {
            let best = left.iter().copied().reduce(|a, b| if by(b) > by(a) { b } else { a });
            let best = best.unwrap();
            left.retain(|i| *i != best);
            values.push(row[best]);
            ids.push(best as f64);
        }
    }
    let dims = with_last(scores, count);
    vec![Tensor { dims: dims.clone(), data: values }, Tensor { dims, data: ids }]
}

/// The values at the ids of each row, zeros elsewhere.
pub(super) fn scatter(values: &Tensor, ids: &Tensor, width: usize) -> Tensor {
    let mut out = Tensor::zeros(with_last(values, width));
    for (at, (x, id)) in values.data.iter().zip(&ids.data).enumerate() {
        out.data[at / ids.width() * width + *id as usize] += x;
    }
    out
}

/// Each pair's x: that of its token, or its own.
fn pairs<'a>(x: &'a Tensor, ids: &'a Tensor) -> impl Iterator<Item = (Tensor, usize)> + 'a {
    let copies = if x.dims.len() == ids.dims.len() { ids.width() } else { 1 };
    let rows = x.rows().flat_map(move |row| std::iter::repeat_n(row, copies));
    rows.zip(&ids.data)
        .map(|(row, id)| (Tensor { dims: vec![1, row.len()], data: row.to_vec() }, *id as usize))
}

/// One matrix, or one row, of a stack.
fn of(stack: &Tensor, id: usize) -> Tensor {
    let dims = stack.dims[1..].to_vec();
    let count: usize = dims.iter().product();
    Tensor { dims, data: stack.data[id * count..][..count].to_vec() }
}

pub(super) fn linear(x: &[&Tensor], bias: Option<&Tensor>) -> Tensor {
    let (ids, weight) = (x[1], x[2]);
    let mut dims = ids.dims.clone();
    dims.push(weight.dims[1]);
    let each = |(x, id): (Tensor, usize)| {
        norms::linear(&x, &of(weight, id), bias.map(|bias| of(bias, id)).as_ref()).data
    };
    Tensor { dims, data: pairs(x[0], ids).flat_map(each).collect() }
}

pub(super) fn grad_input(dy: &Tensor, ids: &Tensor, weight: &Tensor) -> Tensor {
    let each = |(dy, id)| norms::linear_grad_input(&dy, &of(weight, id)).data;
    Tensor { dims: with_last(dy, weight.width()), data: pairs(dy, ids).flat_map(each).collect() }
}

pub(super) fn grad_weight(dy: &Tensor, ids: &Tensor, x: &Tensor, experts: usize) -> Tensor {
    let mut sum = Tensor::zeros(vec![experts, dy.width(), x.width()]);
    let each = dy.width() * x.width();
    for ((dy, id), (x, _)) in pairs(dy, ids).zip(pairs(x, ids)) {
        let product = norms::linear_grad_weight(&dy, &x);
        for (sum, x) in sum.data[id * each..].iter_mut().zip(product.data) {
            *sum += x;
        }
    }
    sum
}

pub(super) fn sum(dy: &Tensor, ids: &Tensor, experts: usize) -> Tensor {
    let mut sum = Tensor::zeros(vec![experts, dy.width()]);
    for (dy, id) in pairs(dy, ids) {
        for (i, x) in dy.data.iter().enumerate() {
            sum.add_at(&[id, i], *x);
        }
    }
    sum
}

fn with_last(x: &Tensor, last: usize) -> Vec<usize> {
    let mut dims = x.dims.clone();
    dims.pop();
    dims.push(last);
    dims
}
