//! Training and evaluation by plans.
//!
//! A training step has three plans: `micro` computes the sums of a micro-batch (losses and gradients), `combine` adds
//! the sums of several, and `update` applies them to weights and moments. Evaluation has one plan, for each token's
//! loss and likeliest next token.
//!
//! Gradients, weights and moments are in parameter order. `combine` and `update` overwrite their arguments. A
//! parameter's bf16 copy remains valid after an update only if the update wrote it.

use std::collections::{BTreeMap, BTreeSet};

use compiler::graph::ParamId;
use compiler::plan::{IGNORED, Input, Kernel, Output, Plan, TrainPlan, ValId};
use dsl::Problem;
use tch::{Kind, Tensor};

use super::divided::{divided, sums_of};
use super::{
    Choice, ExecuteError, Executor, Machine, Moments, Paths, Running, StepObserver, Traced,
};
use crate::kernels::path::Path;
use crate::kernels::transfer::Readback;
use crate::weights::Weights;

/// `micro`, `combine` and `update` bound to a machine.
#[derive(Debug)]
pub struct Trainer {
    micro: Executor,
    /// One for all sums, or one for each unit of parameters that ranks exchange together.
    combine: Vec<Executor>,
    update: Executor,
    /// The parameters that the update also writes in bf16.
    copied: Vec<ParamId>,
}

/// The results of a micro-batch, or the sum over several.
#[derive(Debug)]
pub struct Sums {
    /// [] f64, not divided by the number of targets.
    loss: Tensor,
    /// [] i64
    counted: Tensor,
    /// [] f64: the auxiliary losses that the plan computes, by their index in `TERMS`.
    terms: Vec<(u32, Tensor)>,
    /// In parameter order, with the parameters' shapes.
    pub gradients: Vec<Tensor>,
}

/// What the draws of dropout in a micro-batch depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draws {
    /// The run's key.
    pub key: u64,
    /// The number of the first row's window.
    pub window: u64,
}

/// Digests of everything that one training step computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepTrace {
    micro: Vec<Traced>,
    combine: Vec<Traced>,
    update: Vec<Traced>,
}

impl Sums {
    /// The training loss, summed over counted targets.
    pub fn loss_sum(&self) -> Result<f64, ExecuteError> {
        Ok(self.loss.f_double_value(&[])?)
    }

    /// Targets that are not ignored.
    pub fn counted(&self) -> Result<i64, ExecuteError> {
        Ok(self.counted.f_int64_value(&[])?)
    }
}

impl Trainer {
    pub fn new(plans: TrainPlan, machine: Machine) -> Result<Self, ExecuteError> {
        let TrainPlan { micro, combine, update } = plans;
        let micro = Executor::new(micro, machine)?;
        let combine = vec![Executor::new(combine, machine)?];
        let update = Executor::new(update, machine)?;
        let copied = copied(&micro, &update);
        Ok(Self { micro, combine, update, copied })
    }

    /// Like [`Trainer::new`], but sums only what this rank owns: flat pieces of the parameters, of these lengths, one
    /// unit at a time. With `updates`, it also updates only that.
    pub(crate) fn divided(
        plans: TrainPlan,
        machine: Machine,
        lengths: &[i64],
        units: &[&[usize]],
        updates: bool,
    ) -> Result<Self, ExecuteError> {
        let TrainPlan { micro, combine, update } = plans;
        let combine = divided(combine, lengths);
        let update = if updates { divided(update, lengths) } else { update };
        let micro = Executor::new(micro, machine)?;
        let combine = units
            .iter()
            .map(|params| Executor::new(sums_of(&combine, params), machine))
            .collect::<Result<_, _>>()?;
        let update = Executor::new(update, machine)?;
        let copied = copied(&micro, &update);
        Ok(Self { micro, combine, update, copied })
    }

    /// The indices in `TERMS` of the auxiliary losses that a micro-batch computes.
    pub(crate) fn terms(&self) -> impl Iterator<Item = u32> + '_ {
        let outputs = self.micro.plan().outputs.iter();
        outputs.filter_map(|(output, _)| if let Output::Term(n) = output { Some(*n) } else { None })
    }

    pub fn machine(&self) -> Machine {
        self.micro.machine()
    }

    #[cfg(test)]
    pub(crate) fn micro_plan(&self) -> &Plan {
        self.micro.plan()
    }

    /// The kernels and paths that have run so far.
    pub fn paths(&self) -> Paths {
        let mut paths = self.micro.paths();
        for combine in &self.combine {
            paths.merge(&combine.paths());
        }
        paths.merge(&self.update.paths());
        paths
    }

    /// Starts to digest every result.
    pub fn begin_trace(&self) {
        for executor in [&self.micro, &self.update].into_iter().chain(&self.combine) {
            executor.begin_trace();
        }
    }

    /// Stops tracing and returns the digests.
    pub fn end_trace(&self) -> StepTrace {
        StepTrace {
            micro: self.micro.end_trace(),
            combine: self.combine.iter().flat_map(Executor::end_trace).collect(),
            update: self.update.end_trace(),
        }
    }

    /// Describes the first computation of a step that differs in another run of it. Sums come after all micro-batches,
    /// and the update after all sums, so the first difference does not depend on any later one.
    pub fn first_difference(&self, one: &StepTrace, other: &StepTrace) -> Option<String> {
        let combine = self.combine.first().unwrap_or(&self.micro);
        let plans = [
            (&self.micro, &one.micro, &other.micro, "micro-batch"),
            (combine, &one.combine, &other.combine, "sum"),
            (&self.update, &one.update, &other.update, "update"),
        ];
        plans.into_iter().find_map(|(executor, one, other, name)| {
            let (line, _) = one.iter().zip(other).find(|(one, other)| one != other)?;
            Some(format!("{name} {}: {}", line.run + 1, executor.location(line.step)))
        })
    }

    /// Forward and backward. `tokens` and `targets` are [batch, time] i64; `scale` is 1 / the counted targets of the
    /// whole step, and multiplies every gradient.
    pub fn micro_batch(
        &self,
        weights: &Weights,
        tokens: &Tensor,
        targets: &Tensor,
        scale: f64,
    ) -> Result<Sums, ExecuteError> {
        self.micro_batch_timed(weights, tokens, targets, scale, None)
    }

    /// Like [`Trainer::micro_batch`], with these draws of dropout.
    pub fn micro_batch_drawn(
        &self,
        weights: &Weights,
        tokens: &Tensor,
        targets: &Tensor,
        scale: f64,
        draws: Draws,
    ) -> Result<Sums, ExecuteError> {
        let give = |input| batch_input(input, weights, tokens, targets, scale, Some(draws));
        sums(self.micro.run_timed(give, None)?, weights.tensors.len())
    }

    /// Like [`Trainer::micro_batch`], and reports each step's time.
    pub fn micro_batch_timed(
        &self,
        weights: &Weights,
        tokens: &Tensor,
        targets: &Tensor,
        scale: f64,
        observer: Option<StepObserver<'_>>,
    ) -> Result<Sums, ExecuteError> {
        let draws = Some(Draws::default());
        let give = |input| batch_input(input, weights, tokens, targets, scale, draws);
        sums(self.micro.run_timed(give, observer)?, weights.tensors.len())
    }

    /// Begins a micro-batch. With `later`, parameters are supplied later.
    pub(crate) fn begin(
        &self,
        weights: &Weights,
        tokens: &Tensor,
        targets: &Tensor,
        scale: f64,
        draws: Draws,
        later: bool,
    ) -> Result<Running<'_>, ExecuteError> {
        let give = |input| match input {
            Input::Param(_) | Input::Rounded(_) if later => Ok(None),
            Input::Tokens
            | Input::Targets
            | Input::Position
            | Input::GradScale
            | Input::DropoutKey
            | Input::Window
            | Input::Param(_)
            | Input::Rounded(_)
            | Input::State(..)
            | Input::Left(_)
            | Input::Right(_)
            | Input::Gradient(_)
            | Input::FirstMoment(_)
            | Input::SecondMoment(_)
            | Input::LearningRate
            | Input::StepNumber => {
                batch_input(input, weights, tokens, targets, scale, Some(draws)).map(Some)
            }
        };
        self.micro.begin(give, None)
    }

    /// left + right, stored in the left.
    pub fn combine(&self, left: Sums, right: Sums) -> Result<Sums, ExecuteError> {
        let count = left.gradients.len();
        let pick = |sums: &Sums, output: Output| match output {
            Output::Loss => Ok(sums.loss.shallow_clone()),
            Output::Counted => Ok(sums.counted.shallow_clone()),
            Output::Term(n) => {
                let known = sums.terms.iter().find(|(known, _)| *known == n);
                known
                    .map(|(_, term)| term.shallow_clone())
                    .ok_or_else(|| unknown(Input::Left(output)))
            }
            Output::Gradient(id) => at(&sums.gradients, id.0, "gradient"),
            Output::Logits
            | Output::Nll
            | Output::Argmax
            | Output::State(..)
            | Output::GradNorm
            | Output::Param(_)
            | Output::FirstMoment(_)
            | Output::SecondMoment(_) => Err(unknown(Input::Left(output))),
        };
        let outputs =
            self.combined(0, |output| pick(&left, output), |output| pick(&right, output))?;
        sums(outputs, count)
    }

    /// left + right for what this rank owns of a unit's gradients, stored in the left.
    pub(crate) fn add(
        &self,
        unit: usize,
        left: Vec<Tensor>,
        right: Vec<Tensor>,
    ) -> Result<Vec<Tensor>, ExecuteError> {
        let plan = self.combine.get(unit).map(Executor::plan);
        let tensor_for = |tensors: &[Tensor], output: Output| {
            let mut outputs = plan.into_iter().flat_map(|plan| &plan.outputs);
            let index = outputs.position(|(known, _)| *known == output);
            at(tensors, index.map_or(u32::MAX, |index| index as u32), "gradient")
        };
        let outputs = self.combined(
            unit,
            |output| tensor_for(&left, output),
            |output| tensor_for(&right, output),
        )?;
        Ok(outputs.into_iter().map(|(_, sum)| sum).collect())
    }

    fn combined(
        &self,
        executor: usize,
        left: impl Fn(Output) -> Result<Tensor, ExecuteError>,
        right: impl Fn(Output) -> Result<Tensor, ExecuteError>,
    ) -> Result<Vec<(Output, Tensor)>, ExecuteError> {
        let Some(executor) = self.combine.get(executor) else {
            return Err(ExecuteError::new(format!("no plan adds the unit {executor}")));
        };
        executor.run(|input| match input {
            Input::Left(output) => left(output),
            Input::Right(output) => right(output),
            Input::Tokens
            | Input::Targets
            | Input::Position
            | Input::GradScale
            | Input::DropoutKey
            | Input::Window
            | Input::Param(_)
            | Input::Rounded(_)
            | Input::State(..)
            | Input::Gradient(_)
            | Input::FirstMoment(_)
            | Input::SecondMoment(_)
            | Input::LearningRate
            | Input::StepNumber => Err(unknown(input)),
        })
    }

    /// Clips and updates: changes weights and moments in place. `step` is 1 for the first update. Returns the global
    /// norm of the gradients before clipping.
    pub fn update(
        &self,
        weights: &mut Weights,
        moments: &mut Moments,
        gradients: &[Tensor],
        lr: f64,
        step: i64,
    ) -> Result<f64, ExecuteError> {
        self.update_normed(weights, moments, gradients, None, lr, step)
    }

    /// Like [`Trainer::update`]. `norm` is that of all gradients, if `gradients` are only some of them.
    pub(crate) fn update_normed(
        &self,
        weights: &mut Weights,
        moments: &mut Moments,
        gradients: &[Tensor],
        norm: Option<f64>,
        lr: f64,
        step: i64,
    ) -> Result<f64, ExecuteError> {
        let copies = weights.take_rounded(&self.copied)?;
        let tensors = &weights.tensors;
        let readback =
            self.update_reading(tensors, &copies, moments, gradients, &[], norm, lr, step)?;
        weights.set_rounded(copies);
        let [norm] = readback.wait()?;
        Ok(norm)
    }

    /// Like [`Trainer::update`], for a whole step's sums. Also starts to copy what the log needs (the summed loss,
    /// auxiliary losses and the norm) while the device still updates.
    pub fn update_and_log(
        &self,
        weights: &mut Weights,
        moments: &mut Moments,
        sums: &Sums,
        lr: f64,
        step: i64,
    ) -> Result<Readback, ExecuteError> {
        let copies = weights.take_rounded(&self.copied)?;
        let (of, gradients) = (&weights.tensors, &sums.gradients);
        let logged: Vec<&Tensor> =
            [&sums.loss].into_iter().chain(sums.terms.iter().map(|(_, term)| term)).collect();
        let readback =
            self.update_reading(of, &copies, moments, gradients, &logged, None, lr, step)?;
        weights.set_rounded(copies);
        Ok(readback)
    }

    /// Like [`Trainer::update_normed`], for pieces of the weights.
    pub(crate) fn update_parts(
        &self,
        weights: &[Tensor],
        moments: &mut Moments,
        gradients: &[Tensor],
        norm: Option<f64>,
        lr: f64,
        step: i64,
    ) -> Result<f64, ExecuteError> {
        let readback =
            self.update_reading(weights, &[], moments, gradients, &[], norm, lr, step)?;
        let [norm] = readback.wait()?;
        Ok(norm)
    }

    /// Updates, and starts to read `logged` and the norm of the gradients as soon as that is computed.
    #[expect(
        clippy::too_many_arguments,
        reason = "the update's operands, and what is read beside it"
    )]
    fn update_reading(
        &self,
        weights: &[Tensor],
        copies: &[(ParamId, Tensor)],
        moments: &mut Moments,
        gradients: &[Tensor],
        logged: &[&Tensor],
        norm: Option<f64>,
        lr: f64,
        step: i64,
    ) -> Result<Readback, ExecuteError> {
        let give = |input| match input {
            Input::Param(id) => at(weights, id.0, "parameter"),
            Input::Rounded(_) => Err(unknown(input)),
            Input::Gradient(id) => at(gradients, id.0, "gradient"),
            Input::FirstMoment(id) => at(&moments.first, id.0, "first moment"),
            Input::SecondMoment(id) => at(&moments.second, id.0, "second moment"),
            Input::LearningRate => Ok(Tensor::from(lr)),
            Input::StepNumber => Ok(Tensor::from(step)),
            Input::Tokens
            | Input::Targets
            | Input::Position
            | Input::GradScale
            | Input::DropoutKey
            | Input::Window
            | Input::State(..)
            | Input::Left(_)
            | Input::Right(_) => Err(unknown(input)),
        };
        let steps = &self.update.plan().steps;
        let known = steps.iter().position(|step| matches!(step.kernel, Kernel::GradNorm(_)));
        let known = known.ok_or_else(|| ExecuteError::new("the update plan has no norm"))?;
        let mut running = self.update.begin(|input| give(input).map(Some), norm)?;
        running.write_copies(copies);
        running.advance(known + 1, None)?;
        let norm = running.take(Output::GradNorm)?;
        let readback = Readback::begin(&[logged, &[&norm]].concat())?;
        running.advance(steps.len(), None)?;
        running.end();
        Ok(readback)
    }
}

/// The parameters that the micro-batch reads in bf16, if the kernel that updates them also writes them in bf16.
fn copied(micro: &Executor, update: &Executor) -> Vec<ParamId> {
    let rounded: BTreeSet<ParamId> = (micro.plan.inputs.iter())
        .filter_map(|(input, _)| if let Input::Rounded(id) = input { Some(*id) } else { None })
        .collect();
    let params: BTreeMap<ValId, ParamId> = (update.plan.inputs.iter())
        .filter_map(|(input, id)| if let Input::Param(p) = input { Some((*id, *p)) } else { None })
        .collect();
    let steps = update.plan.steps.iter().zip(&update.choices);
    let copying = steps.filter(|(step, choice)| {
        matches!(step.kernel, Kernel::AdamW(_)) && matches!(choice, Choice::Ours(Path::Cuda(_)))
    });
    let updated = copying.filter_map(|(step, _)| params.get(step.inputs.first()?).copied());
    updated.filter(|param| rounded.contains(param)).collect()
}

/// An evaluation plan bound to a machine: losses and predictions, no gradients.
#[derive(Debug)]
pub struct Evaluator {
    executor: Executor,
}

#[derive(Debug)]
pub struct Evaluation {
    /// [batch, time]: −ln p(target), 0 where ignored.
    pub nll: Tensor,
    /// [batch, time] i64: the likeliest next token.
    pub argmax: Tensor,
    /// The training loss, summed over counted targets.
    pub loss_sum: f64,
    pub counted: i64,
}

impl Evaluator {
    pub fn new(plan: Plan, machine: Machine) -> Result<Self, ExecuteError> {
        Ok(Self { executor: Executor::new(plan, machine)? })
    }

    pub fn paths(&self) -> Paths {
        self.executor.paths()
    }

    pub fn evaluate(
        &self,
        weights: &Weights,
        tokens: &Tensor,
        targets: &Tensor,
    ) -> Result<Evaluation, ExecuteError> {
        let outputs =
            self.executor.run(|input| batch_input(input, weights, tokens, targets, 1.0, None))?;
        let find = |wanted: Output| {
            let entry = outputs.iter().find(|(output, _)| *output == wanted);
            entry
                .map(|(_, tensor)| tensor.shallow_clone())
                .ok_or_else(|| ExecuteError::new(format!("the evaluation plan gives no {wanted}")))
        };
        Ok(Evaluation {
            nll: find(Output::Nll)?,
            argmax: find(Output::Argmax)?,
            loss_sum: find(Output::Loss)?.f_double_value(&[])?,
            counted: find(Output::Counted)?.f_int64_value(&[])?,
        })
    }
}

/// The inputs of a plan over whole rows of text.
pub(super) fn batch_input(
    input: Input,
    weights: &Weights,
    tokens: &Tensor,
    targets: &Tensor,
    scale: f64,
    draws: Option<Draws>,
) -> Result<Tensor, ExecuteError> {
    match input {
        Input::Tokens => Ok(tokens.shallow_clone()),
        Input::Targets => Ok(targets.shallow_clone()),
        Input::Position => Ok(Tensor::from(0i64)),
        Input::GradScale => Ok(Tensor::from(scale)),
        Input::DropoutKey => {
            draws.map(|draws| Tensor::from(draws.key as i64)).ok_or_else(|| unknown(input))
        }
        Input::Window => {
            draws.map(|draws| Tensor::from(draws.window as i64)).ok_or_else(|| unknown(input))
        }
        Input::Param(id) => at(&weights.tensors, id.0, "parameter"),
        Input::Rounded(id) => weights.rounded(id.0 as usize),
        Input::State(..)
        | Input::Left(_)
        | Input::Right(_)
        | Input::Gradient(_)
        | Input::FirstMoment(_)
        | Input::SecondMoment(_)
        | Input::LearningRate
        | Input::StepNumber => Err(unknown(input)),
    }
}

/// Checks a user's tokens or targets: [batch, time] i64, at least one token, each in 0..vocab. Targets may be ignored.
pub fn check_ids(what: &str, ids: &Tensor, vocab: i64, targets: bool) -> Result<(), Problem> {
    let size = ids.size();
    if ids.kind() != Kind::Int64 || size.len() != 2 || size.contains(&0) {
        return Err(Problem::input(
            format!("{what} are {:?} of shape {size:?}", ids.kind()),
            "give i64 [batch, time] with at least one token",
        ));
    }
    match first_outside(ids, vocab, targets)? {
        None => Ok(()),
        Some((row, column, id)) => {
            let also = if targets { format!(", or {IGNORED} for none") } else { String::new() };
            Err(Problem::input(
                format!("{what}[{row}, {column}] is {id}, but the vocabulary has {vocab}"),
                format!("use ids of 0..{vocab}{also}"),
            ))
        }
    }
}

/// The first invalid id, with its position.
fn first_outside(
    ids: &Tensor,
    vocab: i64,
    targets: bool,
) -> Result<Option<(i64, i64, i64)>, ExecuteError> {
    let mut bad = ids.f_lt(0)?.f_logical_or(&ids.f_ge(vocab)?)?;
    if targets {
        bad = bad.f_logical_and(&ids.f_ne(IGNORED)?)?;
    }
    let places = bad.f_nonzero()?; // [n, 2]
    if places.size().first() == Some(&0) {
        return Ok(None);
    }
    let (row, column) = (places.f_int64_value(&[0, 0])?, places.f_int64_value(&[0, 1])?);
    Ok(Some((row, column, ids.f_int64_value(&[row, column])?)))
}

fn sums(outputs: Vec<(Output, Tensor)>, count: usize) -> Result<Sums, ExecuteError> {
    let (mut loss, mut counted, mut terms) = (None, None, Vec::new());
    let mut gradients = Vec::with_capacity(count);
    for (output, tensor) in outputs {
        match output {
            Output::Loss => loss = Some(tensor),
            Output::Counted => counted = Some(tensor),
            Output::Term(n) => terms.push((n, tensor)),
            Output::Gradient(id) if id.0 as usize == gradients.len() => gradients.push(tensor),
            Output::Gradient(_)
            | Output::Logits
            | Output::Nll
            | Output::Argmax
            | Output::State(..)
            | Output::GradNorm
            | Output::Param(_)
            | Output::FirstMoment(_)
            | Output::SecondMoment(_) => {
                return Err(ExecuteError::new(format!(
                    "a training plan returns {output} out of order"
                )));
            }
        }
    }
    match (loss, counted) {
        (Some(loss), Some(counted)) if gradients.len() == count => {
            Ok(Sums { loss, counted, terms, gradients })
        }
        _ => Err(ExecuteError::new(format!(
            "a training plan gives {} of {count} gradients, or no loss",
            gradients.len()
        ))),
    }
}

pub(super) fn at(tensors: &[Tensor], index: u32, what: &str) -> Result<Tensor, ExecuteError> {
    tensors.get(index as usize).map(Tensor::shallow_clone).ok_or_else(|| {
        ExecuteError::new(format!("{what} {index} is missing; there are {}", tensors.len()))
    })
}

pub(super) fn unknown(input: Input) -> ExecuteError {
    ExecuteError::new(format!("this plan needs {input}, which is not available"))
}
