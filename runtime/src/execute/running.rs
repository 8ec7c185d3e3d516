//! A run of a plan that stops in between.
//!
//! In: a plan's inputs, all at once or when they are needed. Out: its outputs, all at the end or when they are ready. Must
//! stay true: the steps and their results are those of [`Executor::run`], which uses this; an input that was given up, or
//! an output that was taken, holds no memory here.

use std::time::Instant;

use compiler::plan::{Input, Kernel, Output, Sizes, ValId};
use tch::Tensor;

use super::{ExecuteError, Executor, StepObserver, dispatch, put, sizes_of, widen};
use crate::kernels::arrange::copy;

/// A plan between two of its steps.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    executor: &'a Executor,
    values: Vec<Option<Tensor>>,
    sizes: Sizes,
    /// The global norm of gradients that are not all here.
    norm: Option<f64>,
    next: usize,
}

impl Executor {
    /// Begins a run. `give` supplies each input of the plan, or `None` for those that come later.
    pub(crate) fn begin(
        &self,
        mut give: impl FnMut(Input) -> Result<Option<Tensor>, ExecuteError>,
        norm: Option<f64>,
    ) -> Result<Running<'_>, ExecuteError> {
        let mut given = Vec::with_capacity(self.plan.inputs.len());
        for (input, id) in &self.plan.inputs {
            if let Some(tensor) = give(*input)? {
                given.push((*input, *id, tensor));
            }
        }
        let mut running = Running {
            executor: self,
            values: self.plan.values.iter().map(|_| None).collect(),
            sizes: sizes_of(&given),
            norm,
            next: 0,
        };
        for (input, id, tensor) in given {
            running.place(input, id, tensor)?;
        }
        Ok(running)
    }
}

impl Running<'_> {
    fn place(&mut self, input: Input, id: ValId, tensor: Tensor) -> Result<(), ExecuteError> {
        let tensor = self.executor.fitted(input, id, tensor, self.sizes)?;
        put(&mut self.values, id, tensor);
        Ok(())
    }

    /// Supplies an input. An input that the plan does not have is ignored.
    pub(crate) fn give(
        &mut self,
        input: Input,
        tensor: impl FnOnce() -> Result<Tensor, ExecuteError>,
    ) -> Result<(), ExecuteError> {
        let inputs = &self.executor.plan.inputs;
        match inputs.iter().find(|(known, _)| *known == input) {
            Some((_, id)) => self.place(input, *id, tensor()?),
            None => Ok(()),
        }
    }

    /// Frees an input that no later step reads, or that will be given again.
    pub(crate) fn give_up(&mut self, input: Input) {
        let inputs = &self.executor.plan.inputs;
        let found = inputs.iter().find(|(known, _)| *known == input);
        if let Some(value) = found.and_then(|(_, id)| self.values.get_mut(id.0 as usize)) {
            *value = None;
        }
    }

    /// Runs the steps up to `end`, which is the first one that is left.
    pub(crate) fn advance(
        &mut self,
        end: usize,
        mut observer: Option<StepObserver<'_>>,
    ) -> Result<(), ExecuteError> {
        let _guard = tch::no_grad_guard();
        let Executor { plan, machine, choices, kinds, consumes, tables, trace, .. } = self.executor;
        let steps = plan.steps.iter().enumerate().take(end).skip(self.next);
        for (n, step) in steps {
            let operands: Option<Vec<&Tensor>> =
                step.inputs.iter().map(|id| self.values.get(id.0 as usize)?.as_ref()).collect();
            let (Some(operands), Some(choice)) = (operands, choices.get(n)) else {
                return Err(self.executor.broken(n, "an operand is missing"));
            };
            let began = observer.is_some().then(Instant::now);
            let context = dispatch::Context {
                machine: *machine,
                sizes: self.sizes,
                consumes_first: consumes.get(n) == Some(&true),
                tables,
            };
            let kinds = kinds.get(n).map_or(&[][..], Vec::as_slice);
            let results = match (&step.kernel, self.norm) {
                (Kernel::GradNorm, Some(norm)) => vec![Tensor::from(norm)],
                (kernel, _) => widen::run(kernel, *choice, &operands, &context, kinds)
                    .map_err(|error| self.executor.broken(n, &error.to_string()))?,
            };
            if results.len() != step.outputs.len() {
                return Err(self
                    .executor
                    .broken(n, "its kernel returned a wrong number of results"));
            }
            if let Some(trace) = trace.borrow_mut().as_mut() {
                trace.add(n, &results)?;
            }
            for (id, result) in step.outputs.iter().zip(results) {
                debug_assert!(
                    self.executor.has_shape(*id, &result, self.sizes),
                    "step {n} ({}) gave {:?}, not {:?}",
                    step.kernel.name(),
                    result.size(),
                    plan.value(*id),
                );
                put(&mut self.values, *id, result);
            }
            for id in &step.drop_after {
                if let Some(value) = self.values.get_mut(id.0 as usize) {
                    *value = None;
                }
            }
            if let (Some(observer), Some(began)) = (&mut observer, began) {
                observer(step, began.elapsed());
            }
            self.next = n + 1;
        }
        Ok(())
    }

    /// An output that is ready. It is no longer held here.
    pub(crate) fn take(&mut self, output: Output) -> Result<Tensor, ExecuteError> {
        let Executor { plan, copies, .. } = self.executor;
        let missing = || ExecuteError::new(format!("the plan does not compute {output}"));
        let at = plan.outputs.iter().position(|(known, _)| *known == output).ok_or_else(missing)?;
        let (_, id) = plan.outputs.get(at).ok_or_else(missing)?;
        let value = self.values.get_mut(id.0 as usize).ok_or_else(missing)?;
        let later = plan.outputs.iter().skip(at + 1).any(|(_, other)| other == id);
        let read = plan.steps.iter().skip(self.next).any(|step| step.inputs.contains(id));
        let tensor = value.as_ref().ok_or_else(missing)?.shallow_clone();
        if !later && !read {
            *value = None;
        }
        if copies.get(at) == Some(&true) { Ok(copy(&tensor)?) } else { Ok(tensor) }
    }

    /// The run is over.
    pub(crate) fn end(self) {
        self.executor.runs.set(self.executor.runs.get() + 1);
        if let Some(trace) = self.executor.trace.borrow_mut().as_mut() {
            trace.end_run();
        }
    }
}
