//! Projections, norms and scalar functions.

use super::tensor::Tensor;
use crate::plan::{Function, Gate};

pub(super) fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let mut dims = x.dims.clone();
    dims.pop();
    dims.push(weight.dims[0]);
    let dot = |row: &[f64], w: &[f64]| row.iter().zip(w).map(|(a, b)| a * b).sum::<f64>();
    let mut data = Vec::new();
    for row in x.rows() {
        for (o, w) in weight.rows().enumerate() {
            data.push(dot(row, w) + bias.map_or(0.0, |b| b.data[o]));
        }
    }
    Tensor { dims, data }
}

pub(super) fn linear_grad_input(dy: &Tensor, weight: &Tensor) -> Tensor {
    let i = weight.width();
    let mut dims = dy.dims.clone();
    dims.pop();
    dims.push(i);
    let mut dx = Tensor::zeros(dims);
    for (n, row) in dy.rows().enumerate() {
        for (g, w) in row.iter().zip(weight.rows()) {
            for (j, w) in w.iter().enumerate() {
                dx.data[n * i + j] += g * w;
            }
        }
    }
    dx
}

pub(super) fn linear_grad_weight(dy: &Tensor, x: &Tensor) -> Tensor {
    let mut dw = Tensor::zeros(vec![dy.width(), x.width()]);
    for (dy, x) in dy.rows().zip(x.rows()) {
        for (o, g) in dy.iter().enumerate() {
            for (i, x) in x.iter().enumerate() {
                dw.add_at(&[o, i], g * x);
            }
        }
    }
    dw
}

/// rms_norm with a weight (mean of squares), l2_norm without (sum of squares).
pub(super) fn norm(x: &Tensor, weight: Option<&Tensor>, eps: f64) -> Vec<Tensor> {
    let c = x.width();
    let mean = if weight.is_some() { c as f64 } else { 1.0 };
    let squares = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>();
    let inverse: Vec<f64> =
        x.rows().map(|row| 1.0 / libm::sqrt(squares(row) / mean + eps)).collect();
    let w = |i: usize| weight.map_or(1.0, |w| w.data[i % c]);
    let y = x.data.iter().enumerate().map(|(i, x)| w(i) * x * inverse[i / c]).collect();
    let mut dims = x.dims.clone();
    dims.pop();
    vec![x.like(y), Tensor { dims, data: inverse }]
}

pub(super) fn rms_norm_grad(
    dy: &Tensor,
    x: &Tensor,
    weight: &Tensor,
    rstd: &Tensor,
) -> Vec<Tensor> {
    let c = x.width();
    let mut dx = Vec::new();
    let mut dw = vec![0.0; c];
    for ((dy, x), r) in dy.rows().zip(x.rows()).zip(&rstd.data) {
        let n: Vec<f64> = x.iter().map(|x| x * r).collect();
        let g: Vec<f64> = dy.iter().zip(&weight.data).map(|(dy, w)| dy * w).collect();
        let mean = g.iter().zip(&n).map(|(g, n)| g * n).sum::<f64>() / c as f64;
        dx.extend(g.iter().zip(&n).map(|(g, n)| r * (g - n * mean)));
        for (dw, (dy, n)) in dw.iter_mut().zip(dy.iter().zip(&n)) {
            *dw += dy * n;
        }
    }
    vec![x.like(dx), weight.like(dw)]
}

pub(super) fn l2_norm_grad(dy: &Tensor, x: &Tensor, rnorm: &Tensor) -> Tensor {
    let mut dx = Vec::new();
    for ((dy, x), r) in dy.rows().zip(x.rows()).zip(&rnorm.data) {
        let y: Vec<f64> = x.iter().map(|x| r * x).collect();
        let dot = dy.iter().zip(&y).map(|(a, b)| a * b).sum::<f64>();
        dx.extend(dy.iter().zip(&y).map(|(dy, y)| r * (dy - y * dot)));
    }
    x.like(dx)
}

pub(super) fn softmax(x: &Tensor) -> Tensor {
    let mut y = Vec::new();
    for row in x.rows() {
        let total: f64 = row.iter().map(|x| libm::exp(*x)).sum();
        y.extend(row.iter().map(|x| libm::exp(*x) / total));
    }
    x.like(y)
}

pub(super) fn softmax_grad(dy: &Tensor, y: &Tensor) -> Tensor {
    let mut dx = Vec::new();
    for (dy, y) in dy.rows().zip(y.rows()) {
        let dot = dy.iter().zip(y).map(|(a, b)| a * b).sum::<f64>();
        dx.extend(dy.iter().zip(y).map(|(dy, y)| y * (dy - dot)));
    }
    y.like(dx)
}

pub(super) fn sum_channels(x: &Tensor, keep: bool) -> Tensor {
    let mut dims = x.dims.clone();
    dims.pop();
    dims.extend(keep.then_some(1));
    Tensor { dims, data: x.rows().map(|row| row.iter().sum()).collect() }
}

pub(super) fn silu(x: f64) -> f64 {
    (Function::Silu.definition().value)(x)
}

pub(super) fn silu_slope(x: f64) -> f64 {
    (Function::Silu.definition().slope)(x)
}

pub(super) fn swiglu(gate: &Tensor, up: &Tensor) -> Tensor {
    zip(gate, up, |gate, up| silu(gate) * up)
}

pub(super) fn swiglu_grad(dy: &Tensor, gate: &Tensor, up: &Tensor) -> Vec<Tensor> {
    let through = zip(dy, up, |dy, up| dy * up);
    let dgate = zip(&through, gate, |d, gate| d * silu_slope(gate));
    let dup = zip(dy, gate, |dy, gate| dy * silu(gate));
    vec![dgate, dup]
}

pub(super) fn gated_norm(
    x: &Tensor,
    gate: &Tensor,
    weight: &Tensor,
    eps: f64,
    order: Gate,
) -> Vec<Tensor> {
    match order {
        Gate::Before => norm(&swiglu(gate, x), Some(weight), eps),
        Gate::After => {
            let mut made = norm(x, Some(weight), eps);
            made[0] = swiglu(gate, &made[0]);
            made
        }
    }
}

pub(super) fn gated_norm_grad(x: &[&Tensor], order: Gate) -> Vec<Tensor> {
    let [dy, x, gate, weight, rstd] = x else { panic!("{} operands", x.len()) };
    match order {
        Gate::Before => {
            let made = rms_norm_grad(dy, &swiglu(gate, x), weight, rstd);
            let [dgate, dx] = <[Tensor; 2]>::try_from(swiglu_grad(&made[0], gate, x)).unwrap();
            vec![dx, dgate, made[1].clone()]
        }
        Gate::After => {
            let c = x.width();
            let n = (0..x.data.len()).map(|i| x.data[i] * rstd.data[i / c] * weight.data[i % c]);
            let n = x.like(n.collect());
            let [dgate, dn] = <[Tensor; 2]>::try_from(swiglu_grad(dy, gate, &n)).unwrap();
            let made = rms_norm_grad(&dn, x, weight, rstd);
            vec![made[0].clone(), dgate, made[1].clone()]
        }
    }
}

/// Applies f to each pair of elements; the shorter tensor is broadcast over the longer's leading axes.
pub(super) fn zip(a: &Tensor, b: &Tensor, f: impl Fn(f64, f64) -> f64) -> Tensor {
    let long = if b.dims.len() > a.dims.len() { b } else { a };
    let short = a.dims.len().min(b.dims.len());
    assert_eq!(a.dims[a.dims.len() - short..], b.dims[b.dims.len() - short..]);
    let at = |x: &Tensor, i: usize| x.data[i % x.data.len()];
    long.like((0..long.data.len()).map(|i| f(at(a, i), at(b, i))).collect())
}
