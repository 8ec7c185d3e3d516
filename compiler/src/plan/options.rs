//! Options of plans: dtype, fusion, loss, optimizer, recomputation, streaming.

use dsl::Decimal;

use crate::number::Root;

/// The compute dtype outside f32 islands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Precision {
    /// Single precision everywhere.
    #[default]
    F32,
    /// Activations and parameters in bfloat16; docs/numerics.md lists what stays f32.
    Bf16,
}

/// Options of every plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Compute dtype.
    pub precision: Precision,
    /// Use fused kernels.
    pub fuse: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { precision: Precision::F32, fuse: true }
    }
}

/// The loss per counted target: nll + nll_square · nll² + z_loss · lse² (docs/numerics.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The release's `z_loss` is this term, at 1e-4.
    pub nll_square: Decimal,
    /// Factor of lse², which keeps the logits' scale small.
    pub z_loss: Decimal,
    /// What each micro-batch's auxiliary losses of the term `balance` are multiplied by; `None` computes none.
    pub balance: Option<Root>,
    /// The same for the term `router_z`.
    pub router_z: Option<Root>,
}

/// The names of auxiliary losses.
pub const TERMS: [&str; 2] = ["balance", "router_z"];

impl Loss {
    /// Plain cross-entropy, without the two squared terms.
    pub const CROSS_ENTROPY: Loss =
        Loss { nll_square: Decimal::ZERO, z_loss: Decimal::ZERO, balance: None, router_z: None };

    /// The weight of an auxiliary loss, in the order of [`TERMS`].
    pub fn terms(&self) -> [Option<Root>; 2] {
        [self.balance, self.router_z]
    }
}

/// What the backward pass recomputes instead of keeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Recompute {
    /// Every value that a gradient rule reads is kept.
    #[default]
    Nothing,
    /// Everything inside a layer. Only layer inputs are kept.
    Layers,
    /// The cheap steps between matrix products, attention and scans: norms, convolutions, gates, rotations, of which
    /// most inputs of attention, scans and MLP's last products are results.
    Selective,
}

/// AdamW and clipping (docs/numerics.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Optimizer {
    /// Decay of the running mean of gradients.
    pub beta1: Decimal,
    /// Decay of the running mean of squared gradients.
    pub beta2: Decimal,
    /// Added to the denominator of the update.
    pub eps: Decimal,
    /// Decay per step, relative to the learning rate.
    pub weight_decay: Decimal,
    /// The parameters that decay.
    pub decays: Decays,
    /// Maximum global gradient norm.
    pub clip: Option<Decimal>,
}

/// The parameters that weight decay applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decays {
    /// All of them, as in the release.
    All,
    /// The weights of `linear` and `embed`, but not norms, biases, convolutions or decay rates.
    Matrices,
}

/// Options of a training plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainOptions {
    /// Options that other plans have too.
    pub common: Options,
    /// The loss per counted target.
    pub loss: Loss,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// What the backward pass recomputes.
    pub recompute: Recompute,
}

/// Whether a streaming plan reads and returns states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stream {
    /// Start from the given states; otherwise from zero.
    pub state_in: bool,
    /// Return the states after the last token.
    pub state_out: bool,
}
