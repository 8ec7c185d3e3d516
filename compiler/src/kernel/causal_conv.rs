//! Canon layers and short convolutions: depthwise and causal over time, with their gradient and their state.

use std::fmt;

use super::prelude::*;

/// The activation of a convolution, before the residual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activation {
    /// No function.
    Identity,
    /// x · sigmoid(x).
    Silu,
}

impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Activation::Identity => "none",
            Activation::Silu => "silu",
        })
    }
}

kernel! {
    /// In: `parts` tensors x_i [b, t, c_i], read as one x with c = Σ c_i channels without concatenating
    /// them; weight [c, kernel], with the last tap for the current token; if `bias` bias \[c\]; if `state`
    /// past [b, kernel − 1, c], else zeros. Out: `parts` tensors y_i [b, t, c_i] of
    /// y = act(conv(x) + bias), plus x if `residual`.
    CausalConv {
        /// Number of taps.
        kernel: i64,
        /// Whether x is added to the result.
        residual: bool,
        /// Function of the convolution and bias.
        activation: Activation,
        /// Number of operands x_i.
        parts: usize,
        /// Whether a bias is added.
        bias: bool,
        /// Whether a past is given.
        state: bool,
    }
    facts: |k| {
        let facts = Facts::new("causal_conv", Class::Convolution { taps: k.kernel });
        facts.cheap().apart(Apart::Sequences)
    },
    results: |k, x| (0..k.parts).map(|i| x.like("y", i)).collect(),
    flops: |k, s| {
        let act = match k.activation {
            Activation::Identity => 0,
            Activation::Silu => SILU,
        };
        (2 * i128::from(k.kernel) + i128::from(k.bias) + i128::from(k.residual) + act)
            * s.first(k.parts)
    },
    value: |k, x, _| {
        let (parts, bias) = (k.parts, k.bias.then(|| x[k.parts + 1]));
        let past = k.state.then(|| x[parts + 1 + usize::from(k.bias)]);
        let conv = reference::Conv::new(k.kernel, k.residual, k.activation);
        conv.forward(&x[..parts], x[parts], bias, past)
    },
}

kernel! {
    /// In: `parts` tensors dy_i [b, t, c_i], `parts` tensors x_i [b, t, c_i], weight [c, kernel], if
    /// `bias` bias \[c\]; zeros before the start. Out: `parts` tensors dx_i [b, t, c_i], dweight
    /// [c, kernel], if `bias` dbias \[c\].
    CausalConvGrad {
        /// Number of taps.
        kernel: i64,
        /// Whether x was added to the result.
        residual: bool,
        /// Function of the convolution and bias.
        activation: Activation,
        /// Number of operands x_i.
        parts: usize,
        /// Whether a bias was added.
        bias: bool,
    }
    facts: |k| Facts::new("causal_conv_grad", Class::Convolution { taps: k.kernel }),
    results: |k, x| {
        (0..k.parts)
            .map(|i| x.like("dx", k.parts + i))
            .chain([x.f32_like("dweight", 2 * k.parts)])
            .chain(k.bias.then(|| x.f32_like("dbias", 2 * k.parts + 1)))
            .collect()
    },
    flops: |k, s| {
        let (taps, bias) = (2 * i128::from(k.kernel), i128::from(k.bias));
        let act = match k.activation {
            Activation::Identity => 0,
            // The convolution again.
            Activation::Silu => taps + bias + SILU_SLOPE,
        };
        // dx and dweight.
        (2 * taps + bias + i128::from(k.residual) + act) * s.first(k.parts)
    },
    value: |k, x, _| {
        let (dy, x) = x.split_at(k.parts);
        let (x, parameters) = x.split_at(k.parts);
        let conv = reference::Conv::new(k.kernel, k.residual, k.activation);
        conv.backward(dy, x, parameters[0], k.bias.then(|| parameters[1]))
    },
}

kernel! {
    /// In: `parts` tensors x_i [b, t, c_i]; if `state` past [b, kernel − 1, c]. Out: [b, kernel − 1,
    /// c]: the last kernel − 1 rows of past (or zeros) followed by x, parts concatenated, in its own
    /// memory.
    CausalConvState {
        /// Number of taps.
        kernel: i64,
        /// Number of operands x_i.
        parts: usize,
        /// Whether a past is given.
        state: bool,
    }
    facts: |_| Facts::new("causal_conv_state", Class::Library).reads_bf16().apart(Apart::Sequences),
    results: |k, x| {
        let channels = (0..k.parts).map(|i| width(x.dims(i))).sum();
        let dims = [Extent::Batch, Extent::Fixed(k.kernel - 1), Extent::Fixed(channels)];
        vec![value("state", dims, x.dtype(0))]
    },
    flops: |_, _| 0,
    value: |k, x, _| {
        let new = concat(&x[..k.parts]);
        let (rows, width) = (k.kernel as usize - 1, new.width());
        let zeros = Tensor::zeros(vec![new.dims[0], rows, width]);
        let inputs = if k.state { x[k.parts] } else { &zeros }.append(&new);
        vec![inputs.times(inputs.dims[1] - rows, inputs.dims[1])]
    },
}

/// Element by element.
#[cfg(test)]
pub(super) mod reference {
    use super::super::tensor::{Tensor, silu, silu_slope};
    use super::Activation;

    pub(in crate::kernel) struct Conv {
        kernel: usize,
        residual: bool,
        activation: Activation,
    }

    impl Conv {
        pub(in crate::kernel) fn new(kernel: i64, residual: bool, activation: Activation) -> Self {
            Self { kernel: kernel as usize, residual, activation }
        }

        pub(in crate::kernel) fn forward(
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

        pub(in crate::kernel) fn backward(
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
}
