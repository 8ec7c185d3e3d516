//! Options of plans: dtype, fusion, loss, optimizer, recomputation, streaming.

use dsl::Decimal;

use crate::kernel::MuonScale;
use crate::number::Root;
use crate::value::DType;

/// The compute dtype outside f32 islands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Precision {
    /// Single precision everywhere.
    #[default]
    F32,
    /// Activations and parameters in bfloat16; docs/numerics.md lists what stays f32.
    Bf16,
}

impl Precision {
    /// The dtype of activations.
    pub fn compute(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::Bf16,
        }
    }
}

/// What a plan runs on, as far as the plan depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Processor {
    /// A CPU.
    #[default]
    Cpu,
    /// An NVIDIA GPU.
    Gpu,
}

/// Options of every plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Compute dtype.
    pub precision: Precision,
    /// Use fused kernels.
    pub fuse: bool,
    /// The size of chunks depends on it.
    pub processor: Processor,
}

impl Default for Options {
    fn default() -> Options {
        Options { precision: Precision::F32, fuse: true, processor: Processor::Cpu }
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
    /// What the mean of the losses of `ahead_loss` is multiplied by; `None` computes none.
    pub ahead: Option<Root>,
}

/// The auxiliary losses that are means over the tokens of a micro-batch.
pub const MEANS: [&str; 2] = ["balance", "router_z"];

/// The names of auxiliary losses: of `aux_loss`, then of `ahead_loss`.
pub const TERMS: [&str; 9] = [
    MEANS[0], MEANS[1], "ahead_2", "ahead_3", "ahead_4", "ahead_5", "ahead_6", "ahead_7", "ahead_8",
];

/// The name of the loss of the token so many places on.
pub fn ahead_term(ahead: i64) -> Option<&'static str> {
    let at = usize::try_from(ahead.checked_sub(2)?).ok()?;
    TERMS.get(MEANS.len()..)?.get(at).copied()
}

impl Loss {
    /// Plain cross-entropy, without the two squared terms.
    pub const CROSS_ENTROPY: Loss = Loss {
        nll_square: Decimal::ZERO,
        z_loss: Decimal::ZERO,
        balance: None,
        router_z: None,
        ahead: None,
    };

    /// The weight of an auxiliary loss, in the order of [`TERMS`].
    pub fn terms(&self) -> [Option<Root>; TERMS.len()] {
        let Loss { balance, router_z, ahead, .. } = *self;
        [balance, router_z, ahead, ahead, ahead, ahead, ahead, ahead, ahead]
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

/// How one parameter is updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamUpdate {
    /// The rule of its update.
    pub rule: UpdateRule,
    /// Factor of the learning rate.
    pub lr_factor: Decimal,
    /// Factor of the weight decay.
    pub decay_factor: Decimal,
}

/// The rule of a parameter's update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateRule {
    /// AdamW, with two moments.
    AdamW,
    /// Muon, with one moment. The parameter is a matrix, or several of one shape.
    Muon(Muon),
    /// The parameter keeps its initial value. It has no moments, and its gradient is 0.
    Frozen,
}

/// Muon's constants (docs/numerics.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Muon {
    /// Decay of the running mean of gradients.
    pub momentum: Decimal,
    /// Whether the update looks one step ahead.
    pub nesterov: bool,
    /// How the size of an update follows from the matrix's shape.
    pub scale: MuonScale,
}

impl ParamUpdate {
    /// AdamW at the base learning rate and weight decay.
    pub const PLAIN: ParamUpdate = ParamUpdate {
        rule: UpdateRule::AdamW,
        lr_factor: Decimal::ONE,
        decay_factor: Decimal::ONE,
    };

    /// The update of a parameter. An empty list means that all have the plain one.
    pub fn for_param(updates: &[ParamUpdate], param: usize) -> ParamUpdate {
        updates.get(param).copied().unwrap_or(ParamUpdate::PLAIN)
    }

    /// The number of tensors of the parameter's shape that the optimizer keeps for it.
    pub fn moments(&self) -> usize {
        match self.rule {
            UpdateRule::AdamW => 2,
            UpdateRule::Muon(_) => 1,
            UpdateRule::Frozen => 0,
        }
    }
}

/// Options of a training plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainOptions {
    /// Options that other plans have too.
    pub common: Options,
    /// The loss per counted target.
    pub loss: Loss,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// By parameter, how it is updated; empty if all have the plain update.
    pub updates: Vec<ParamUpdate>,
    /// What the backward pass recomputes.
    pub recompute: Recompute,
    /// Whether dropout drops anything; else it is the identity, as in evaluation.
    pub dropout: bool,
}

/// Whether a streaming plan reads and returns states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stream {
    /// Start from the given states; otherwise from zero.
    pub state_in: bool,
    /// Return the states after the last token.
    pub state_out: bool,
}
