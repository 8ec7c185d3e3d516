//! PASS Plan → Plan: several steps that one kernel does as one.
//!
//! In: steps in execution order, before liveness. Out: fewer steps. Must stay true: a value is fused
//! away only if nothing else reads it; the result is the same function, rounded differently, so
//! whether this runs is a platform field; each fusion is visible by its kernel's name.
//!
//! There is one rule so far: `silu(gate) ⊙ up` forward, and its three backward steps together.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::{Function, Kernel, Plan, Step, ValId};

pub(crate) fn fuse(plan: &mut Plan) {
    let uses = Uses::of(plan);
    let mut edits = Edits::default();
    for (at, step) in plan.steps.iter().enumerate() {
        if let (Kernel::Mul, [a, b], [y]) = (&step.kernel, &step.inputs[..], &step.outputs[..]) {
            let _ = swiglu(plan, &uses, at, (*a, *b), *y, &mut edits)
                .or_else(|| swiglu(plan, &uses, at, (*b, *a), *y, &mut edits));
        }
    }
    let steps = std::mem::take(&mut plan.steps);
    for (at, step) in steps.into_iter().enumerate() {
        match edits.replace.remove(&at) {
            Some((kernel, inputs, outputs)) => {
                plan.steps.push(Step { kernel, inputs, outputs, ..step });
            }
            None if edits.remove.contains(&at) => {}
            None => plan.steps.push(step),
        }
    }
}

/// What each value is made by and read by, as indices of steps.
struct Uses {
    makers: Vec<Option<usize>>,
    readers: Vec<Vec<usize>>,
    /// Given to the caller: may not disappear.
    kept: Vec<bool>,
}

#[derive(Default)]
struct Edits {
    replace: BTreeMap<usize, (Kernel, Vec<ValId>, Vec<ValId>)>,
    remove: BTreeSet<usize>,
}

impl Edits {
    fn touches(&self, at: usize) -> bool {
        self.replace.contains_key(&at) || self.remove.contains(&at)
    }
}

impl Uses {
    fn of(plan: &Plan) -> Uses {
        let count = plan.values.len();
        let mut uses = Uses {
            makers: vec![None; count],
            readers: vec![Vec::new(); count],
            kept: vec![false; count],
        };
        for (at, step) in plan.steps.iter().enumerate() {
            for id in &step.outputs {
                uses.makers[id.0 as usize] = Some(at);
            }
            for id in &step.inputs {
                uses.readers[id.0 as usize].push(at);
            }
        }
        for (_, id) in &plan.outputs {
            uses.kept[id.0 as usize] = true;
        }
        uses
    }

    /// All steps that read a value, if only steps do.
    fn readers(&self, id: ValId) -> Option<&[usize]> {
        (!self.kept[id.0 as usize]).then_some(self.readers[id.0 as usize].as_slice())
    }
}

/// `y = s ⊙ up` at step `at`, where s = silu(gate): with nothing else reading s, `swiglu`; with only
/// the gradient of this very product reading it, `swiglu` and `swiglu_grad`.
fn swiglu(
    plan: &Plan,
    uses: &Uses,
    at: usize,
    (s, up): (ValId, ValId),
    y: ValId,
    edits: &mut Edits,
) -> Option<()> {
    let made = uses.makers[s.0 as usize]?;
    let maker = plan.steps.get(made)?;
    let silu = Function::Silu;
    let gate = match (&maker.kernel, maker.inputs.as_slice()) {
        (Kernel::Pointwise(f), [gate]) if *f == silu => *gate,
        _ => return None,
    };
    let dims = |id: ValId| plan.value(id).map(|v| &v.dims);
    if edits.touches(made) || edits.touches(at) || dims(gate) != dims(up) {
        return None;
    }
    match *uses.readers(s)? {
        [only] if only == at => {}
        [first, second] if first == at => {
            // dup = dy ⊙ s, and dgate = silu′(gate) ⊙ (dy ⊙ up), of which only dgate needs dy ⊙ up.
            let [dy, dup] = product(plan, second, s)?;
            let find = |reader: &usize| {
                let [other, ds] = product(plan, *reader, up)?;
                let [last] = *uses.readers(ds)? else { return None };
                let step = plan.steps.get(last)?;
                let right = step.kernel == Kernel::PointwiseGrad(silu) && step.inputs == [ds, gate];
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
            edits.replace.insert(first, (Kernel::SwiGluGrad, vec![dy, gate, up], vec![dgate, dup]));
            edits.remove.extend([second.max(inner), last]);
        }
        _ => return None,
    }
    edits.replace.insert(at, (Kernel::SwiGlu, vec![gate, up], vec![y]));
    edits.remove.insert(made);
    Some(())
}

/// For a step `o = x ⊙ factor`, x and o.
fn product(plan: &Plan, at: usize, factor: ValId) -> Option<[ValId; 2]> {
    let step = plan.steps.get(at)?;
    match (&step.kernel, step.inputs.as_slice(), step.outputs.as_slice()) {
        (Kernel::Mul, [x, f], [o]) if *f == factor => Some([*x, *o]),
        _ => None,
    }
}
