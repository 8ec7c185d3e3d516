//! Runs kernels that compute in f32 on bf16 operands: widens operands before, and rounds results after.
//!
//! Each result is rounded once, to the nearest bf16, ties to even. A kernel that takes bf16 itself also computes in
//! f32.

use compiler::kernel::Kernel;
use tch::{Kind, Tensor};

use super::Choice;
use super::dispatch::{self, Context};
use crate::kernels::KernelError;
use crate::kernels::arrange::cast;

pub(super) fn run(
    kernel: &Kernel,
    choice: Choice,
    operands: &[&Tensor],
    context: &Context<'_>,
    kinds: &[Kind],
) -> Result<Vec<Tensor>, KernelError> {
    let any = |kind| operands.iter().any(|operand| operand.kind() == kind);
    let widens = any(Kind::BFloat16) && widens_bf16(kernel, choice, any(Kind::Float));
    let mut results = match widens {
        false => dispatch::run(kernel, choice, operands, context)?,
        true => {
            let wide = |operand: &&Tensor| {
                let narrow = operand.kind() == Kind::BFloat16;
                if narrow { cast(operand, Kind::Float) } else { Ok(operand.shallow_clone()) }
            };
            let wide = operands.iter().map(wide).collect::<Result<Vec<_>, _>>()?;
            let operands: Vec<&Tensor> = wide.iter().collect();
            // Results may be written over a widened copy, but not over an operand that is f32 in the plan.
            dispatch::run(
                kernel,
                choice,
                &operands,
                &Context { consumes_first: false, ..*context },
            )?
        }
    };
    for (result, kind) in results.iter_mut().zip(kinds) {
        if result.kind() != *kind && is_float(*kind) {
            *result = cast(result, *kind)?;
        }
    }
    Ok(results)
}

/// Whether bf16 operands are converted to f32. Products of an f32 with a bf16 tensor are f32.
pub(super) fn widens_bf16(kernel: &Kernel, choice: Choice, with_f32: bool) -> bool {
    !choice.takes_bf16() && (with_f32 || !kernel.facts().reads_bf16)
}

fn is_float(kind: Kind) -> bool {
    matches!(kind, Kind::Float | Kind::BFloat16)
}
