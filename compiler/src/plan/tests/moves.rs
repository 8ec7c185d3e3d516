//! Tables and rearrangements.

use super::tensor::Tensor;

pub(super) fn embed(tokens: &Tensor, table: &Tensor) -> Tensor {
    let c = table.width();
    let row = |token: &f64| table.data[*token as usize * c..][..c].to_vec();
    let mut dims = tokens.dims.clone();
    dims.push(c);
    Tensor { dims, data: tokens.data.iter().flat_map(row).collect() }
}

pub(super) fn embed_grad(dy: &Tensor, tokens: &Tensor, vocab: usize) -> Tensor {
    let mut table = Tensor::zeros(vec![vocab, dy.width()]);
    for (row, token) in dy.rows().zip(&tokens.data) {
        for (i, x) in row.iter().enumerate() {
            table.add_at(&[*token as usize, i], *x);
        }
    }
    table
}

pub(super) fn sum_tokens(x: &Tensor) -> Tensor {
    let dims = x.dims[2..].to_vec();
    let inner: usize = dims.iter().product();
    let mut sum = Tensor::zeros(dims);
    for (at, x) in x.data.iter().enumerate() {
        sum.data[at % inner] += x;
    }
    sum
}

pub(super) fn reshape(x: &Tensor, dims: &[i64]) -> Tensor {
    let dims = x.dims[..2].iter().copied().chain(dims.iter().map(|d| *d as usize)).collect();
    Tensor { dims, data: x.data.clone() }
}

pub(super) fn concat(xs: &[&Tensor]) -> Tensor {
    let mut dims = xs[0].dims.clone();
    if let Some(width) = dims.last_mut() {
        *width = xs.iter().map(|x| x.width()).sum();
    }
    let rows = xs[0].rows().count();
    let row = |n: usize| xs.iter().flat_map(move |x| x.data[n * x.width()..][..x.width()].to_vec());
    Tensor { dims, data: (0..rows).flat_map(row).collect() }
}

pub(super) fn split(x: &Tensor, widths: &[i64]) -> Vec<Tensor> {
    let mut from = 0;
    let piece = |width: &i64| {
        let (at, width) = (from, *width as usize);
        from += width;
        let mut dims = x.dims.clone();
        if let Some(last) = dims.last_mut() {
            *last = width;
        }
        Tensor { dims, data: x.rows().flat_map(|row| row[at..at + width].to_vec()).collect() }
    };
    widths.iter().map(piece).collect()
}

pub(super) fn repeat_heads(x: &Tensor, times: usize) -> Tensor {
    let mut dims = x.dims.clone();
    dims[2] *= times;
    let data = x.rows().flat_map(|head| head.repeat(times)).collect();
    Tensor { dims, data }
}

pub(super) fn repeat_heads_grad(dy: &Tensor, times: usize) -> Tensor {
    let mut dims = dy.dims.clone();
    dims[2] /= times;
    let mut dx = Tensor::zeros(dims);
    let width = dy.width();
    for (n, head) in dy.rows().enumerate() {
        for (i, x) in head.iter().enumerate() {
            dx.data[n / times * width + i] += x;
        }
    }
    dx
}

pub(super) fn spread(x: &Tensor, width: usize, kept: bool) -> Tensor {
    let mut dims = x.dims.clone();
    if kept {
        assert_eq!(dims.pop(), Some(1));
    }
    dims.push(width);
    Tensor { dims, data: x.data.iter().flat_map(|x| vec![*x; width]).collect() }
}
