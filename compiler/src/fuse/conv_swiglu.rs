//! A Canon layer over gate and up with the gated unit that follows it, and the gradient of both together, which computes
//! again the two values that are no longer stored. A convolution that only the gradient reads, as in a recomputed layer,
//! is removed completely.

use super::{Edits, Uses};
use crate::kernel::{Activation, CausalConv, CausalConvGrad, ConvSwiGlu, ConvSwiGluGrad, Kernel};
use crate::plan::{Plan, Step, ValId};

pub(super) fn rule(plan: &Plan, uses: &Uses, at: usize, edits: &mut Edits) -> Option<()> {
    let step = plan.steps.get(at)?;
    let Kernel::CausalConv(CausalConv {
        kernel,
        residual,
        activation: Activation::Identity,
        parts: 2,
        bias,
        state,
    }) = step.kernel
    else {
        return None;
    };
    let ([gate, up, ..], [g, u]) = (&step.inputs[..], &step.outputs[..]) else { return None };
    let dims = |id| plan.value(id).map(|value| &value.dims);
    if dims(*gate) != dims(*up) || uses.readers(*g)? != uses.readers(*u)? {
        return None;
    }
    let (mut unit, mut slope) = (None, None);
    for reader in uses.readers(*g)? {
        let step = plan.steps.get(*reader)?;
        match (&step.kernel, &step.inputs[..], &step.outputs[..]) {
            (Kernel::SwiGlu(_), [a, b], _) if (a, b) == (g, u) && unit.is_none() => {
                unit = Some((*reader, step));
            }
            (Kernel::SwiGluGrad(_), [dy, a, b], [dg, du])
                if (a, b) == (g, u) && ![g, u].contains(&dy) && slope.is_none() =>
            {
                slope = Some((*reader, *dy, *dg, *du));
            }
            _ => return None,
        }
    }
    // Check all conditions before editing anything.
    let backward = match slope {
        None => None,
        Some((between, dy, dg, du)) => {
            let (last, convolution) = convolution_grad(plan, uses, [dg, du], [*gate, *up])?;
            let inputs = [&[dy], &convolution.inputs[2..]].concat();
            Some((between, last, inputs, convolution.outputs.clone()))
        }
    };
    if unit.is_none() && backward.is_none() {
        return None;
    }
    if let Some((after, unit)) = unit {
        let fused = ConvSwiGlu { kernel, residual, bias, state };
        edits.put(after, fused, step.inputs.clone(), unit.outputs.clone());
    }
    edits.remove.insert(at);
    if let Some((between, last, inputs, outputs)) = backward {
        let fused = ConvSwiGluGrad { kernel, residual, bias };
        edits.put(last, fused, inputs, outputs);
        edits.remove.insert(between);
    }
    Some(())
}

/// The step that alone reads the gradients of both results, and computes from gate and up.
fn convolution_grad<'p>(
    plan: &'p Plan,
    uses: &Uses,
    [dg, du]: [ValId; 2],
    gate_and_up: [ValId; 2],
) -> Option<(usize, &'p Step)> {
    let last = uses.reader(dg)?;
    let step = plan.steps.get(last)?;
    let Kernel::CausalConvGrad(CausalConvGrad {
        parts: 2, activation: Activation::Identity, ..
    }) = step.kernel
    else {
        return None;
    };
    let [a, b, rest @ ..] = &step.inputs[..] else { return None };
    let fits = (*a, *b) == (dg, du) && uses.reader(du)? == last && rest.get(..2)? == gate_and_up;
    fits.then_some((last, step))
}
