//! The orders in which the steps of a plan may run, and on how many streams. A step comes after those that make its
//! operands, and one that may write over an operand after all steps that read it; nothing else orders them.

use std::collections::BTreeSet;
use std::fmt;

use super::{Bf16, Plan, Sizes, ValId};

/// Where the steps of a plan run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streams {
    /// The stream of each step. Steps of one stream run in the order of the plan.
    pub by_step: Vec<u32>,
    /// The events that each step waits for: the ends of earlier steps.
    pub waits: Vec<Vec<usize>>,
}

/// Two steps that nothing orders, though one needs the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Race {
    /// Must come first.
    pub first: usize,
    /// May run before it has ended.
    pub then: usize,
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} may run before step {} has ended, which it needs", self.then, self.first)
    }
}

impl Plan {
    /// For each value, the value that first had its memory.
    pub fn memory_of(&self) -> Vec<ValId> {
        let mut memory: Vec<ValId> = (0..self.values.len() as u32).map(ValId).collect();
        for step in &self.steps {
            for (n, output) in step.outputs.iter().enumerate() {
                let from = step.shares(n).and_then(|id| memory.get(id.0 as usize)).copied();
                if let (Some(from), Some(slot)) = (from, memory.get_mut(output.0 as usize)) {
                    *slot = from;
                }
            }
        }
        memory
    }

    /// The earlier steps that each step must come after.
    pub fn dependencies(&self) -> Vec<BTreeSet<usize>> {
        let memory = self.memory_of();
        let root = |id: &ValId| memory.get(id.0 as usize).map_or(0, |root| root.0 as usize);
        let mut maker: Vec<Option<usize>> = vec![None; self.values.len()];
        // By memory: the steps that read it, and the last one that wrote to it.
        let mut readers: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.values.len()];
        let mut writer: Vec<Option<usize>> = vec![None; self.values.len()];
        let mut dependencies = Vec::with_capacity(self.steps.len());
        for (n, step) in self.steps.iter().enumerate() {
            let mut after = BTreeSet::new();
            for id in &step.inputs {
                after.extend(maker.get(id.0 as usize).copied().flatten());
                after.extend(writer.get(root(id)).copied().flatten());
            }
            let over = step.kernel.facts().over.iter().filter_map(|i| step.inputs.get(*i));
            // A kernel may write its result over a first operand that nobody needs any more.
            let consumed = step.inputs.first().filter(|id| step.drop_after.contains(id));
            let written: Vec<usize> = over.chain(consumed).map(root).collect();
            for memory in &written {
                after.extend(readers.get(*memory).into_iter().flatten());
            }
            after.remove(&n);
            for id in &step.inputs {
                if let Some(readers) = readers.get_mut(root(id)) {
                    readers.insert(n);
                }
            }
            for memory in written {
                if let Some(writer) = writer.get_mut(memory) {
                    *writer = Some(n);
                }
            }
            for id in &step.outputs {
                if let Some(maker) = maker.get_mut(id.0 as usize) {
                    *maker = Some(n);
                }
            }
            dependencies.push(after);
        }
        dependencies
    }

    /// Checks that what happens on these streams happens in an order that the plan allows.
    pub fn check_streams(&self, streams: &Streams) -> Result<(), Race> {
        // For each step, what has ended before it begins: by stream, the last step that has.
        let count = streams.by_step.iter().copied().max().map_or(0, |most| most as usize + 1);
        let mut known: Vec<Vec<Option<usize>>> = Vec::with_capacity(self.steps.len());
        let mut last: Vec<Option<usize>> = vec![None; count];
        let dependencies = self.dependencies();
        let stream_of =
            |step: usize| streams.by_step.get(step).map_or(0, |stream| *stream as usize);
        for (n, needs) in dependencies.iter().enumerate() {
            let stream = stream_of(n);
            let before = last.get(stream).copied().flatten();
            let waited = streams.waits.get(n).into_iter().flatten().copied();
            let mut ended = vec![None; count];
            // An event says that its step has ended, and so all that its step came after.
            for step in before.into_iter().chain(waited) {
                let inherited = known.get(step).cloned().unwrap_or_default();
                for (last, earlier) in ended.iter_mut().zip(inherited) {
                    *last = (*last).max(earlier);
                }
                if let Some(last) = ended.get_mut(stream_of(step)) {
                    *last = (*last).max(Some(step));
                }
            }
            for first in needs {
                if ended.get(stream_of(*first)).copied().flatten() < Some(*first) {
                    return Err(Race { first: *first, then: n });
                }
            }
            known.push(ended);
            if let Some(last) = last.get_mut(stream) {
                *last = Some(n);
            }
        }
        Ok(())
    }

    /// Memory as it is taken and given back, step by step, in a call of these sizes: by the value that first has it.
    pub fn allocations(&self, sizes: Sizes, bf16: Bf16) -> Vec<Allocation> {
        let memory = self.memory_of();
        let root = |id: &ValId| memory.get(id.0 as usize).copied().unwrap_or(*id);
        let mut holders = vec![0u32; self.values.len()];
        for (_, id) in &self.inputs {
            if let Some(held) = holders.get_mut(id.0 as usize) {
                *held = u32::MAX / 2;
            }
        }
        let mut allocations = Vec::new();
        for step in &self.steps {
            for id in step.outputs.iter().map(root) {
                if let Some(held) = holders.get_mut(id.0 as usize) {
                    if *held == 0 {
                        allocations.push(Allocation::Take(id, self.bytes(id, sizes)));
                    }
                    *held += 1;
                }
            }
            let scratch = self.scratch_with(step, sizes, bf16);
            if scratch > 0 {
                allocations.push(Allocation::Scratch(scratch));
            }
            for id in step.drop_after.iter().map(root) {
                if let Some(held) = holders.get_mut(id.0 as usize) {
                    *held = held.saturating_sub(1);
                    if *held == 0 {
                        allocations.push(Allocation::GiveBack(id));
                    }
                }
            }
        }
        allocations
    }
}

/// One change of a plan's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Bytes for a value.
    Take(ValId, i128),
    /// Bytes that a kernel takes and gives back.
    Scratch(i128),
    /// Nobody needs the value any more.
    GiveBack(ValId),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{self, RopeLayout, RopeScaling};
    use crate::op::Function;
    use crate::plan::{DType, Extent, Output, Phase, Step, Value};

    /// x → a = silu x, b = silu a, c = a + b; a is given up by the last.
    fn plan() -> Plan {
        let value = |name: &'static str| Value {
            name: name.into(),
            dims: vec![Extent::Batch, Extent::Time, Extent::Fixed(4)],
            dtype: DType::F32,
        };
        let step = |kernel, inputs: &[u32], output, drops: &[u32]| Step {
            kernel,
            inputs: inputs.iter().copied().map(ValId).collect(),
            outputs: vec![ValId(output)],
            drop_after: drops.iter().copied().map(ValId).collect(),
            phase: Phase::Forward,
            source: None,
        };
        let silu = || kernel::Pointwise { function: Function::Silu.definition() }.into();
        Plan {
            values: ["x", "a", "b", "c"].map(value).into(),
            inputs: vec![(crate::plan::Input::Tokens, ValId(0))],
            steps: vec![
                step(silu(), &[0], 1, &[]),
                step(silu(), &[1], 2, &[]),
                step(kernel::Add.into(), &[1, 2], 3, &[1, 2]),
            ],
            outputs: vec![(Output::Logits, ValId(3))],
        }
    }

    #[test]
    fn a_step_comes_after_its_operands_and_after_readers_of_what_it_overwrites() {
        let plan = plan();
        let after = |n: usize| plan.dependencies()[n].iter().copied().collect::<Vec<_>>();
        assert_eq!((after(0), after(1), after(2)), (vec![], vec![0], vec![0, 1]));
    }

    #[test]
    fn numbers_read_on_the_cpu_are_the_callers() {
        let mut plan = plan();
        assert_eq!(plan.check(), Ok(()));
        let rope = kernel::Rope {
            theta: dsl::Decimal::ONE,
            dims: 2,
            layout: RopeLayout::Half,
            inverse: false,
            scaling: RopeScaling::Unscaled,
        };
        if let Some(step) = plan.steps.get_mut(1) {
            (step.kernel, step.inputs) = (rope.into(), vec![ValId(1), ValId(1)]);
        }
        let error = plan.check().unwrap_err();
        assert!(error.ends_with("operand 1 is read on the CPU, but computed"), "{error}");
    }

    #[test]
    fn a_stream_without_a_wait_races() {
        let plan = plan();
        let two = |waits: [&[usize]; 3]| Streams {
            by_step: vec![0, 1, 0],
            waits: waits.iter().map(|waits| waits.to_vec()).collect(),
        };
        let one = Streams { by_step: vec![0; 3], waits: vec![Vec::new(); 3] };
        assert_eq!(plan.check_streams(&one), Ok(()));
        assert_eq!(plan.check_streams(&two([&[], &[0], &[1]])), Ok(()));
        assert_eq!(plan.check_streams(&two([&[], &[], &[1]])), Err(Race { first: 0, then: 1 }));
        let race = plan.check_streams(&two([&[], &[0], &[]])).unwrap_err();
        assert_eq!(race, Race { first: 1, then: 2 });
        let message = "step 2 may run before step 1 has ended, which it needs";
        assert_eq!(race.to_string(), message);
        // An event also tells of what its step has waited for.
        let three = Streams { by_step: vec![0, 1, 2], waits: vec![vec![], vec![0], vec![1]] };
        assert_eq!(plan.check_streams(&three), Ok(()));
    }

    #[test]
    fn memory_is_taken_once_and_given_back_after_the_last_reader() {
        let bytes = 2 * 3 * 4 * 4;
        let all = plan().allocations(Sizes { batch: 2, time: 3, past: 0 }, Bf16::Some);
        assert_eq!(
            all,
            [
                Allocation::Take(ValId(1), bytes),
                Allocation::Take(ValId(2), bytes),
                Allocation::Take(ValId(3), bytes),
                Allocation::GiveBack(ValId(1)),
                Allocation::GiveBack(ValId(2)),
            ]
        );
    }
}
