//! `silu(gate) ⊙ up`, and its three backward steps together (Shazeer 2020).

use super::{Edits, Uses};
use crate::kernel::{self, Kernel, Pointwise, PointwiseGrad};
use crate::op::Function;
use crate::plan::{Plan, ValId};

pub(super) fn rule(plan: &Plan, uses: &Uses, at: usize, edits: &mut Edits) -> Option<()> {
    let step = plan.steps.get(at)?;
    match (&step.kernel, &step.inputs[..], &step.outputs[..]) {
        (Kernel::Mul(_), [a, b], [y]) => product_with(plan, uses, at, (*a, *b), *y, edits)
            .or_else(|| product_with(plan, uses, at, (*b, *a), *y, edits)),
        _ => None,
    }
}

/// Fuses `y = s ⊙ up` at step `at`, where s = silu(gate). If nothing else reads s: `swiglu`; if only
/// the gradient of this product reads it: `swiglu` and `swiglu_grad`.
fn product_with(
    plan: &Plan,
    uses: &Uses,
    at: usize,
    (s, up): (ValId, ValId),
    y: ValId,
    edits: &mut Edits,
) -> Option<()> {
    let (before, maker) = uses.maker(plan, s)?;
    let silu = Function::Silu.definition();
    let gate = match (&maker.kernel, maker.inputs.as_slice()) {
        (Kernel::Pointwise(Pointwise { function }), [gate]) if *function == silu => *gate,
        _ => return None,
    };
    let dims = |id: ValId| plan.value(id).map(|v| &v.dims);
    if edits.touches(before) || edits.touches(at) || dims(gate) != dims(up) {
        return None;
    }
    match *uses.readers(s)? {
        [only] if only == at => {}
        [first, second] if first == at => {
            // dup = dy ⊙ s, and dgate = silu′(gate) ⊙ (dy ⊙ up). Only dgate needs dy ⊙ up.
            let [dy, dup] = product(plan, second, s)?;
            let find = |reader: &usize| {
                let [other, ds] = product(plan, *reader, up)?;
                let [last] = *uses.readers(ds)? else { return None };
                let step = plan.steps.get(last)?;
                let kernel = PointwiseGrad { function: silu };
                let right = step.kernel == kernel.into() && step.inputs == [ds, gate];
                (other == dy && right && *reader > at).then_some((
                    *reader,
                    last,
                    *step.outputs.first()?,
                ))
            };
            let (inner, last, dgate) = uses.readers[up.0 as usize].iter().find_map(find)?;
            if [second, inner, last].iter().any(|step| edits.touches(*step)) {
                return None;
            }
            let first = second.min(inner);
            edits.put(first, kernel::SwiGluGrad, vec![dy, gate, up], vec![dgate, dup]);
            edits.remove.extend([second.max(inner), last]);
        }
        _ => return None,
    }
    edits.put(at, kernel::SwiGlu, vec![gate, up], vec![y]);
    edits.remove.insert(before);
    Some(())
}

/// For a step `o = x ⊙ factor`, x and o.
fn product(plan: &Plan, at: usize, factor: ValId) -> Option<[ValId; 2]> {
    let step = plan.steps.get(at)?;
    match (&step.kernel, step.inputs.as_slice(), step.outputs.as_slice()) {
        (Kernel::Mul(_), [x, f], [o]) if *f == factor => Some([*x, *o]),
        _ => None,
    }
}
