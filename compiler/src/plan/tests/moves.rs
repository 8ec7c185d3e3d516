//! Tables and rearrangements.

use super::tensor::Tensor;
use crate::plan::Mixed;

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

/// The sums of heads, or a gradient of them, from the formulas in the contract.
pub(super) fn mix_heads(a: &Tensor, b: &Tensor, part: Mixed, one: bool) -> Tensor {
    // With one sum, the axis m of results and weights is left out.
    let with_sums = |x: &Tensor, at: usize| {
        let mut dims = x.dims.clone();
        if one {
            dims.insert(at, 1);
        }
        Tensor { dims, data: x.data.clone() }
    };
    let (b_dims, tokens) = (b.dims.len(), a.dims[0] * a.dims[1]);
    let (a, b) = match part {
        Mixed::Heads => (a.clone(), with_sums(b, b_dims)),
        Mixed::Input => (with_sums(a, 2), with_sums(b, b_dims)),
        Mixed::Weights => (with_sums(a, 2), b.clone()),
    };
    let d = a.width();
    let (n, m) = match part {
        Mixed::Heads | Mixed::Input => (b.dims[b.dims.len() - 2], b.width()),
        Mixed::Weights => (b.dims[2], a.dims[2]),
    };
    let weight = |token: usize, i: usize, j: usize| {
        let start = if b.dims.len() == 4 { token * n * m } else { 0 };
        b.data[start + i * m + j]
    };
    let mut data = Vec::new();
    for token in 0..tokens {
        match part {
            Mixed::Heads => {
                for (j, c) in (0..m).flat_map(|j| (0..d).map(move |c| (j, c))) {
                    let x = |i: usize| a.data[(token * n + i) * d + c];
                    data.push((0..n).map(|i| weight(token, i, j) * x(i)).sum());
                }
            }
            Mixed::Input => {
                for (i, c) in (0..n).flat_map(|i| (0..d).map(move |c| (i, c))) {
                    let dy = |j: usize| a.data[(token * m + j) * d + c];
                    data.push((0..m).map(|j| weight(token, i, j) * dy(j)).sum());
                }
            }
            Mixed::Weights => {
                for (i, j) in (0..n).flat_map(|i| (0..m).map(move |j| (i, j))) {
                    let dy = |c: usize| a.data[(token * m + j) * d + c];
                    let x = |c: usize| b.data[(token * n + i) * d + c];
                    data.push((0..d).map(|c| dy(c) * x(c)).sum());
                }
            }
        }
    }
    let last = match part {
        Mixed::Heads if one => vec![d],
        Mixed::Heads => vec![m, d],
        Mixed::Input => vec![n, d],
        Mixed::Weights if one => vec![n],
        Mixed::Weights => vec![n, m],
    };
    Tensor { dims: [a.dims[..2].to_vec(), last].concat(), data }
}

/// Rows, whether the n-gram is whole, and the next past.
pub(super) fn ngram(
    tokens: &Tensor,
    past: Option<&Tensor>,
    order: usize,
    rows: u64,
) -> Vec<Tensor> {
    let (batch, time) = (tokens.dims[0], tokens.dims[1]);
    let (mut ids, mut whole, mut next) = (Vec::new(), Vec::new(), Vec::new());
    for b in 0..batch {
        let before = match past {
            Some(past) => past.data[b * (order - 1)..][..order - 1].to_vec(),
            None => vec![0.0; order - 1],
        };
        let new = tokens.data[b * time..][..time].iter().map(|token| token + 1.0);
        let seen: Vec<f64> = before.into_iter().chain(new).collect();
        for window in seen.windows(order).take(time) {
            let is_whole = window.iter().all(|id| *id > 0.0);
            let mut hash = 0xcbf2_9ce4_8422_2325u64 ^ order as u64;
            for id in window {
                hash = (hash ^ (*id as u64).wrapping_sub(1)).wrapping_mul(0x100_0000_01b3);
            }
            let row = (hash ^ (hash >> 32)) % rows;
            ids.push(if is_whole { row as f64 } else { 0.0 });
            whole.push(f64::from(u8::from(is_whole)));
        }
        next.extend_from_slice(&seen[seen.len() - (order - 1)..]);
    }
    let tensor = |dims: &[usize], data| Tensor { dims: dims.to_vec(), data };
    vec![
        tensor(&[batch, time], ids),
        tensor(&[batch, time], whole),
        tensor(&[batch, order - 1], next),
    ]
}
