//! What an update takes, whoever computes it.

use tch::Tensor;

/// A parameter with its gradient, moments and the clipping coefficient [] f64.
#[derive(Debug, Clone, Copy)]
pub struct Update<'a> {
    pub p: &'a Tensor,
    pub g: &'a Tensor,
    pub m: &'a Tensor,
    pub v: &'a Tensor,
    pub coefficient: &'a Tensor,
    /// Of p's shape, in bf16: where the new p is written too, rounded.
    pub copy: Option<&'a Tensor>,
}

/// The numbers of an update, each rounded once.
#[derive(Clone, Copy)]
pub(crate) struct Factors {
    pub(crate) coefficient: f32,
    pub(crate) keep: f32,
    pub(crate) beta1: f32,
    pub(crate) rest1: f32,
    pub(crate) beta2: f32,
    pub(crate) rest2: f32,
    pub(crate) root: f32,
    pub(crate) eps: f32,
    pub(crate) rate: f32,
}
