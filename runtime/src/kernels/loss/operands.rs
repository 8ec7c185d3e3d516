//! What a loss takes and gives, whoever computes it.

use tch::Tensor;

/// Factors of the squared terms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    pub nll_square: f64,
    pub z_loss: f64,
}

/// The results of a forward pass.
#[derive(Debug)]
pub struct Losses {
    /// [b, t]: −ln p(target), 0 where ignored.
    pub nll: Tensor,
    /// [b, t]: ln Σ exp(logits).
    pub lse: Tensor,
    /// [] f64
    pub loss: Tensor,
    /// [] i64
    pub counted: Tensor,
    /// [b, t] i64, if the kernel finds it too: the lowest index of the maximum.
    pub likeliest: Option<Tensor>,
}

/// The values of the forward pass that the gradient reads.
#[derive(Debug, Clone, Copy)]
pub struct Kept<'a> {
    pub targets: &'a Tensor,
    pub nll: &'a Tensor,
    pub lse: &'a Tensor,
}
