//! What a convolution takes and gives, whoever computes it.

use compiler::plan::Activation;
use tch::Tensor;

/// What a Canon layer adds to the convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub residual: bool,
    /// Applied to the convolution's result, before the residual is added.
    pub activation: Activation,
}

/// The operands of a Canon layer.
#[derive(Debug, Clone, Copy)]
pub struct ConvOperands<'a> {
    /// [b, t, c_i] each. The row stride may exceed c_i (a `narrow` of a packed projection).
    pub inputs: &'a [&'a Tensor],
    /// [c, k] or [c, 1, k]; tap k-1 is for the present.
    pub weight: &'a Tensor,
    /// \[c\]; none means zeros.
    pub bias: Option<&'a Tensor>,
    /// [b, k-1, c]: the inputs just before; none means zeros.
    pub state: Option<&'a Tensor>,
}

/// The gradients of a Canon layer, each with the shape of its operand.
#[derive(Debug)]
pub struct Gradients {
    pub inputs: Vec<Tensor>,
    pub weight: Tensor,
    /// Present if there was a bias.
    pub bias: Option<Tensor>,
    /// Present if there was a state. The next state carries no gradient (training starts from zeros).
    pub state: Option<Tensor>,
}
