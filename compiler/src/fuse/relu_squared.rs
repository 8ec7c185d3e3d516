//! `h ⊙ h` with h = relu(x), and its four backward steps together (So et al. 2021).

use super::{Edits, Uses};
use crate::kernel::{self, Kernel, Pointwise, PointwiseGrad};
use crate::op::Function;
use crate::plan::{Plan, ValId};

/// If only this square reads h: `relu_squared`; if its gradient does, too: `relu_squared` and `relu_squared_grad`.
pub(super) fn rule(plan: &Plan, uses: &Uses, at: usize, edits: &mut Edits) -> Option<()> {
    let step = plan.steps.get(at)?;
    let (h, y) = match (&step.kernel, &step.inputs[..], &step.outputs[..]) {
        (Kernel::Mul(_), [a, b], [y]) if a == b => (*a, *y),
        _ => return None,
    };
    let (before, maker) = uses.maker(plan, h)?;
    let relu = Function::Relu.definition();
    let x = match (&maker.kernel, maker.inputs.as_slice()) {
        (Kernel::Pointwise(Pointwise { function }), [x]) if *function == relu => *x,
        _ => return None,
    };
    if edits.touches(before) || edits.touches(at) {
        return None;
    }
    // The square reads h twice.
    match *uses.readers(h)? {
        [a, b] if [a, b] == [at; 2] => {}
        [a, b, first, second] if [a, b] == [at; 2] => {
            // dh = dy ⊙ h + dy ⊙ h, and dx = relu′(x) ⊙ dh.
            let ([dy, one], [same, other]) = (product(plan, first, h)?, product(plan, second, h)?);
            let sum = uses.reader(other)?;
            let added = plan.steps.get(sum)?;
            let [dh] = added.outputs[..] else { return None };
            let last = uses.reader(dh)?;
            let slope = plan.steps.get(last)?;
            let is_sum = matches!(added.kernel, Kernel::Add(_)) && added.inputs == [one, other];
            let is_slope =
                slope.kernel == PointwiseGrad { function: relu }.into() && slope.inputs == [dh, x];
            let found = dy == same && is_sum && uses.reader(one) == Some(sum) && is_slope;
            if !found || [first, second, sum, last].iter().any(|step| edits.touches(*step)) {
                return None;
            }
            edits.put(last, kernel::ReluSquaredGrad, vec![dy, x], slope.outputs.clone());
            edits.remove.extend([first, second, sum]);
        }
        _ => return None,
    }
    edits.put(at, kernel::ReluSquared, vec![x], vec![y]);
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
