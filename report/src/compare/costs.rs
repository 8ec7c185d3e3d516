//! The cost of each arm: its size and compute by its lock, the time and memory of its runs, and how much it was tuned.

use lab::experiment::Experiment;
use serde::Serialize;

use super::runs::{Arm, ArmRun, mean};

/// Costs of one run, derived from its lock; `None` if the lock has no such field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Costs {
    /// Number of parameters.
    pub parameters: Option<f64>,
    /// FLOPs of the whole training.
    pub flops: Option<f64>,
    /// Elements per token that the backward pass keeps, without recomputation.
    pub activations: Option<f64>,
    /// Training tokens.
    pub tokens: Option<f64>,
    /// Optimiser steps that these tokens are of.
    #[serde(skip)]
    pub steps: Option<f64>,
}

impl Costs {
    pub(super) fn from_experiment(experiment: &Experiment) -> Costs {
        let number = |path| experiment.value(path).and_then(|value| value.plain().parse().ok());
        Costs {
            parameters: number("arch.parameters"),
            flops: number("budget.flops"),
            activations: number("arch.saved_per_token"),
            tokens: number("budget.tokens"),
            steps: number("budget.steps"),
        }
    }
}

/// Measured costs of an arm's runs on their machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// Mean over runs of the median step; `None` if runs used several machines, or one was not timed.
    pub step_seconds: Option<f64>,
    /// Peak main memory of any process of any run; `None` if no run measured it.
    pub peak_memory_bytes: Option<u64>,
}

impl Measured {
    pub(super) fn new(arm: &Arm) -> Measured {
        let on = arm.runs().next().and_then(|run| run.curves.timed_on.as_ref());
        let alike = on.is_some() && arm.runs().all(|run| run.curves.timed_on.as_ref() == on);
        let seconds: Option<Vec<f64>> = arm.runs().map(|run| run.curves.step_seconds).collect();
        Measured {
            step_seconds: seconds.filter(|_| alike).and_then(|seconds| mean(&seconds)),
            peak_memory_bytes: arm.runs().filter_map(|run| run.curves.peak_bytes).max(),
        }
    }
}

/// How much an arm was tuned in this comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Tuning {
    /// Points of the grid that were run.
    pub points: usize,
    /// Runs of all these points.
    pub runs: usize,
    /// Training tokens of all these runs.
    pub tokens: Option<f64>,
}

impl Tuning {
    pub(super) fn new(arm: &Arm, costs: Option<Costs>) -> Tuning {
        // A run that diverged trained no further than that step.
        let tokens_of = |run: &ArmRun| {
            let Costs { tokens, steps, .. } = costs?;
            match run.curves.diverged {
                None => tokens,
                Some(step) => Some(tokens? * (step as f64 / steps?).min(1.0)),
            }
        };
        Tuning {
            points: arm.points.iter().filter(|runs| !runs.is_empty()).count(),
            runs: arm.runs().count(),
            tokens: arm.runs().map(tokens_of).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{arm, run};
    use super::*;
    use crate::compare::Role;

    #[test]
    fn tuning_counts_the_tokens_that_were_trained_on() {
        let costs = Costs { tokens: Some(2000.0), steps: Some(20.0), ..Costs::default() };
        let mut canon =
            arm("canon", Role::Treatment, vec![(0..3).map(|seed| run(seed, 1.0, 0.5)).collect()]);
        assert_eq!(Tuning::new(&canon, Some(costs)).tokens, Some(6000.0));
        canon.points[0][1].curves.diverged = Some(7);
        assert_eq!(Tuning::new(&canon, Some(costs)).tokens, Some(4700.0));
    }
}
