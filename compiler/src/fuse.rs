//! Replaces several steps of a plan by one kernel.
//!
//! A value is fused away only if nothing else reads it. The result is the same function with different rounding, so a
//! platform field switches this pass.
//!
//! Each rule is a file: `silu(gate) ⊙ up`; silu of a short convolution; a norm with a silu gate
//! before or after it; a Canon layer with the gated unit after it; head and cross-entropy by chunks
//! of tokens. Rules run in order, each on the result of the previous ones.

mod conv_silu;
mod conv_swiglu;
mod gated_norm;
mod head_loss;
mod swiglu;

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::{Kernel, Plan, Processor, Step, ValId};

/// Examines the step with this index and records its edits.
type FusionRule = fn(&Plan, &Uses, usize, &mut Edits) -> Option<()>;

pub(crate) fn fuse(plan: &mut Plan, processor: Processor) {
    const RULES: [FusionRule; 5] =
        [swiglu::rule, conv_silu::rule, gated_norm::rule, conv_swiglu::rule, head_loss::rule];
    for rule in RULES {
        let uses = Uses::new(plan);
        let mut edits = Edits { processor, ..Edits::default() };
        for at in 0..plan.steps.len() {
            let _ = rule(plan, &uses, at, &mut edits);
        }
        edits.apply(plan);
    }
}

/// The step that makes each value and the steps that read it, by index.
struct Uses {
    makers: Vec<Option<usize>>,
    readers: Vec<Vec<usize>>,
    /// An output of the plan, which must not disappear.
    kept: Vec<bool>,
}

#[derive(Default)]
struct Edits {
    processor: Processor,
    replace: BTreeMap<usize, (Kernel, Vec<ValId>, Vec<ValId>)>,
    remove: BTreeSet<usize>,
}

impl Edits {
    /// Puts another step in the place of this one.
    fn put(
        &mut self,
        at: usize,
        kernel: impl Into<Kernel>,
        inputs: Vec<ValId>,
        outputs: Vec<ValId>,
    ) {
        self.replace.insert(at, (kernel.into(), inputs, outputs));
    }

    fn touches(&self, at: usize) -> bool {
        self.replace.contains_key(&at) || self.remove.contains(&at)
    }

    fn apply(mut self, plan: &mut Plan) {
        for (at, step) in std::mem::take(&mut plan.steps).into_iter().enumerate() {
            match self.replace.remove(&at) {
                Some((kernel, inputs, outputs)) => {
                    plan.steps.push(Step { kernel, inputs, outputs, ..step });
                }
                None if self.remove.contains(&at) => {}
                None => plan.steps.push(step),
            }
        }
    }
}

impl Uses {
    fn new(plan: &Plan) -> Uses {
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

    /// All steps that read a value, in order; `None` if something other than a step reads it.
    fn readers(&self, id: ValId) -> Option<&[usize]> {
        (!self.kept[id.0 as usize]).then_some(self.readers[id.0 as usize].as_slice())
    }

    /// The only reader of a value; `None` if anything else reads it.
    fn reader(&self, id: ValId) -> Option<usize> {
        match self.readers(id)? {
            [only] => Some(*only),
            _ => None,
        }
    }

    fn maker<'p>(&self, plan: &'p Plan, id: ValId) -> Option<(usize, &'p Step)> {
        let at = self.makers[id.0 as usize]?;
        Some((at, plan.steps.get(at)?))
    }
}
