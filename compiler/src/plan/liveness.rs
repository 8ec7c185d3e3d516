//! The lifetimes of values, and the memory in use at once.
//!
//! Outputs and inputs are never dropped; views use no memory of their own, but keep the value they view alive.

use super::{Plan, Sizes, ValId};

/// Bytes, by owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Memory {
    /// Held by the caller throughout: parameters, moments, tokens, states.
    pub inputs: i128,
    /// The most memory held by steps at once, including outputs and what the running kernel takes for itself.
    pub peak: i128,
    /// Held by outputs at the end.
    pub outputs: i128,
    /// The step at which the peak is reached.
    pub at: usize,
}

/// Removes unused steps, and fills in the values to drop after each step.
pub(crate) fn finish(plan: &mut Plan) {
    plan.inputs.sort();
    let mut needed = vec![false; plan.values.len()];
    let mut mark = |id: &ValId| {
        let seen = needed.get_mut(id.0 as usize);
        seen.is_some_and(|seen| !std::mem::replace(seen, true))
    };
    for (_, id) in &plan.outputs {
        mark(id);
    }
    let inputs: Vec<ValId> = plan.inputs.iter().map(|(_, id)| *id).collect();
    let mut kept: Vec<super::Step> = Vec::with_capacity(plan.steps.len());
    let mut owned = vec![true; plan.values.len()];
    for id in inputs.iter().chain(plan.outputs.iter().map(|(_, id)| id)) {
        if let Some(owned) = owned.get_mut(id.0 as usize) {
            *owned = false;
        }
    }
    let owned = |id: &ValId| owned.get(id.0 as usize) == Some(&true);
    for mut step in plan.steps.drain(..).rev() {
        // A result is used if a later step has marked it.
        let mut unused = Vec::new();
        let mut used = false;
        for id in &step.outputs {
            if mark(id) { unused.push(*id) } else { used = true }
        }
        if !used {
            continue;
        }
        step.drop_after = step.inputs.iter().filter(|id| mark(id)).copied().collect();
        step.drop_after.extend(unused);
        step.drop_after.retain(owned);
        kept.push(step);
    }
    kept.reverse();
    plan.steps = kept;
    compact(plan, &inputs);
}

/// Renumbers values, leaving out those of removed steps and unused inputs.
fn compact(plan: &mut Plan, inputs: &[ValId]) {
    let mut number = vec![None; plan.values.len()];
    let mut values = Vec::new();
    let mut read = vec![false; plan.values.len()];
    let reads =
        plan.steps.iter().flat_map(|s| &s.inputs).chain(plan.outputs.iter().map(|(_, id)| id));
    for id in reads {
        if let Some(read) = read.get_mut(id.0 as usize) {
            *read = true;
        }
    }
    let computed = plan.steps.iter().flat_map(|s| &s.outputs);
    let given = inputs.iter().filter(|id| read.get(id.0 as usize) == Some(&true));
    for id in given.chain(computed) {
        let at = id.0 as usize;
        if let (Some(value), Some(slot)) = (plan.values.get(at), number.get_mut(at)) {
            *slot = Some(ValId(values.len() as u32));
            values.push(value.clone());
        }
    }
    let new = |id: &mut ValId| match number.get(id.0 as usize) {
        Some(Some(to)) => {
            *id = *to;
            true
        }
        Some(None) | None => false,
    };
    plan.values = values;
    plan.inputs.retain_mut(|(_, id)| new(id));
    for (_, id) in &mut plan.outputs {
        new(id);
    }
    for step in &mut plan.steps {
        for ids in [&mut step.inputs, &mut step.outputs, &mut step.drop_after] {
            ids.retain_mut(new);
        }
    }
}

impl Plan {
    /// Bytes of a value in a call of these sizes.
    pub fn bytes(&self, id: ValId, sizes: Sizes) -> i128 {
        self.value(id).map_or(0, |value| value.bytes(sizes))
    }

    /// The memory for running this plan at these sizes.
    pub fn memory(&self, sizes: Sizes) -> Memory {
        let inputs = self.inputs.iter().map(|(_, id)| self.bytes(*id, sizes)).sum();
        let mut memory = Memory { inputs, ..Memory::default() };
        memory.outputs = self.walk(sizes, |n, live| {
            if live > memory.peak {
                (memory.peak, memory.at) = (live, n);
            }
        });
        memory
    }

    /// Bytes held by steps, including outputs, while each step runs.
    pub fn live(&self, sizes: Sizes) -> Vec<i128> {
        let mut by_step = Vec::with_capacity(self.steps.len());
        self.walk(sizes, |_, live| by_step.push(live));
        by_step
    }

    /// Calls `each` with the bytes in use while a step runs, and returns those in use at the end.
    fn walk(&self, sizes: Sizes, mut each: impl FnMut(usize, i128)) -> i128 {
        let bytes = |id: ValId| self.bytes(id, sizes);
        // A view counts as part of the value it views, which lives until its last view is dropped.
        let root = self.memory_of();
        let root_of = |id: ValId| root.get(id.0 as usize).copied().unwrap_or(id);
        let mut holders = vec![0u32; self.values.len()];
        for (_, id) in &self.inputs {
            if let Some(held) = holders.get_mut(id.0 as usize) {
                *held = u32::MAX / 2;
            }
        }
        let mut live = 0i128;
        for (n, step) in self.steps.iter().enumerate() {
            for id in &step.outputs {
                if let Some(held) = holders.get_mut(root_of(*id).0 as usize) {
                    if *held == 0 {
                        live += bytes(root_of(*id));
                    }
                    *held += 1;
                }
            }
            each(n, live + self.scratch(step, sizes));
            for id in &step.drop_after {
                if let Some(held) = holders.get_mut(root_of(*id).0 as usize) {
                    *held = held.saturating_sub(1);
                    if *held == 0 {
                        live -= bytes(root_of(*id));
                    }
                }
            }
        }
        live
    }

    /// The number of steps of each kernel, by name.
    pub fn census(&self) -> std::collections::BTreeMap<&'static str, usize> {
        let mut census = std::collections::BTreeMap::new();
        for name in self.steps.iter().map(|step| step.kernel.name()) {
            *census.entry(name).or_insert(0) += 1;
        }
        census
    }
}
