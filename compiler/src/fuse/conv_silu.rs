//! Silu of a short convolution, and the gradient of both together (Gu and Dao 2023, fig. 3): the same kernel with silu as
//! its activation, whose backward recomputes the value that is no longer stored. A convolution that only silu's gradient
//! reads, as in a recomputed layer, is removed completely.

use super::{Edits, Uses};
use crate::kernel::{Activation, CausalConv, CausalConvGrad, Kernel, Pointwise, PointwiseGrad};
use crate::op::Function;
use crate::plan::{Plan, Step, ValId};

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
    let Readers { silu, slope } = readers(plan, uses, conv)?;
    // Check all conditions before editing anything.
    let backward = match slope {
        None => None,
        Some((between, ..)) if edits.touches(between) => return None,
        Some((between, dy, dconv)) => {
            let (last, convolution) = convolution_grad(plan, uses, dconv)?;
            if edits.touches(last) {
                return None;
            }
            let inputs = [&[dy], &convolution.inputs[1..]].concat();
            Some((between, last, inputs, convolution.outputs.clone()))
        }
    };
    let activation = Activation::Silu;
    match silu {
        Some((after, last)) => {
            let fused = CausalConv { kernel, residual: false, activation, parts: 1, bias, state };
            edits.put(at, fused, step.inputs.clone(), last.outputs.clone());
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

/// The steps that read the convolution's result.
struct Readers<'p> {
    silu: Option<(usize, &'p Step)>,
    /// The step of silu's gradient, with its operand dy and its result.
    slope: Option<(usize, ValId, ValId)>,
}

/// `None` if anything else reads it.
fn readers<'p>(plan: &'p Plan, uses: &Uses, conv: ValId) -> Option<Readers<'p>> {
    let is_silu = |function| function == Function::Silu.definition();
    let mut readers = Readers { silu: None, slope: None };
    for reader in uses.readers(conv)? {
        let step = plan.steps.get(*reader)?;
        match (&step.kernel, &step.inputs[..]) {
            (Kernel::Pointwise(Pointwise { function }), _)
                if is_silu(*function) && readers.silu.is_none() =>
            {
                readers.silu = Some((*reader, step));
            }
            (Kernel::PointwiseGrad(PointwiseGrad { function }), [dy, x])
                if is_silu(*function) && *x == conv && *dy != conv && readers.slope.is_none() =>
            {
                readers.slope = Some((*reader, *dy, *step.outputs.first()?));
            }
            _ => return None,
        }
    }
    Some(readers)
}

/// The step that alone reads the gradient of the convolution's result, as its first operand.
fn convolution_grad<'p>(plan: &'p Plan, uses: &Uses, dconv: ValId) -> Option<(usize, &'p Step)> {
    let last = uses.reader(dconv)?;
    let step = plan.steps.get(last)?;
    let Kernel::CausalConvGrad(CausalConvGrad {
        residual: false,
        activation: Activation::Identity,
        parts: 1,
        ..
    }) = step.kernel
    else {
        return None;
    };
    (step.inputs.first() == Some(&dconv)).then_some((last, step))
}
