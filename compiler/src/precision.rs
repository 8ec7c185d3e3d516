//! PASS: chooses the dtype of each value.
//!
//! In: the recipe's policy. `lower` calls this module at the few places where the policy matters. Out:
//! casts, once a policy narrower than f32 exists. Must stay true: parameters, moments, gradients, states
//! and losses are f32 under every policy; so are, inside the kernels, norm statistics, rotary angles,
//! softmax and scans; `f32(x)` and the logits that the loss reads are islands.
//!
//! To add bf16: a `DType::Bf16`, a `Kernel::Cast { to }`, and a second arm in each `match` below.

use crate::lower::Lower;
use crate::plan::{Precision, ValId};

/// The value of a parameter in the forward pass, converted from the master copy.
pub(crate) fn parameter(lower: &mut Lower, master: ValId) -> ValId {
    match lower.precision {
        Precision::F32 => master,
    }
}

/// A value inside an f32 island.
pub(crate) fn island(lower: &mut Lower, x: ValId) -> ValId {
    match lower.precision {
        Precision::F32 => x,
    }
}

/// The gradient that leaves an island, in the dtype of the value that entered it.
pub(crate) fn leave_island(lower: &mut Lower, gradient: ValId) -> ValId {
    match lower.precision {
        Precision::F32 => gradient,
    }
}
