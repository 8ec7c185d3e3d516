//! Kernels that depend on positions or other time steps: rope, attention, convolution.

use super::norms::{silu, silu_slope};
use super::tensor::Tensor;
use crate::plan::{Activation, RopeLayout, RopeScaling, Scores};

pub(super) fn rope(
    x: &Tensor,
    position: f64,
    (theta, scaling): (f64, RopeScaling),
    dims: usize,
    layout: RopeLayout,
    sign: f64,
) -> Tensor {
    let (rates, size) = (scaling.rates(theta, dims as i64), scaling.magnitude());
    let (time, heads, width) = (x.dims[1], x.dims[2], x.width());
    let mut y = x.clone();
    for (n, row) in y.data.chunks_mut(width).enumerate() {
        let t = (n / heads % time) as f64;
        for (i, rate) in rates.iter().enumerate() {
            let (sin, cos) = libm::sincos(sign * (position + t) * rate);
            let (sin, cos) = (size * sin, size * cos);
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

/// The operands after q, k and v.
struct Extra<'a> {
    scores: &'a Scores,
    sink: Option<&'a Tensor>,
    slopes: Option<&'a Tensor>,
}

impl<'a> Extra<'a> {
    fn new(scores: &'a Scores, x: &[&'a Tensor]) -> Self {
        let mut x = x.iter().copied();
        let sink = scores.sink.then(|| x.next().unwrap());
        Self { scores, sink, slopes: scores.slopes.then(|| x.next().unwrap()) }
    }

    fn scale(&self, q: &Tensor) -> f64 {
        self.scores.scale.map_or(1.0 / libm::sqrt(q.width() as f64), |scale| scale.to_f64())
    }

    /// The score, and the slope of the bound.
    fn score(
        &self,
        q: &Tensor,
        k: &Tensor,
        [b, t, h, kv]: [usize; 4],
        j: usize,
        back: f64,
    ) -> (f64, f64) {
        let dot: f64 = (0..q.width()).map(|i| q.at(&[b, t, h, i]) * k.at(&[b, j, kv, i])).sum();
        let plain = dot * self.scale(q);
        let (bound, slope) = match self.scores.softcap {
            None => (plain, 1.0),
            Some(cap) => {
                let tanh = libm::tanh(plain / cap.to_f64());
                (cap.to_f64() * tanh, 1.0 - tanh * tanh)
            }
        };
        (bound - self.slopes.map_or(0.0, |slopes| slopes.data[h]) * back, slope)
    }
}

pub(super) fn attention(x: &[&Tensor], scores: &Scores) -> Vec<Tensor> {
    let (q, k, v) = (x[0], x[1], x[2]);
    let extra = Extra::new(scores, &x[3..]);
    let e = v.width();
    let mut y = Tensor::zeros(vec![q.dims[0], q.dims[1], q.dims[2], e]);
    let mut lse = Tensor::zeros(vec![q.dims[0], q.dims[2], q.dims[1]]);
    for (at @ [b, t, h, kv], keys) in queries(q, k, scores.window) {
        let last = keys.end - 1;
        let score = |j: usize| extra.score(q, k, at, j, (last - j) as f64).0;
        let all: Vec<f64> = keys.clone().map(score).collect();
        let with_sink = all.iter().copied().chain(extra.sink.map(|sink| sink.data[h]));
        let max = with_sink.clone().fold(f64::NEG_INFINITY, f64::max);
        let total = max + libm::log(with_sink.map(|s| libm::exp(s - max)).sum());
        lse.add_at(&[b, h, t], total);
        for (j, s) in keys.zip(all) {
            for i in 0..e {
                y.add_at(&[b, t, h, i], libm::exp(s - total) * v.at(&[b, j, kv, i]));
            }
        }
    }
    vec![y, lse]
}

/// dP = dy vᵀ, dS = P (dP − Σ dy y).
pub(super) fn attention_grad(x: &[&Tensor], scores: &Scores) -> Vec<Tensor> {
    let [dy, q, k, v, y, lse, rest @ ..] = x else { panic!("{} operands", x.len()) };
    let extra = Extra::new(scores, rest);
    let (d, e) = (q.width(), v.width());
    let [mut dq, mut dk, mut dv] = [q, k, v].map(|x| Tensor::zeros(x.dims.clone()));
    let [mut dsink, mut dslopes] = [0, 1].map(|_| Tensor::zeros(vec![q.dims[2]]));
    let scale = extra.scale(q);
    for (at @ [b, t, h, kv], keys) in queries(q, k, scores.window) {
        let delta: f64 = (0..e).map(|i| dy.at(&[b, t, h, i]) * y.at(&[b, t, h, i])).sum();
        if let Some(sink) = extra.sink {
            dsink.data[h] -= libm::exp(sink.data[h] - lse.at(&[b, h, t])) * delta;
        }
        let last = keys.end - 1;
        for j in keys {
            let back = (last - j) as f64;
            let (score, slope) = extra.score(q, k, at, j, back);
            let p = libm::exp(score - lse.at(&[b, h, t]));
            let dp: f64 = (0..e).map(|i| dy.at(&[b, t, h, i]) * v.at(&[b, j, kv, i])).sum();
            dslopes.data[h] -= p * (dp - delta) * back;
            let ds = scale * slope * p * (dp - delta);
            for i in 0..e {
                dv.add_at(&[b, j, kv, i], p * dy.at(&[b, t, h, i]));
            }
            for i in 0..d {
                dq.add_at(&[b, t, h, i], ds * k.at(&[b, j, kv, i]));
                dk.add_at(&[b, j, kv, i], ds * q.at(&[b, t, h, i]));
            }
        }
    }
    let extra = [(scores.sink, dsink), (scores.slopes, dslopes)].into_iter();
    let extra = extra.filter_map(|(given, gradient)| given.then_some(gradient));
    [dq, dk, dv].into_iter().chain(extra).collect()
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

pub(super) fn shift_targets(targets: &Tensor, by: usize) -> Tensor {
    let time = targets.dims[1];
    Tensor::from_fn(targets.dims.clone(), |i| match i % time + by {
        later if later < time => targets.data[i + by],
        _ => crate::plan::IGNORED as f64,
    })
}

pub(super) fn shift_grad(dy: &Tensor) -> Tensor {
    dy.times(1, dy.dims[1]).append(&Tensor::zeros(vec![dy.dims[0], 1, dy.width()]))
}
