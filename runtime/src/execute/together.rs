//! A token of several sequences at a time, each with the bits that it has alone.
//!
//! In: sequences at any positions, a token of each. Out: their logits and states. Must stay true: a sequence's numbers
//! are those of [`Streamer::forward`] with this sequence alone. A step is done for all rows at a time only if its kernel
//! computes each row by itself, in an order of sums that does not depend on the number of rows; every other step is done
//! sequence by sequence. Weights, which are most of what a token reads, are so read once for all sequences.

use compiler::plan::{Extent, Input, Kernel, Sizes, Step, ValId};
use tch::Tensor;

use super::choose::Choice;
use super::stream::{Carried, Streamer, outputs, piece_input};
use super::{ExecuteError, Executor, dispatch, sizes_of};
use crate::kernels::arrange::copy;
use crate::kernels::linear::Product;
use crate::kernels::path::Path;
use crate::weights::Weights;

/// A value of all sequences.
#[derive(Debug)]
enum Shared {
    /// One tensor for all: a parameter, a number.
    One(Tensor),
    /// Rows one after another, [sequences, …].
    Joined(Tensor),
    /// A tensor [1, …] of each sequence.
    Split(Vec<Tensor>),
}

/// Whether a step computes each row alone, with the same operations for any number of rows.
fn is_by_row(kernel: &Kernel, choice: Choice) -> bool {
    match (kernel, choice) {
        // libtorch's product sums in an order that depends on the number of rows.
        (Kernel::Linear { .. }, Choice::Product(Product::FewRows(_))) => true,
        (Kernel::RmsNorm { .. } | Kernel::SwiGlu, Choice::Ours(Path::Fused(_))) => true,
        // One rounding of each element, or none.
        (
            Kernel::Embed
            | Kernel::Add
            | Kernel::Mul
            | Kernel::Scale { .. }
            | Kernel::Offset { .. }
            | Kernel::Cast { .. }
            | Kernel::Split { .. }
            | Kernel::Reshape { .. },
            _,
        ) => true,
        (_, _) => false,
    }
}

impl Streamer {
    /// Logits [1, 1, vocab] and state of each sequence after its next token.
    pub fn forward_each(
        &self,
        weights: &Weights,
        tokens: &[i64],
        carried: &[&Carried],
    ) -> Result<Vec<(Tensor, Carried)>, ExecuteError> {
        if tokens.len() != carried.len() {
            return Err(ExecuteError::new(format!(
                "{} tokens are given for {} sequences",
                tokens.len(),
                carried.len()
            )));
        }
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        if let ([token], [state]) = (tokens, carried) {
            return Ok(vec![self.forward(weights, &Streamer::row(&[*token])?, state)?]);
        }
        let _guard = tch::no_grad_guard();
        let executor = self.executor();
        let mut together = Together::new(executor, weights, tokens, carried)?;
        for n in 0..executor.plan.steps.len() {
            together.step(n)?;
        }
        together.end(carried)
    }
}

struct Together<'a> {
    executor: &'a Executor,
    values: Vec<Option<Shared>>,
    /// The extents of each sequence.
    sizes: Vec<Sizes>,
}

impl<'a> Together<'a> {
    fn new(
        executor: &'a Executor,
        weights: &Weights,
        tokens: &[i64],
        carried: &[&Carried],
    ) -> Result<Self, ExecuteError> {
        let plan = &executor.plan;
        let rows: Vec<Tensor> =
            tokens.iter().map(|token| Streamer::row(&[*token])).collect::<Result<_, _>>()?;
        let mut given: Vec<Vec<(Input, ValId, Tensor)>> = carried.iter().map(|_| vec![]).collect();
        let mut shared = Vec::new();
        for (input, id) in &plan.inputs {
            if matches!(input, Input::Param(_) | Input::Rounded(_)) {
                let (Some(row), Some(state)) = (rows.first(), carried.first()) else {
                    return Err(ExecuteError::new("no sequence is given"));
                };
                shared.push((*input, *id, piece_input(*input, weights, row, state)?));
                continue;
            }
            for ((given, row), state) in given.iter_mut().zip(&rows).zip(carried) {
                given.push((*input, *id, piece_input(*input, weights, row, state)?));
            }
        }
        let sizes: Vec<Sizes> = given.iter().map(|given| sizes_of(given)).collect();
        let mut together =
            Together { executor, values: plan.values.iter().map(|_| None).collect(), sizes };
        let some = together.sizes.first().copied().unwrap_or(Sizes { batch: 1, time: 1, past: 0 });
        for (input, id, tensor) in shared {
            let tensor = executor.fitted(input, id, tensor, some)?;
            together.put(id, Shared::One(tensor));
        }
        let mut split: Vec<(ValId, Vec<Tensor>)> = Vec::new();
        for (given, sizes) in given.into_iter().zip(together.sizes.clone()) {
            for (at, (input, id, tensor)) in given.into_iter().enumerate() {
                let tensor = executor.fitted(input, id, tensor, sizes)?;
                match split.get_mut(at) {
                    Some((_, tensors)) => tensors.push(tensor),
                    None => split.push((id, vec![tensor])),
                }
            }
        }
        for (id, tensors) in split {
            together.put(id, Shared::Split(tensors));
        }
        Ok(together)
    }

    fn put(&mut self, id: ValId, value: Shared) {
        if let Some(slot) = self.values.get_mut(id.0 as usize) {
            *slot = Some(value);
        }
    }

    /// Whether a value has a row of each sequence.
    fn has_rows(&self, id: ValId) -> bool {
        let dims = self.executor.plan.value(id).map(|value| value.dims.as_slice());
        dims.and_then(<[Extent]>::first) == Some(&Extent::Batch)
    }

    fn missing(&self, n: usize) -> ExecuteError {
        self.executor.broken(n, "an operand is missing")
    }

    fn step(&mut self, n: usize) -> Result<(), ExecuteError> {
        let plan = &self.executor.plan;
        let (Some(step), Some(choice)) = (plan.steps.get(n), self.executor.choices.get(n)) else {
            return Err(self.missing(n));
        };
        let ready = step.inputs.iter().all(|id| {
            let one = matches!(self.values.get(id.0 as usize), Some(Some(Shared::One(_))));
            one || self.has_rows(*id)
        });
        let by_row = ready
            && is_by_row(&step.kernel, *choice)
            && step.inputs.iter().chain(&step.outputs).any(|id| self.has_rows(*id))
            && step.outputs.iter().all(|id| self.has_rows(*id));
        if by_row {
            self.joined(n, step, *choice)?
        } else {
            self.split(n, step, *choice)?
        }
        for id in &step.drop_after {
            if let Some(value) = self.values.get_mut(id.0 as usize) {
                *value = None;
            }
        }
        Ok(())
    }

    /// All rows at a time.
    fn joined(&mut self, n: usize, step: &Step, choice: Choice) -> Result<(), ExecuteError> {
        for id in &step.inputs {
            let Some(slot) = self.values.get_mut(id.0 as usize) else { continue };
            if let Some(Shared::Split(rows)) = slot {
                *slot = Some(Shared::Joined(Tensor::f_cat(rows, 0)?));
            }
        }
        let operands: Option<Vec<&Tensor>> = step
            .inputs
            .iter()
            .map(|id| match self.values.get(id.0 as usize)?.as_ref()? {
                Shared::One(tensor) | Shared::Joined(tensor) => Some(tensor),
                Shared::Split(_) => None,
            })
            .collect();
        let operands = operands.ok_or_else(|| self.missing(n))?;
        let one = self.sizes.first().copied().unwrap_or(Sizes { batch: 1, time: 1, past: 0 });
        let sizes = Sizes { batch: self.sizes.len() as i64, ..one };
        let choice = match choice {
            Choice::Product(Product::FewRows(isa)) => Choice::Product(Product::ByRow(isa)),
            Choice::Product(Product::Library | Product::ByRow(_) | Product::Tiles(_))
            | Choice::View
            | Choice::Library
            | Choice::SingleOperation
            | Choice::Ours(_)
            | Choice::Head(..)
            | Choice::Attention(_)
            | Choice::Experts(_) => choice,
        };
        let results = self.compute(n, step, choice, &operands, sizes)?;
        for (id, result) in step.outputs.iter().zip(results) {
            self.put(*id, Shared::Joined(result));
        }
        Ok(())
    }

    /// Sequence by sequence.
    fn split(&mut self, n: usize, step: &Step, choice: Choice) -> Result<(), ExecuteError> {
        let count = self.sizes.len();
        for id in &step.inputs {
            let Some(slot) = self.values.get_mut(id.0 as usize) else { continue };
            if let Some(Shared::Joined(all)) = slot {
                let rows = (0..count as i64).map(|row| all.f_narrow(0, row, 1));
                *slot = Some(Shared::Split(rows.collect::<Result<_, _>>()?));
            }
        }
        let mut results: Vec<Vec<Tensor>> = step.outputs.iter().map(|_| Vec::new()).collect();
        for (row, sizes) in self.sizes.iter().enumerate() {
            let operands: Option<Vec<&Tensor>> = step
                .inputs
                .iter()
                .map(|id| match self.values.get(id.0 as usize)?.as_ref()? {
                    Shared::One(tensor) => Some(tensor),
                    Shared::Split(rows) => rows.get(row),
                    Shared::Joined(_) => None,
                })
                .collect();
            let operands = operands.ok_or_else(|| self.missing(n))?;
            let found = self.compute(n, step, choice, &operands, *sizes)?;
            for (results, found) in results.iter_mut().zip(found) {
                results.push(found);
            }
        }
        for (id, rows) in step.outputs.iter().zip(results) {
            self.put(*id, Shared::Split(rows));
        }
        Ok(())
    }

    fn compute(
        &self,
        n: usize,
        step: &Step,
        choice: Choice,
        operands: &[&Tensor],
        sizes: Sizes,
    ) -> Result<Vec<Tensor>, ExecuteError> {
        let context = dispatch::Context {
            machine: self.executor.machine,
            sizes,
            // A row may be a view of all rows.
            consumes_first: false,
            copy: None,
            tables: &self.executor.tables,
        };
        let results = self.executor.compute(n, &step.kernel, choice, operands, &context)?;
        if results.len() != step.outputs.len() {
            return Err(self.executor.broken(n, "its kernel returned a wrong number of results"));
        }
        Ok(results)
    }

    fn end(mut self, carried: &[&Carried]) -> Result<Vec<(Tensor, Carried)>, ExecuteError> {
        let plan = &self.executor.plan;
        let count = carried.len();
        let mut found: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
        for (output, id) in &plan.outputs {
            let value = self.values.get_mut(id.0 as usize).and_then(Option::take);
            let rows: Vec<Tensor> = match value {
                Some(Shared::Split(rows)) => rows,
                Some(Shared::Joined(all)) => {
                    // Copied, so that a state does not keep the other rows' memory.
                    let rows = (0..count as i64).map(|row| copy(&all.f_narrow(0, row, 1)?));
                    rows.collect::<Result<_, _>>()?
                }
                Some(Shared::One(tensor)) => (0..count).map(|_| tensor.shallow_clone()).collect(),
                None => {
                    return Err(ExecuteError::new(format!("the plan does not compute {output}")));
                }
            };
            for (found, row) in found.iter_mut().zip(&rows) {
                found.push((*output, row.shallow_clone()));
            }
            // Another output may be the same value.
            if let Some(slot) = self.values.get_mut(id.0 as usize) {
                *slot = Some(Shared::Split(rows));
            }
        }
        self.executor.runs.set(self.executor.runs.get() + 1);
        found.into_iter().zip(carried).map(|(found, state)| outputs(found, 1, state)).collect()
    }
}
