//! Kernels that depend on positions or other time steps: rope, attention, convolution.

use super::norms::{silu, silu_slope};
use super::tensor::Tensor;
use crate::plan::{Activation, RopeLayout};

pub(super) fn rope(
    x: &Tensor,
    position: f64,
    theta: f64,
    dims: usize,
    layout: RopeLayout,
    sign: f64,
) -> Tensor {
    let (time, heads, width) = (x.dims[1], x.dims[2], x.width());
    let mut y = x.clone();
    for (n, row) in y.data.chunks_mut(width).enumerate() {
        let t = (n / heads % time) as f64;
        for i in 0..dims / 2 {
            let angle = sign * (position + t) * libm::pow(theta, -2.0 * i as f64 / dims as f64);
            let (sin, cos) = libm::sincos(angle);
            let (a, b) = match layout {
                RopeLayout::Interleaved => (2 * i, 2 * i + 1),
                RopeLayout::Half => (i, i + dims / 2),
            };
            (row[a], row[b]) = (row[a] * cos - row[b] * sin, row[a] * sin + row[b] * cos);
        }
    }
    y
}

/// The indices of one query, and the keys it sees.
fn queries(
    q: &Tensor,
    k: &Tensor,
    window: Option<i64>,
) -> impl Iterator<Item = ([usize; 4], std::ops::Range<usize>)> + use<> {
    let (batch, time, heads) = (q.dims[0], q.dims[1], q.dims[2]);
    let (seen, kv) = (k.dims[1], k.dims[2]);
    (0..batch * time * heads).map(move |n| {
        let (b, t, h) = (n / heads / time, n / heads % time, n % heads);
        let end = seen - time + t + 1;
        let from = window.map_or(0, |w| end.saturating_sub(w as usize));
        ([b, t, h, h * kv / heads], from..end)
    })
}

fn score(q: &Tensor, k: &Tensor, [b, t, h, kv]: [usize; 4], j: usize) -> f64 {
    let d = q.width();
    let dot: f64 = (0..d).map(|i| q.at(&[b, t, h, i]) * k.at(&[b, j, kv, i])).sum();
    dot / libm::sqrt(d as f64)
}

pub(super) fn attention(q: &Tensor, k: &Tensor, v: &Tensor, window: Option<i64>) -> Vec<Tensor> {
    let e = v.width();
    let mut y = Tensor::zeros(vec![q.dims[0], q.dims[1], q.dims[2], e]);
    let mut lse = Tensor::zeros(vec![q.dims[0], q.dims[2], q.dims[1]]);
    for (at @ [b, t, h, kv], keys) in queries(q, k, window) {
        let scores: Vec<f64> = keys.clone().map(|j| score(q, k, at, j)).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total = max + libm::log(scores.iter().map(|s| libm::exp(s - max)).sum());
        lse.add_at(&[b, h, t], total);
        for (j, s) in keys.zip(scores) {
            for i in 0..e {
                y.add_at(&[b, t, h, i], libm::exp(s - total) * v.at(&[b, j, kv, i]));
            }
        }
    }
    vec![y, lse]
}

/// dP = dy vᵀ, dS = P (dP − Σ dy y).
pub(super) fn attention_grad(x: &[&Tensor], window: Option<i64>) -> Vec<Tensor> {
    let [dy, q, k, v, y, lse] = x else { panic!("{} operands", x.len()) };
    let (d, e) = (q.width(), v.width());
    let [mut dq, mut dk, mut dv] = [q, k, v].map(|x| Tensor::zeros(x.dims.clone()));
    let scale = 1.0 / libm::sqrt(d as f64);
    for (at @ [b, t, h, kv], keys) in queries(q, k, window) {
        let delta: f64 = (0..e).map(|i| dy.at(&[b, t, h, i]) * y.at(&[b, t, h, i])).sum();
        for j in keys {
            let p = libm::exp(score(q, k, at, j) - lse.at(&[b, h, t]));
            let dp: f64 = (0..e).map(|i| dy.at(&[b, t, h, i]) * v.at(&[b, j, kv, i])).sum();
            let ds = scale * p * (dp - delta);
            for i in 0..e {
                dv.add_at(&[b, j, kv, i], p * dy.at(&[b, t, h, i]));
            }
            for i in 0..d {
                dq.add_at(&[b, t, h, i], ds * k.at(&[b, j, kv, i]));
                dk.add_at(&[b, j, kv, i], ds * q.at(&[b, t, h, i]));
            }
        }
    }
    vec![dq, dk, dv]
}

pub(super) struct Conv {
    pub(super) kernel: usize,
    pub(super) residual: bool,
    pub(super) activation: Activation,
}

impl Conv {
    /// Without an activation.
    pub(super) fn plain(kernel: i64, residual: bool) -> Self {
        Self { kernel: kernel as usize, residual, activation: Activation::Identity }
    }

    pub(super) fn forward(
        &self,
        xs: &[&Tensor],
        weight: &Tensor,
        bias: Option<&Tensor>,
        past: Option<&Tensor>,
    ) -> Vec<Tensor> {
        let mut first = 0;
        let part = |x: &&Tensor| {
            let mut y = Tensor::zeros(x.dims.clone());
            each(x, |b, t, c| {
                let u = conv(x, weight, past, [b, t, c, first], self.kernel)
                    + bias.map_or(0.0, |bias| bias.data[first + c]);
                let skip = if self.residual { x.at(&[b, t, c]) } else { 0.0 };
                y.add_at(&[b, t, c], self.activate(u) + skip);
            });
            first += x.width();
            y
        };
        xs.iter().map(part).collect()
    }

    pub(super) fn backward(
        &self,
        dys: &[&Tensor],
        xs: &[&Tensor],
        weight: &Tensor,
        bias: Option<&Tensor>,
    ) -> Vec<Tensor> {
        let kernel = self.kernel;
        let mut dw = Tensor::zeros(weight.dims.clone());
        let mut dbias = bias.map(|bias| Tensor::zeros(bias.dims.clone()));
        let mut gradients = Vec::new();
        let mut first = 0;
        for (dy, x) in dys.iter().zip(xs) {
            let mut dx = Tensor::zeros(x.dims.clone());
            each(x, |b, t, c| {
                let dy = dy.at(&[b, t, c]);
                let u = conv(x, weight, None, [b, t, c, first], kernel)
                    + bias.map_or(0.0, |bias| bias.data[first + c]);
                let du = dy * self.slope(u);
                dbias.iter_mut().for_each(|sums| sums.add_at(&[first + c], du));
                for j in 0..kernel {
                    if let Some(s) = (t + j + 1).checked_sub(kernel) {
                        dx.add_at(&[b, s, c], du * weight.at(&[first + c, j]));
                        dw.add_at(&[first + c, j], du * x.at(&[b, s, c]));
                    }
                }
                dx.add_at(&[b, t, c], if self.residual { dy } else { 0.0 });
            });
            first += x.width();
            gradients.push(dx);
        }
        gradients.push(dw);
        gradients.extend(dbias);
        gradients
    }

    fn activate(&self, u: f64) -> f64 {
        match self.activation {
            Activation::Identity => u,
            Activation::Silu => silu(u),
        }
    }

    fn slope(&self, u: f64) -> f64 {
        match self.activation {
            Activation::Identity => 1.0,
            Activation::Silu => silu_slope(u),
        }
    }
}

fn each(x: &Tensor, mut f: impl FnMut(usize, usize, usize)) {
    for n in 0..x.data.len() {
        f(n / x.width() / x.dims[1], n / x.width() % x.dims[1], n % x.width());
    }
}

/// The convolution of channel c before activation and residual, in the part starting at `first`.
fn conv(
    x: &Tensor,
    weight: &Tensor,
    past: Option<&Tensor>,
    [b, t, c, first]: [usize; 4],
    kernel: usize,
) -> f64 {
    let input = |j: usize| match ((t + j + 1).checked_sub(kernel), past) {
        (Some(s), _) => x.at(&[b, s, c]),
        (None, Some(past)) => past.at(&[b, t + j, first + c]),
        (None, None) => 0.0,
    };
    (0..kernel).map(|j| weight.at(&[first + c, j]) * input(j)).sum()
}

pub(super) fn conv_state(xs: &[&Tensor], past: Option<&Tensor>, kernel: usize) -> Tensor {
    let x = super::moves::concat(xs);
    let before =
        past.cloned().unwrap_or_else(|| Tensor::zeros(vec![x.dims[0], kernel - 1, x.width()]));
    let all = before.append(&x);
    all.times(all.dims[1] + 1 - kernel, all.dims[1])
}

pub(super) fn shift(x: &Tensor, past: Option<&Tensor>) -> Tensor {
    let zeros = || Tensor::zeros(vec![x.dims[0], 1, x.width()]);
    past.cloned().unwrap_or_else(zeros).append(&x.times(0, x.dims[1] - 1))
}

pub(super) fn shift_grad(dy: &Tensor) -> Tensor {
    dy.times(1, dy.dims[1]).append(&Tensor::zeros(vec![dy.dims[0], 1, dy.width()]))
}
