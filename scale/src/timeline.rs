//! When a micro-batch needs which parameters whole, and when its gradients are complete.
//!
//! A plan is cut into segments; a parameter is in a segment around every step that reads it. It depends on the plan alone, so
//! all ranks have the same.

use std::collections::BTreeMap;

use compiler::plan::{DType, Input, Output, Plan};

use crate::shard::Shards;

/// What a micro-batch's plan needs from other ranks, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// In the order of their first steps.
    pub segments: Vec<Segment>,
    /// For each unit, the step that completes its gradients.
    pub complete: Vec<usize>,
    /// Number of steps of the plan.
    pub steps: usize,
}

/// Steps of a plan between which a unit's parameters are whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The unit.
    pub unit: usize,
    /// The first step that reads its parameters.
    pub first: usize,
    /// The last step that reads them.
    pub last: usize,
    /// The parameters that are read, in parameter order, and the dtype in which they are exchanged.
    pub params: Vec<(usize, DType)>,
}

impl Timeline {
    /// The timeline of a micro-batch's plan.
    pub fn new(plan: &Plan, shards: &Shards) -> Timeline {
        // Values that hold a parameter: as it is, or rounded.
        let mut holds: BTreeMap<u32, (usize, DType)> = BTreeMap::new();
        for (input, id) in &plan.inputs {
            match input {
                Input::Param(param) => holds.insert(id.0, (param.0 as usize, DType::F32)),
                Input::Rounded(param) => holds.insert(id.0, (param.0 as usize, DType::Bf16)),
                Input::Tokens
                | Input::Targets
                | Input::Position
                | Input::GradScale
                | Input::DropoutKey
                | Input::Window
                | Input::State(..)
                | Input::Left(_)
                | Input::Right(_)
                | Input::Gradient(_)
                | Input::FirstMoment(_)
                | Input::SecondMoment(_)
                | Input::LearningRate
                | Input::StepNumber => None,
            };
        }
        let mut reads: Vec<(usize, usize, (usize, DType))> = Vec::new();
        for (n, step) in plan.steps.iter().enumerate() {
            for held in step.inputs.iter().filter_map(|id| holds.get(&id.0)) {
                reads.push((n, shards.unit_of(held.0), *held));
            }
        }
        let producers: BTreeMap<u32, usize> = plan
            .steps
            .iter()
            .enumerate()
            .flat_map(|(n, step)| step.outputs.iter().map(move |id| (id.0, n)))
            .collect();
        let mut complete = vec![0; shards.units().len()];
        for (output, id) in &plan.outputs {
            if let (Output::Gradient(param), Some(step)) = (output, producers.get(&id.0))
                && let Some(last) = complete.get_mut(shards.unit_of(param.0 as usize))
            {
                *last = (*last).max(*step);
            }
        }
        Timeline { segments: segments(&reads), complete, steps: plan.steps.len() }
    }

    /// The unit, if its gradients are complete after this step.
    pub fn completed_by(&self, step: usize) -> impl Iterator<Item = usize> + '_ {
        let units = self.complete.iter().enumerate();
        units.filter(move |(_, last)| **last == step).map(|(unit, _)| unit)
    }
}

/// Consecutive reads of a unit are in one segment, unless at least two other units are read in between.
fn segments(reads: &[(usize, usize, (usize, DType))]) -> Vec<Segment> {
    let mut open: BTreeMap<usize, (Segment, Vec<usize>)> = BTreeMap::new();
    let mut closed = Vec::new();
    for (step, unit, held) in reads {
        for (other, (_, since)) in &mut open {
            if other != unit && !since.contains(unit) {
                since.push(*unit);
            }
        }
        let left = open.get(unit).is_some_and(|(_, since)| since.len() >= 2);
        if left {
            closed.extend(open.remove(unit).map(|(segment, _)| segment));
        }
        let (segment, since) = open.entry(*unit).or_insert_with(|| {
            (Segment { unit: *unit, first: *step, last: *step, params: Vec::new() }, Vec::new())
        });
        since.clear();
        segment.last = *step;
        if !segment.params.contains(held) {
            segment.params.push(*held);
        }
    }
    closed.extend(open.into_values().map(|(segment, _)| segment));
    for segment in &mut closed {
        segment.params.sort_by_key(|(param, dtype)| (*param, *dtype != DType::F32));
        // A parameter that is read in both dtypes is exchanged in f32, and rounded by each rank.
        segment.params.dedup_by_key(|(param, _)| *param);
    }
    closed.sort_by_key(|segment| (segment.first, segment.unit));
    closed
}
