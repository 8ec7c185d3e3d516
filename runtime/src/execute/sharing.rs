//! Finds the values of a plan that share memory: which steps may overwrite their first operand, and which outputs must
//! be copied.
//!
//! Memory that has another view, or that is shared with the caller, is never overwritten; outputs that the caller may
//! write to never share memory.

use compiler::plan::{Output, Plan, ValId};

/// The memory of each value, named by the value that first allocated it.
struct Roots {
    of: Vec<usize>,
    /// Number of values in that memory.
    lodgers: Vec<usize>,
}

impl Roots {
    fn from_plan(plan: &Plan) -> Self {
        let count = plan.values.len();
        let mut roots = Self { of: (0..count).collect(), lodgers: vec![1; count] };
        for step in &plan.steps {
            for (n, output) in step.outputs.iter().enumerate() {
                if let Some(from) = step.shares(n) {
                    roots.join(*output, from);
                }
            }
        }
        roots
    }

    fn join(&mut self, value: ValId, with: ValId) {
        let root = self.at(with);
        if let Some(slot) = self.of.get_mut(value.0 as usize) {
            *slot = root;
        }
        if let Some(lodgers) = self.lodgers.get_mut(root) {
            *lodgers += 1;
        }
    }

    fn at(&self, value: ValId) -> usize {
        self.of.get(value.0 as usize).copied().unwrap_or(usize::MAX)
    }
}

/// For each step, whether it alone uses its first operand, for the last time; then that memory may hold a result.
pub(super) fn consumable(plan: &Plan) -> Vec<bool> {
    let roots = Roots::from_plan(plan);
    let callers =
        || plan.inputs.iter().map(|(_, id)| id).chain(plan.outputs.iter().map(|(_, id)| id));
    let mut shared = vec![false; plan.values.len()];
    for id in callers() {
        if let Some(shared) = shared.get_mut(roots.at(*id)) {
            *shared = true;
        }
    }
    plan.steps
        .iter()
        .map(|step| {
            let Some(first) = step.inputs.first() else { return false };
            let root = roots.at(*first);
            step.drop_after.contains(first)
                && step.inputs.iter().filter(|id| *id == first).count() == 1
                && roots.lodgers.get(root) == Some(&1)
                && shared.get(root) == Some(&false)
        })
        .collect()
}

/// For each output, whether it shares memory with an earlier one. Only gradients are ever written to.
pub(super) fn copied(plan: &Plan) -> Vec<bool> {
    let roots = Roots::from_plan(plan);
    let mut seen = Vec::new();
    plan.outputs
        .iter()
        .map(|(output, id)| {
            let root = roots.at(*id);
            let again = seen.contains(&root) && matches!(output, Output::Gradient(_));
            seen.push(root);
            again
        })
        .collect()
}
