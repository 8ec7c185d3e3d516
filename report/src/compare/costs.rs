//! The cost of each arm: its size, its compute, and its tuning. Step times are compared in the rows of a pair instead.
//!
//! In: the locks of the arms, and their runs. Out: one table. Must stay true: a cost comes from the lock and is never
//! guessed; an unmeasured value is marked so; tuning counts only the points and tokens of this comparison.

use std::path::Path;

use lab::experiment::Experiment;
use serde::Serialize;

use super::table::{NOTHING, Section, Table};
use super::{Comparison, Curves, Role, Unit};

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

/// Before the folder, in the text of where a run was timed.
const IN_FOLDER: &str = "\nfolder ";

impl Curves {
    /// Records the session in which the run was timed: the comparison that its folder belongs to. A run outside of a
    /// comparison was not interleaved with others: it is a session of its own, so its times are not compared.
    pub fn timed_in(&mut self, place: &Path, folder: &Path) {
        let session = place.parent().filter(|session| Some(*session) != folder.parent());
        let session = session.unwrap_or(place).display();
        self.timed_on = self.timed_on.take().map(|on| format!("{on}{IN_FOLDER}{session}"));
    }

    /// The platform and machine, whichever folder the run was timed in.
    pub(super) fn machine(&self) -> Option<&str> {
        let on = self.timed_on.as_deref()?;
        Some(on.split_once(IN_FOLDER).map_or(on, |(machine, _)| machine))
    }
}

impl Comparison {
    /// The cost of one run of an arm; the replicate costs as much as the base.
    pub(super) fn costs(&self, arm: &super::Arm) -> Option<Costs> {
        let name = match arm.role {
            Role::Replicate => self.base()?.name.as_str(),
            Role::Base | Role::Treatment => arm.name.as_str(),
        };
        self.proved.costs.get(name).copied()
    }

    pub(super) fn measured(&self, arm: &super::Arm) -> Measured {
        let runs = || arm.points.iter().flatten();
        let on = runs().next().and_then(|run| run.curves.timed_on.as_ref());
        let alike = on.is_some() && runs().all(|run| run.curves.timed_on.as_ref() == on);
        let seconds: Option<Vec<f64>> = runs().map(|run| run.curves.step_seconds).collect();
        let mean = seconds.filter(|_| alike).and_then(|seconds| super::mean(&seconds));
        Measured {
            step_seconds: mean.map(|mean| mean.value),
            peak_memory_bytes: runs().filter_map(|run| run.curves.peak_bytes).max(),
        }
    }

    pub(super) fn tuning(&self, arm: &super::Arm) -> Tuning {
        let runs = arm.points.iter().map(Vec::len).sum();
        // A run that diverged trained no further than that step.
        let tokens_of = |run: &super::Run| {
            let Costs { tokens, steps, .. } = self.costs(arm)?;
            match run.curves.diverged {
                None => tokens,
                Some(step) => Some(tokens? * (step as f64 / steps?).min(1.0)),
            }
        };
        Tuning {
            points: arm.points.iter().filter(|runs| !runs.is_empty()).count(),
            runs,
            tokens: arm.points.iter().flatten().map(tokens_of).sum(),
        }
    }
}

/// The table of all arms; `None` if no lock gives costs.
pub(super) fn section(comparison: &Comparison) -> Option<Section> {
    if comparison.proved.costs.is_empty() {
        return None;
    }
    // Leave out columns that no arm has measured.
    let measured: Vec<Measured> =
        comparison.arms.iter().map(|arm| comparison.measured(arm)).collect();
    let timed = measured.iter().any(|of| of.step_seconds.is_some());
    let weighed = measured.iter().any(|of| of.peak_memory_bytes.is_some());
    let mut head = vec!["", "parameters", "training FLOPs per run", "activations per token"];
    head.extend(timed.then_some("step time"));
    head.extend(weighed.then_some("peak memory"));
    head.extend(["points tried", "runs", "tokens of all runs"]);
    let nothing = || NOTHING.to_owned();
    let line = |(arm, measured): (&super::Arm, &Measured)| {
        let costs = comparison.costs(arm).unwrap_or_default();
        let tuning = comparison.tuning(arm);
        let shown = |value: Option<f64>| value.map_or_else(nothing, big);
        let Measured { step_seconds, peak_memory_bytes } = *measured;
        let seconds = step_seconds.map_or_else(nothing, |seconds| Unit::Seconds.value(seconds));
        let mut line = vec![
            arm.name.clone(),
            shown(costs.parameters),
            shown(costs.flops),
            shown(costs.activations),
        ];
        line.extend(timed.then_some(seconds));
        line.extend(weighed.then(|| peak_memory_bytes.map_or_else(nothing, mebibytes)));
        line.extend([tuning.points.to_string(), tuning.runs.to_string(), shown(tuning.tokens)]);
        line
    };
    let rows = comparison.arms.iter().zip(&measured).map(line).collect();
    Some(Section {
        title: "size, cost and tuning of each arm".to_owned(),
        table: Table::plain(head.into_iter().map(str::to_owned).collect(), rows),
    })
}

/// `412 MiB`.
fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// `120 128`: whole up to a million, then three figures.
fn big(value: f64) -> String {
    if value.abs() < 1e6 { format!("{value}") } else { format!("{value:.2e}") }
}
