//! Rotary positions, their frequencies, and how these change for sequences longer than those of the training.
//!
//! Frequencies are computed in f64 by libm, so they are equal on every platform; nothing depends on the length of a
//! call, so cutting a sequence changes nothing.

use std::f64::consts::PI;
use std::fmt;

use super::prelude::*;

/// The channels of a head that a rotary embedding rotates together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RopeLayout {
    /// Pair i is channels 2i and 2i + 1.
    Interleaved,
    /// Pair i is channels i and i + dims/2.
    Half,
}

impl fmt::Display for RopeLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RopeLayout::Interleaved => "interleaved",
            RopeLayout::Half => "half",
        })
    }
}

/// A change of the frequencies θ^(−2i/dims).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// None.
    Unscaled,
    /// All divided by the factor (Chen et al. 2023).
    Interpolated {
        /// Longer by this factor.
        factor: Decimal,
    },
    /// A larger base, as dynamic NTK has it for sequences of `length` tokens.
    Ntk {
        /// Longer by this factor at `original` tokens.
        factor: Decimal,
        /// Tokens that the model was trained for.
        original: i64,
        /// Tokens of a sequence, at least `original`.
        length: i64,
    },
    /// Llama 3.1: divided if a wave has few turns in `original` tokens.
    Llama3 {
        /// Longer by this factor.
        factor: Decimal,
        /// Tokens that the model was trained for.
        original: i64,
        /// Turns below which a frequency is divided.
        low: Decimal,
        /// Turns above which it is not.
        high: Decimal,
    },
    /// YaRN (Peng et al. 2023): divided along a ramp between 32 turns and 1.
    Yarn {
        /// Longer by this factor.
        factor: Decimal,
        /// Tokens that the model was trained for.
        original: i64,
        /// Whether the ramp's ends are whole numbers.
        truncate: bool,
        /// Weight of ln(factor) in the factor of cos and sin.
        mscale: Decimal,
        /// The same in its divisor.
        mscale_all: Decimal,
    },
}

impl RopeScaling {
    /// The frequency of each pair of channels, in radians for each token.
    pub fn rates(&self, theta: f64, dims: i64) -> Vec<f64> {
        let width = dims as f64;
        let base = match self {
            RopeScaling::Ntk { factor, original, length } => {
                let (factor, original) = (factor.to_f64(), *original as f64);
                let stretched = factor * (*length as f64).max(original) / original - (factor - 1.0);
                theta * libm::pow(stretched, width / (width - 2.0))
            }
            RopeScaling::Unscaled
            | RopeScaling::Interpolated { .. }
            | RopeScaling::Llama3 { .. }
            | RopeScaling::Yarn { .. } => theta,
        };
        let rate = |pair: i64| libm::pow(base, -2.0 * pair as f64 / width);
        (0..dims / 2).map(|pair| rate(pair) * self.kept(theta, width, pair, rate(pair))).collect()
    }

    /// The part of a frequency that is left.
    fn kept(&self, theta: f64, width: f64, pair: i64, rate: f64) -> f64 {
        // From 1 / factor, where nothing is kept, to 1.
        let between = |factor: f64, kept: f64| kept + (1.0 - kept) / factor;
        match self {
            RopeScaling::Unscaled | RopeScaling::Ntk { .. } => 1.0,
            RopeScaling::Interpolated { factor } => 1.0 / factor.to_f64(),
            RopeScaling::Llama3 { factor, original, low, high } => {
                let turns = *original as f64 * rate / (2.0 * PI);
                let (low, high) = (low.to_f64(), high.to_f64());
                between(factor.to_f64(), ((turns - low) / (high - low)).clamp(0.0, 1.0))
            }
            RopeScaling::Yarn { factor, original, truncate, mscale: _, mscale_all: _ } => {
                let channel = |turns: f64| {
                    width * libm::log(*original as f64 / (2.0 * PI * turns))
                        / (2.0 * libm::log(theta))
                };
                let (mut low, mut high) = (channel(32.0), channel(1.0));
                if *truncate {
                    (low, high) = (libm::floor(low), libm::ceil(high));
                }
                (low, high) = (low.max(0.0), high.min(width - 1.0));
                if low == high {
                    high += 0.001;
                }
                let ramp = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
                between(factor.to_f64(), 1.0 - ramp)
            }
        }
    }

    /// The factor of cos and sin.
    pub fn magnitude(&self) -> f64 {
        let RopeScaling::Yarn { factor, mscale, mscale_all, .. } = self else { return 1.0 };
        let weighed = |weight: &Decimal| 0.1 * weight.to_f64() * libm::log(factor.to_f64()) + 1.0;
        weighed(mscale) / weighed(mscale_all)
    }
}

impl fmt::Display for RopeScaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RopeScaling::Unscaled => write!(f, "none"),
            RopeScaling::Interpolated { factor } => write!(f, "interpolated {factor}"),
            RopeScaling::Ntk { factor, original, length } => {
                write!(f, "ntk {factor} {original} {length}")
            }
            RopeScaling::Llama3 { factor, original, low, high } => {
                write!(f, "llama3 {factor} {original} {low} {high}")
            }
            RopeScaling::Yarn { factor, original, truncate, mscale, mscale_all } => {
                write!(f, "yarn {factor} {original} {truncate} {mscale} {mscale_all}")
            }
        }
    }
}

kernel! {
    /// In: x [b, t, h, d], position [] i64 of the first token. Out: y [b, t, h, d]: the first `dims`
    /// channels of each head rotated by the angle (position + t) · theta^(−2i/dims) of pair i, or by the frequency of
    /// `scaling` and times its factor, in f32; the rest copied. `inverse` rotates by the negative angle, which is the
    /// gradient rule.
    Rope {
        /// Base of the frequencies.
        theta: Decimal,
        /// Rotated channels of each head.
        dims: i64,
        /// Which channels make a pair.
        layout: RopeLayout,
        /// Whether to rotate backwards.
        inverse: bool,
        /// Changes of the frequencies.
        scaling: RopeScaling = RopeScaling::Unscaled,
    }
    facts: |_| Facts::new("rope", Class::Ours).cheap().host(1),
    results: |k, x| vec![x.like(if k.inverse { "dx" } else { "y" }, 0)],
    // Four products and two sums for a pair.
    flops: |k, s| 3 * s.input(0).tokens() * s.input(0).at(2) * i128::from(k.dims),
    value: |k, x, _| vec![rope(k, x[0], x[1].data[0])],
}

#[cfg(test)]
fn rope(k: &Rope, x: &Tensor, position: f64) -> Tensor {
    let (rates, size) = (k.scaling.rates(k.theta.to_f64(), k.dims), k.scaling.magnitude());
    let sign = if k.inverse { -1.0 } else { 1.0 };
    let (time, heads, width) = (x.dims[1], x.dims[2], x.width());
    let mut y = x.clone();
    for (n, row) in y.data.chunks_mut(width).enumerate() {
        let t = (n / heads % time) as f64;
        for (i, rate) in rates.iter().enumerate() {
            let (sin, cos) = libm::sincos(sign * (position + t) * rate);
            let (sin, cos) = (size * sin, size * cos);
            let (a, b) = match k.layout {
                RopeLayout::Interleaved => (2 * i, 2 * i + 1),
                RopeLayout::Half => (i, i + k.dims as usize / 2),
            };
            (row[a], row[b]) = (row[a] * cos - row[b] * sin, row[a] * sin + row[b] * cos);
        }
    }
    y
}
