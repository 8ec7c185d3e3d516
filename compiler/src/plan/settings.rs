//! The settings of kernels, in words.
//!
//! In: nothing. Out: the types of the fields of [`super::Kernel`]. Must stay true: each is a closed list or plain numbers,
//! so that two equal kernels compute the same.

use dsl::Decimal;

use crate::number::Root;

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

/// The position of a norm's silu gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// Multiplies the input of the norm (Mamba2).
    Before,
    /// Multiplies its output (gated linear attention, Gated DeltaNet).
    After,
}

/// The channels of a head that a rotary embedding rotates together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RopeLayout {
    /// Pair i is channels 2i and 2i + 1.
    Interleaved,
    /// Pair i is channels i and i + dims/2.
    Half,
}

/// The activation of a convolution, before the residual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activation {
    /// No function.
    Identity,
    /// x · sigmoid(x).
    Silu,
}

/// What [`super::Kernel::MixHeads`] computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixed {
    /// The sums.
    Heads,
    /// The gradient of the heads.
    Input,
    /// The gradient of the weights, for each token.
    Weights,
}
