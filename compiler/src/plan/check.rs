//! Checks that a plan is one: each value is written once, before it is read, and has the type that its kernel gives it.

use std::collections::BTreeSet;

use super::{Plan, ValId};
use crate::kernel::OperandTypes;

impl Plan {
    /// Checks the plan: values are written once and before they are read, results have the shapes of
    /// their kernel, nothing is read after it was dropped, nothing is dropped twice.
    pub fn check(&self) -> Result<(), String> {
        let mut state = vec![Life::Unborn; self.values.len()];
        let kept: BTreeSet<ValId> = self.outputs.iter().map(|(_, id)| *id).collect();
        for (_, id) in &self.inputs {
            set(&mut state, *id, Life::Unborn, Life::Given).map_err(|e| format!("input {e}"))?;
        }
        for (n, step) in self.steps.iter().enumerate() {
            let wrong = |e: String| format!("step {n} ({}): {e}", step.kernel.name());
            let mut operands = Vec::with_capacity(step.inputs.len());
            for id in &step.inputs {
                match (state.get(id.0 as usize), self.value(*id)) {
                    (Some(Life::Given | Life::Made), Some(value)) => operands.push(value),
                    (life, _) => return Err(wrong(format!("reads %{}, {life:?}", id.0))),
                }
            }
            let host = step.inputs.len().saturating_sub(step.kernel.facts().host);
            for (number, read) in step.inputs.iter().enumerate().skip(host) {
                if !self.inputs.iter().any(|(_, id)| id == read) {
                    return Err(wrong(format!(
                        "operand {number} is read on the CPU, but computed"
                    )));
                }
            }
            let results = step.kernel.definition().results(OperandTypes(&operands));
            if results.len() != step.outputs.len() {
                return Err(wrong(format!(
                    "{} outputs, not {}",
                    step.outputs.len(),
                    results.len()
                )));
            }
            for (id, result) in step.outputs.iter().zip(&results) {
                set(&mut state, *id, Life::Unborn, Life::Made).map_err(wrong)?;
                match self.value(*id) {
                    Some(v) if v.dims == result.dims && v.dtype == result.dtype => {}
                    other => {
                        return Err(wrong(format!("%{} is {other:?}, not {result:?}", id.0)));
                    }
                }
            }
            for id in &step.drop_after {
                if kept.contains(id) {
                    return Err(wrong(format!("drops the output %{}", id.0)));
                }
                set(&mut state, *id, Life::Made, Life::Dropped).map_err(wrong)?;
            }
        }
        for id in &kept {
            match state.get(id.0 as usize) {
                Some(Life::Given | Life::Made) => {}
                life => return Err(format!("output %{} is {life:?}", id.0)),
            }
        }
        let left = state.iter().enumerate().filter(|(_, life)| **life == Life::Made);
        match left.map(|(at, _)| ValId(at as u32)).find(|id| !kept.contains(id)) {
            Some(id) => Err(format!("%{} is never dropped", id.0)),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Unborn,
    Given,
    Made,
    Dropped,
}

fn set(state: &mut [Life], id: ValId, from: Life, to: Life) -> Result<(), String> {
    match state.get_mut(id.0 as usize) {
        Some(life) if *life == from => {
            *life = to;
            Ok(())
        }
        life => Err(format!("%{} is {life:?}, not {from:?}", id.0)),
    }
}
