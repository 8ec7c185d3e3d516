//! An RMS norm with a silu gate, before it (Mamba2; Dao and Gu 2024) or after it (gated linear
//! attention, Gated DeltaNet; Yang et al. 2023), and its backward: one kernel that stores one number per row instead of a
//! tensor.

use super::{Edits, Uses};
use crate::kernel::{Gate, GatedRmsNorm, GatedRmsNormGrad, Kernel, RmsNorm};
use crate::plan::{Plan, ValId};

pub(super) fn rule(plan: &Plan, uses: &Uses, at: usize, edits: &mut Edits) -> Option<()> {
    let step = plan.steps.get(at)?;
    match (&step.kernel, &step.inputs[..], &step.outputs[..]) {
        (Kernel::SwiGlu(_), [gate, n], [y]) => {
            let (before, norm) = uses.maker(plan, *n)?;
            let (Kernel::RmsNorm(RmsNorm { eps }), [x, weight], [_, rstd]) =
                (&norm.kernel, &norm.inputs[..], &norm.outputs[..])
            else {
                return None;
            };
            let backward = match *uses.readers(*n)? {
                [_] if uses.readers(*rstd)?.is_empty() => None,
                [_, first] => {
                    // dgate, dn = swiglu_grad (dy, gate, n); dx, dweight = rms_norm_grad (dn, …).
                    let (dy, dgate, dn) = swiglu_grad(plan, first, (*gate, *n))?;
                    let last = uses.reader(dn)?;
                    let (back, dx, dweight) = norm_grad(plan, last, (*x, *weight, *rstd))?;
                    if back != dn || uses.reader(*rstd)? != last {
                        return None;
                    }
                    Some((first, last, dy, [dx, dgate, dweight]))
                }
                _ => return None,
            };
            let operands = [*x, *gate, *weight];
            edit(edits, (before, at), operands, (*eps, Gate::After), [*y, *rstd], backward)
        }
        (Kernel::RmsNorm(RmsNorm { eps }), [u, weight], [y, rstd]) => {
            let (before, product) = uses.maker(plan, *u)?;
            let (Kernel::SwiGlu(_), [gate, x]) = (&product.kernel, &product.inputs[..]) else {
                return None;
            };
            let backward = match *uses.readers(*u)? {
                [_] if uses.readers(*rstd)?.is_empty() => None,
                [_, first] => {
                    // du, dweight = rms_norm_grad (dy, u, …); dgate, dx = swiglu_grad (du, gate, x).
                    let (dy, du, dweight) = norm_grad(plan, first, (*u, *weight, *rstd))?;
                    let last = uses.reader(du)?;
                    let (back, dgate, dx) = swiglu_grad(plan, last, (*gate, *x))?;
                    if back != du || uses.reader(*rstd)? != first {
                        return None;
                    }
                    Some((first, last, dy, [dx, dgate, dweight]))
                }
                _ => return None,
            };
            let operands = [*x, *gate, *weight];
            edit(edits, (before, at), operands, (*eps, Gate::Before), [*y, *rstd], backward)
        }
        _ => None,
    }
}

/// The first and last step of the backward, dy, and the results.
type Backward = (usize, usize, ValId, [ValId; 3]);

fn edit(
    edits: &mut Edits,
    (before, at): (usize, usize),
    [x, gate, weight]: [ValId; 3],
    (eps, order): (dsl::Decimal, Gate),
    [y, rstd]: [ValId; 2],
    backward: Option<Backward>,
) -> Option<()> {
    let used = backward.map(|(first, last, ..)| [first, last]);
    if [before, at].into_iter().chain(used.into_iter().flatten()).any(|step| edits.touches(step)) {
        return None;
    }
    let kernel = GatedRmsNorm { eps, gate: order };
    edits.put(at, kernel, vec![x, gate, weight], vec![y, rstd]);
    edits.remove.insert(before);
    if let Some((first, last, dy, gradients)) = backward {
        let kernel = GatedRmsNormGrad { gate: order };
        let inputs = vec![dy, x, gate, weight, rstd];
        edits.put(first, kernel, inputs, gradients.to_vec());
        edits.remove.insert(last);
    }
    Some(())
}

/// dy, dgate and dup, if step `at` is the gradient of this swiglu.
fn swiglu_grad(
    plan: &Plan,
    at: usize,
    (gate, up): (ValId, ValId),
) -> Option<(ValId, ValId, ValId)> {
    let step = plan.steps.get(at)?;
    match (&step.kernel, &step.inputs[..], &step.outputs[..]) {
        (Kernel::SwiGluGrad(_), [dy, g, u], [dgate, dup]) if (*g, *u) == (gate, up) => {
            Some((*dy, *dgate, *dup))
        }
        _ => None,
    }
}

/// dy, dx and dweight, if step `at` is the gradient of this norm.
fn norm_grad(
    plan: &Plan,
    at: usize,
    (x, weight, rstd): (ValId, ValId, ValId),
) -> Option<(ValId, ValId, ValId)> {
    let step = plan.steps.get(at)?;
    match (&step.kernel, &step.inputs[..], &step.outputs[..]) {
        (Kernel::RmsNormGrad(_), [dy, a, b, c], [dx, dweight])
            if (*a, *b, *c) == (x, weight, rstd) =>
        {
            Some((*dy, *dx, *dweight))
        }
        _ => None,
    }
}
