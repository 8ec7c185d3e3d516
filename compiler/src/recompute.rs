//! Repeats cheap forward steps in the backward pass instead of keeping their results.
//!
//! A repeated step has the same kernel and operands, so no bit changes. A value is made again only from values that are
//! kept in any case, so that memory never grows with it.

use crate::plan::{Input, Kernel, Phase, Plan, Step, ValId};

/// The values of a plan, as this pass sees them.
struct Pass {
    /// The forward step that makes each value and may be repeated.
    makers: Vec<Option<usize>>,
    /// Values that are there when gradients are computed, whatever this pass does.
    kept: Vec<bool>,
    /// For each value: whether it can be made again from kept ones, once known.
    again: Vec<Option<bool>>,
    /// The value that replaces each one from here on.
    replacement: Vec<Option<ValId>>,
}

/// Repeats what [`Recompute::Selective`](crate::plan::Recompute::Selective) repeats.
pub(crate) fn selective(plan: &mut Plan) {
    let mut pass = Pass::new(plan);
    let steps = std::mem::take(&mut plan.steps);
    let mut out: Vec<Step> = Vec::with_capacity(steps.len());
    for step in &steps {
        let mut step = step.clone();
        if step.phase == Phase::Backward {
            for id in &mut step.inputs {
                *id = pass.replace(*id, &steps, plan, &mut out);
            }
        }
        out.push(step);
    }
    plan.steps = out;
}

impl Pass {
    fn new(plan: &Plan) -> Pass {
        let count = plan.values.len();
        let mut makers = vec![None; count];
        for (at, step) in plan.steps.iter().enumerate() {
            if step.phase == Phase::Forward && step.kernel.facts().cheap {
                // A second result is a number for each row, and kept.
                let several = matches!(
                    step.kernel,
                    Kernel::Split(_) | Kernel::CausalConv(_) | Kernel::ConvSwiGlu(_)
                );
                let results = if several { step.outputs.len() } else { 1 };
                for id in step.outputs.iter().take(results) {
                    makers[id.0 as usize] = Some(at);
                }
            }
        }
        let mut kept = vec![false; count];
        for (input, id) in &plan.inputs {
            kept[id.0 as usize] = matches!(
                input,
                Input::Param(_)
                    | Input::Rounded(_)
                    | Input::Tokens
                    | Input::Targets
                    | Input::Position
                    | Input::DropoutKey
                    | Input::Window
            );
        }
        let backward = plan.steps.iter().filter(|step| step.phase == Phase::Backward);
        for id in backward.flat_map(|step| &step.inputs) {
            if makers[id.0 as usize].is_none() {
                kept[id.0 as usize] = true;
            }
        }
        // The caller keeps these; making them again saves nothing.
        for (_, id) in &plan.outputs {
            makers[id.0 as usize] = None;
            kept[id.0 as usize] = true;
        }
        Pass { makers, kept, again: vec![None; count], replacement: vec![None; count] }
    }

    /// Whether a value is there for gradients, or can be made again from values that are.
    fn is_there(&mut self, id: ValId, steps: &[Step]) -> bool {
        let at = id.0 as usize;
        if self.kept[at] {
            return true;
        }
        let Some(maker) = self.makers[at] else { return false };
        if let Some(known) = self.again[at] {
            return known;
        }
        let there = steps[maker].inputs.iter().all(|input| self.is_there(*input, steps));
        self.again[at] = Some(there);
        there
    }

    /// The value that a gradient reads instead of this one. Repeats its step, if nothing has yet.
    fn replace(
        &mut self,
        id: ValId,
        steps: &[Step],
        plan: &mut Plan,
        out: &mut Vec<Step>,
    ) -> ValId {
        let at = id.0 as usize;
        // Values of the backward pass are made after this pass has counted.
        let counted = at < self.makers.len();
        let Some(maker) = self.makers.get(at).copied().flatten() else { return id };
        if !counted || self.kept[at] || !self.is_there(id, steps) {
            return id;
        }
        if let Some(known) = self.replacement[at] {
            return known;
        }
        let mut step = steps[maker].clone();
        step.phase = Phase::Recompute;
        for input in &mut step.inputs {
            *input = self.replace(*input, steps, plan, out);
        }
        for output in &mut step.outputs {
            let new = ValId(plan.values.len() as u32);
            plan.values.push(plan.values[output.0 as usize].clone());
            self.replacement[output.0 as usize] = Some(new);
            *output = new;
        }
        out.push(step);
        self.replacement[at].unwrap_or(id)
    }
}
