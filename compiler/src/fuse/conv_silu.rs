//! Silu of a short convolution, and the gradient of both together (Gu and Dao 2023, fig. 3): the same kernel with silu as
//! its activation, whose backward recomputes the value that is no longer stored. A convolution that only silu's gradient
//! reads, as in a recomputed layer, is removed completely.

use super::{Edits, Uses};
use crate::kernel::{Activation, CausalConv, CausalConvGrad, Kernel, Pointwise, PointwiseGrad};
use crate::op::Function;
use crate::plan::Plan;

pub(super) fn rule(plan: &Plan, uses: &Uses, at: usize, edits: &mut Edits) -> Option<()> {
    let step = plan.steps.get(at)?;
    let Kernel::CausalConv(CausalConv {
        kernel,
        residual: false,
        activation: Activation::Identity,
        parts: 1,
        bias,
        state,
    }) = step.kernel
    else {
        return None;
    };
    let [conv] = step.outputs[..] else { return None };
    let is_silu = |function| function == Function::Silu.definition();
    let (mut silu, mut slope) = (None, None);
    for reader in uses.readers(conv)? {
        let by = plan.steps.get(*reader)?;
        match (&by.kernel, &by.inputs[..]) {
            (Kernel::Pointwise(Pointwise { function }), _)
                if is_silu(*function) && silu.is_none() =>
            {
                silu = Some((*reader, by));
            }
            (Kernel::PointwiseGrad(PointwiseGrad { function }), [dy, x])
                if is_silu(*function) && *x == conv && *dy != conv && slope.is_none() =>
            {
                slope = Some((*reader, *dy, by.outputs[..].first()?));
            }
            _ => return None,
        }
    }
    // Check all conditions before editing anything.
    let backward = match slope {
        None => None,
        Some((between, dy, dconv)) => {
            let last = uses.reader(*dconv)?;
            let by = plan.steps.get(last)?;
            let Kernel::CausalConvGrad(CausalConvGrad {
                residual: false,
                activation: Activation::Identity,
                parts: 1,
                ..
            }) = by.kernel
            else {
                return None;
            };
            let (first, rest) = by.inputs.split_first()?;
            if first != dconv || edits.touches(between) || edits.touches(last) {
                return None;
            }
            let inputs = [&[dy], rest].concat();
            Some((between, last, inputs, by.outputs.clone()))
        }
    };
    let activation = Activation::Silu;
    match silu {
        Some((after, by)) => {
            let fused = CausalConv { kernel, residual: false, activation, parts: 1, bias, state };
            edits.put(at, fused, step.inputs.clone(), by.outputs.clone());
            edits.remove.insert(after);
        }
        // Only the gradient needed its result, and now recomputes it.
        None if backward.is_some() => {
            edits.remove.insert(at);
        }
        None => return None,
    }
    if let Some((between, last, inputs, outputs)) = backward {
        let fused = CausalConvGrad { kernel, residual: false, activation, parts: 1, bias };
        edits.put(last, fused, inputs, outputs);
        edits.remove.insert(between);
    }
    Some(())
}
