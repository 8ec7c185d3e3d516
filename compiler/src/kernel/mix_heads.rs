//! Sums of heads with weights, and their gradients.

use std::fmt;

use super::prelude::*;

/// What [`MixHeads`] computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixed {
    /// The sums.
    Heads,
    /// The gradient of the heads.
    Input,
    /// The gradient of the weights, for each token.
    Weights,
}

impl fmt::Display for Mixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mixed::Heads => "heads",
            Mixed::Input => "input",
            Mixed::Weights => "weights",
        })
    }
}

kernel! {
    /// Sums of heads with weights w, [n, m] or [b, t, n, m]; with `one` without the axis m. By `part`:
    /// heads: in x [b, t, n, d], w; out y [b, t, m, d], y_j = Σ_i w_ij x_i, in the order of i.
    /// input: in dy [b, t, m, d], w; out dx [b, t, n, d], dx_i = Σ_j w_ij dy_j, in the order of j.
    /// weights: in dy [b, t, m, d], x [b, t, n, d]; out [b, t, n, m], Σ over d of x_i ⊙ dy_j.
    MixHeads {
        /// What is computed.
        part: Mixed,
        /// Whether there is one sum, whose axis is left out.
        one: bool,
    }
    facts: |_| Facts::new("mix_heads", Class::Library).cheap(),
    results: |k, x| {
        let (a, b) = (x.dims(0), x.dims(1));
        let tokens = take(a, 2);
        vec![match k.part {
            Mixed::Heads => {
                let sums = if k.one { &[] } else { last(b) };
                value("y", [tokens, sums, skip(a, 3)].concat(), x.dtype(0))
            }
            Mixed::Input => {
                let heads = last(if k.one { b } else { outer(b) });
                let width = skip(a, if k.one { 2 } else { 3 });
                value("dx", [tokens, heads, width].concat(), x.dtype(0))
            }
            Mixed::Weights => {
                let sums = if k.one { &[] } else { skip(outer(a), 2) };
                value("dweights", [outer(b), sums].concat(), x.widest(0..2))
            }
        }]
    },
    // A multiply-add for each head, sum and channel.
    flops: |k, s| {
        2 * s.y()
            * match k.part {
                Mixed::Heads => s.input(0).at(2),
                Mixed::Input if k.one => 1,
                Mixed::Input => s.input(0).at(2),
                Mixed::Weights => s.input(0).last(),
            }
    },
    value: |k, x, _| vec![mix_heads(x[0], x[1], k.part, k.one)],
}

/// The sums of heads, or a gradient of them, from the formulas in the contract.
#[cfg(test)]
fn mix_heads(a: &Tensor, b: &Tensor, part: Mixed, one: bool) -> Tensor {
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
