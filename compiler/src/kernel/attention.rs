//! Causal softmax attention, and its gradient.

use super::prelude::*;

/// How attention scores keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// Number of visible tokens, with the query's own; None for all.
    pub window: Option<i64>,
    /// Factor of q kᵀ; None for 1 / sqrt(d).
    pub scale: Option<Root>,
    /// Bound of the scores, by a tanh.
    pub softcap: Option<Decimal>,
    /// Whether each head has a score without a value.
    pub sink: bool,
    /// Whether each head has a slope that lowers scores by distance.
    pub slopes: bool,
}

impl Scores {
    /// Scores without any options.
    pub const PLAIN: Scores =
        Scores { window: None, scale: None, softcap: None, sink: false, slopes: false };

    /// Number of operands after the others.
    pub fn extra(&self) -> usize {
        usize::from(self.sink) + usize::from(self.slopes)
    }
}

impl Setting for Scores {
    fn text(&self, _: &str) -> Vec<String> {
        let Scores { window, scale, softcap, sink, slopes } = self;
        (window.text("window").into_iter())
            .chain(scale.map(|scale| format!("scale {scale}")))
            .chain(softcap.map(|softcap| format!("softcap {softcap}")))
            .chain(sink.then(|| "sink".to_owned()))
            .chain(slopes.then(|| "slopes".to_owned()))
            .collect()
    }
}

/// The most queries for which attention on a CPU copies neither keys nor values.
pub const FEW_QUERIES: i64 = 4;

kernel! {
    /// In: q [b, t, h, d], k [b, s, kv, d], v [b, s, kv, e], s ≥ t; if `sink` sink \[h\]; if `slopes` slopes \[h\]. Out:
    /// y [b, t, h, e], lse [b, h, t] = ln (Σ_j exp(score) + exp(sink)). score = scale · q kᵀ, then softcap ·
    /// tanh(score / softcap), then less slopes · distance; query i sees keys j at distances 0 ≤ (s − t + i) − j, and with
    /// `window` also < window; query head j reads kv head ⌊j·kv/h⌋. y = Σ_j exp(score − lse) v_j. Softmax in f32.
    Attention {
        /// How keys are scored.
        scores: Scores,
    }
    facts: |k| Facts::new("attention", Class::Attention { scores: k.scores, first: 0 }),
    results: |_, x| {
        let y = [take(x.dims(0), 3), skip(x.dims(2), 3)].concat();
        let lse: Vec<_> = [0, 2, 1].iter().filter_map(|i| x.dims(0).get(*i)).copied().collect();
        vec![value("y", y, x.dtype(0)), f32("lse", lse)]
    },
    // q kᵀ, then p v, for each query and each key that it sees.
    flops: |k, s| {
        let (q, v) = (s.input(0), s.input(2));
        let pairs = visible(q.at(1), s.input(1).at(1), k.scores.window) * q.at(0) * q.at(2);
        pairs * 2 * (q.at(3) + v.at(3))
    },
    value: |k, x, _| reference::attention(x, &k.scores),
}

kernel! {
    /// In: dy [b, t, h, e], q [b, t, h, d], k [b, t, kv, d], v [b, t, kv, e], y [b, t, h, e], lse
    /// [b, h, t], sink and slopes as in `Attention`. Out: dq, dk, dv, dsink, dslopes, each shaped like its operand.
    AttentionGrad {
        /// How keys are scored.
        scores: Scores,
    }
    facts: |k| Facts::new("attention_grad", Class::Attention { scores: k.scores, first: 1 }),
    results: |k, x| {
        let Scores { sink, slopes, .. } = k.scores;
        [x.like("dq", 1), x.like("dk", 2), x.like("dv", 3)]
            .into_iter()
            .chain(sink.then(|| x.f32_like("dsink", 6)))
            .chain(slopes.then(|| x.f32_like("dslopes", 6 + usize::from(sink))))
            .collect()
    },
    // The scores again, dq and dk; dp and dv.
    flops: |k, s| {
        let (q, v) = (s.input(1), s.input(3));
        let pairs = visible(q.at(1), s.input(2).at(1), k.scores.window) * q.at(0) * q.at(2);
        pairs * (6 * q.at(3) + 4 * v.at(3))
    },
    value: |k, x, _| reference::grad(x, &k.scores),
}

/// Pairs of a query and a key that it sees: of the last `queries` of `keys` tokens, each sees itself and all before
/// it, with a window at most that many.
fn visible(queries: i128, keys: i128, window: Option<i64>) -> i128 {
    // The first and the last query see so many keys without a window.
    let (first, last) = (keys - queries + 1, keys);
    let without_window = queries * (first + last) / 2;
    let hidden = window.map_or(0, |window| {
        // Queries that would see more than the window: the last of them `most` more, each before it one less.
        let most = (last - i128::from(window)).max(0);
        let least = (first - i128::from(window)).max(1);
        if most < least { 0 } else { (most - least + 1) * (least + most) / 2 }
    });
    without_window - hidden
}

/// Query by query and key by key.
#[cfg(test)]
mod reference {
    use super::super::tensor::Tensor;
    use super::Scores;

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
    pub(super) fn grad(x: &[&Tensor], scores: &Scores) -> Vec<Tensor> {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_sees_itself_and_earlier_keys_within_the_window() {
        // Five queries see 1 + 2 + 3 + 4 + 5 keys; at most 2 with a window.
        assert_eq!(
            [visible(5, 5, None), visible(5, 5, Some(2)), visible(5, 5, Some(9))],
            [15, 9, 15]
        );
        // The last two of five tokens.
        assert_eq!(
            [visible(2, 5, None), visible(2, 5, Some(4)), visible(2, 5, Some(1))],
            [9, 8, 2]
        );
    }
}
