//! PASS: chooses the dtype of each value.
//!
//! In: the recipe's policy. `lower` and `differentiate` call this module at the few places where the policy matters.
//! Out: casts, and inputs for rounded parameters. Must stay true: masters, moments, gradients of parameters, states of
//! scans and losses are f32 under every policy; so are, inside the kernels, norm statistics, rotary angles, softmax and
//! scans; `f32(x)` and the logits that a caller reads are islands. A parameter that only `f32(…)` reads is not rounded.

use crate::lower::Lower;
use crate::plan::{DType, Kernel, Precision, ValId};

impl Precision {
    /// The dtype of activations.
    pub fn compute(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::Bf16,
        }
    }
}

/// A value inside an f32 island. A rounded parameter's is its master.
pub(crate) fn island(lower: &mut Lower, x: ValId) -> ValId {
    match lower.rounded(x) {
        Some(param) => lower.master(param),
        None => cast(lower, x, DType::F32),
    }
}

/// The value in this dtype; itself if it has it already.
pub(crate) fn cast(lower: &mut Lower, x: ValId, to: DType) -> ValId {
    if lower.value(x).dtype == to { x } else { lower.one(Kernel::Cast { to }, &[x]) }
}

/// The gradient of a value, in the value's dtype. Gradients of parameters and their functions are f32.
pub(crate) fn gradient(lower: &mut Lower, value: ValId, gradient: ValId) -> ValId {
    let to = if lower.is_sequence(value) { lower.value(value).dtype } else { DType::F32 };
    cast(lower, gradient, to)
}
