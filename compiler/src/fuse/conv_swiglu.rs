//! A Canon layer over gate and up with the gated unit that follows it, and the gradient of both together, which computes
//! again the two values that are no longer stored. A convolution that only the gradient reads, as in a recomputed layer,
//! is removed completely.

use super::{Edits, Uses};
use crate::kernel::{Activation, CausalConv, CausalConvGrad, ConvSwiGlu, ConvSwiGluGrad, Kernel};
use crate::plan::Plan;

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
        let by = plan.steps.get(*reader)?;
        match (&by.kernel, &by.inputs[..], &by.outputs[..]) {
            (Kernel::SwiGlu(_), [a, b], _) if (a, b) == (g, u) && unit.is_none() => {
                unit = Some((*reader, by));
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
            let last = uses.reader(dg)?;
            let by = plan.steps.get(last)?;
            let Kernel::CausalConvGrad(CausalConvGrad {
                parts: 2,
                activation: Activation::Identity,
                ..
            }) = by.kernel
            else {
                return None;
            };
            let [a, b, rest @ ..] = &by.inputs[..] else { return None };
            if (*a, *b) != (dg, du) || uses.reader(du)? != last || rest.get(..2)? != [*gate, *up] {
                return None;
            }
            let inputs = [&[dy], rest].concat();
            Some((between, last, inputs, by.outputs.clone()))
        }
    };
    if unit.is_none() && backward.is_none() {
        return None;
    }
    if let Some((after, by)) = unit {
        let fused = ConvSwiGlu { kernel, residual, bias, state };
        edits.put(after, fused, step.inputs.clone(), by.outputs.clone());
    }
    edits.remove.insert(at);
    if let Some((between, last, inputs, outputs)) = backward {
        let fused = ConvSwiGluGrad { kernel, residual, bias };
        edits.put(last, fused, inputs, outputs);
        edits.remove.insert(between);
    }
    Some(())
}
