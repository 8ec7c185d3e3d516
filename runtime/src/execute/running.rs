//! A run of a plan that can pause between steps, with inputs given when they are needed and outputs taken when they are
//! ready.
//!
//! [`Executor::run`] uses it too, so steps and results are the same. It holds no memory for an input that was freed or
//! an output that was taken.

use std::collections::BTreeMap;

use compiler::graph::ParamId;
use compiler::plan::{Input, Kernel, Output, Sizes, Step, ValId};
use tch::Tensor;

use super::laps::{Laps, StepClock};
use super::{ExecuteError, Executor, StepObserver, dispatch, put, sizes_of};
use crate::kernels::KernelError;
use crate::kernels::arrange::copy;

/// A plan between two of its steps.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    executor: &'a Executor,
    values: Vec<Option<Tensor>>,
    sizes: Sizes,
    /// The global norm of the gradients, if this rank holds only some of them.
    norm: Option<f64>,
    /// Where AdamW writes parameters in bf16, by the parameter's value.
    copies: BTreeMap<ValId, Tensor>,
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
            copies: BTreeMap::new(),
            next: 0,
        };
        for (input, id, tensor) in given {
            running.set_input(input, id, tensor)?;
        }
        Ok(running)
    }
}

impl Running<'_> {
    fn set_input(&mut self, input: Input, id: ValId, tensor: Tensor) -> Result<(), ExecuteError> {
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
            Some((_, id)) => self.set_input(input, *id, tensor()?),
            None => Ok(()),
        }
    }

    /// Has AdamW also write these parameters to these tensors, in bf16.
    pub(crate) fn write_copies(&mut self, copies: &[(ParamId, Tensor)]) {
        let copies: BTreeMap<ParamId, &Tensor> =
            copies.iter().map(|(param, copy)| (*param, copy)).collect();
        for (input, id) in &self.executor.plan.inputs {
            if let Input::Param(param) = input
                && let Some(copy) = copies.get(param)
            {
                self.copies.insert(*id, copy.shallow_clone());
            }
        }
    }

    /// Frees an input that no later step reads, or that will be supplied again.
    pub(crate) fn give_up(&mut self, input: Input) {
        let inputs = &self.executor.plan.inputs;
        let entry = inputs.iter().find(|(known, _)| *known == input);
        if let Some(value) = entry.and_then(|(_, id)| self.values.get_mut(id.0 as usize)) {
            *value = None;
        }
    }

    /// Runs the steps before step `end`.
    pub(crate) fn advance(
        &mut self,
        end: usize,
        mut observer: Option<StepObserver<'_>>,
    ) -> Result<(), ExecuteError> {
        let _guard = tch::no_grad_guard();
        let Executor { plan, machine, trace, .. } = self.executor;
        let timed = |error: KernelError| ExecuteError::new(format!("time of a step: {error}"));
        let mut laps = match observer {
            Some(_) => Some(Laps::start(StepClock::for_device(machine.device)).map_err(timed)?),
            None => None,
        };
        let first = self.next;
        let steps = plan.steps.iter().enumerate().take(end).skip(first);
        for (n, step) in steps {
            let results = self.results(n, step)?;
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
            if let Some(laps) = &mut laps {
                laps.lap().map_err(timed)?;
            }
            self.next = n + 1;
        }
        if let (Some(observer), Some(laps)) = (&mut observer, laps) {
            for (step, took) in plan.steps.iter().skip(first).zip(laps.times().map_err(timed)?) {
                observer(step, took);
            }
        }
        Ok(())
    }

    /// The results of step n.
    fn results(&self, n: usize, step: &Step) -> Result<Vec<Tensor>, ExecuteError> {
        let Executor { machine, choices, consumes, tables, .. } = self.executor;
        let operands: Option<Vec<&Tensor>> =
            step.inputs.iter().map(|id| self.values.get(id.0 as usize)?.as_ref()).collect();
        let (Some(operands), Some(choice)) = (operands, choices.get(n)) else {
            return Err(self.executor.broken(n, "an operand is missing"));
        };
        let context = dispatch::Context {
            machine: *machine,
            sizes: self.sizes,
            consumes_first: consumes.get(n) == Some(&true),
            copy: step.inputs.first().and_then(|id| self.copies.get(id)),
            tables,
            each: None,
        };
        let results = match (&step.kernel, self.norm) {
            (Kernel::GradNorm(_), Some(norm)) => vec![Tensor::from(norm)],
            (kernel, _) => self.executor.compute(n, kernel, *choice, &operands, &context)?,
        };
        if results.len() != step.outputs.len() {
            return Err(self.executor.broken(n, "its kernel returned a wrong number of results"));
        }
        Ok(results)
    }

    /// Removes and returns an output that is ready.
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

    /// Ends the run.
    pub(crate) fn end(self) {
        self.executor.runs.set(self.executor.runs.get() + 1);
        if let Some(trace) = self.executor.trace.borrow_mut().as_mut() {
            trace.end_run();
        }
    }
}
