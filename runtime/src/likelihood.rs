//! The log-likelihood of the last tokens of a text, and whether each is the model's likeliest.
//!
//! The loss is plain cross-entropy, whatever the lock trains with. Sums are in f64, in token order, and texts are
//! measured one at a time, so a result does not depend on other texts.

use compiler::graph::Graph;
use compiler::plan::{IGNORED, Loss, Options, Plan};
use compiler::plans;
use dsl::Problem;
use tch::{Device, Kind, Tensor};

use crate::execute::{Evaluation, Evaluator, ExecuteError, Machine, Paths, Streamer, check_ids};
use crate::state::values;
use crate::weights::Weights;
use records::measure::Likelihood;

/// An arch bound to a machine for measuring texts.
#[derive(Debug)]
pub struct Scorer {
    evaluator: Evaluator,
    machine: Machine,
    vocab: i64,
}

impl Scorer {
    pub fn new(graph: &Graph, options: Options, machine: Machine) -> Result<Self, ExecuteError> {
        let plan = plans::evaluate(graph, Loss::CROSS_ENTROPY, options);
        Self::from_plan(graph.vocab, plan, machine)
    }

    /// For a plan that evaluates by cross-entropy.
    pub(crate) fn from_plan(
        vocab: i64,
        plan: Plan,
        machine: Machine,
    ) -> Result<Self, ExecuteError> {
        Ok(Self { evaluator: Evaluator::new(plan, machine)?, machine, vocab })
    }

    /// The paths of each kernel so far.
    pub fn paths(&self) -> Paths {
        self.evaluator.paths()
    }

    /// The log-likelihood of the last `scored` tokens, at least one and fewer than all.
    pub fn score(
        &self,
        weights: &Weights,
        tokens: &[i64],
        scored: usize,
    ) -> Result<Likelihood, Problem> {
        let inputs = tokens.len().saturating_sub(1);
        let skipped = match inputs.checked_sub(scored) {
            Some(skipped) if scored > 0 => skipped,
            Some(_) | None => {
                return Err(Problem::input(
                    format!("{scored} of {} tokens are to be predicted", tokens.len()),
                    "predict at least one token, and not the first one",
                ));
            }
        };
        check_ids("the tokens", &Streamer::row(tokens)?, self.vocab, false)?;
        let (given, wanted) =
            (tokens.get(..inputs).unwrap_or_default(), tokens.get(1..).unwrap_or_default());
        let hidden = wanted.iter().enumerate();
        let targets: Vec<i64> =
            hidden.map(|(at, id)| if at < skipped { IGNORED } else { *id }).collect();
        let device = self.machine.device;
        let row = |ids: &[i64]| -> Result<Tensor, ExecuteError> {
            Ok(Streamer::row(ids)?.f_to_device(device)?) // [1, inputs]
        };
        let Evaluation { nll, argmax, loss_sum: _, counted: _ } =
            self.evaluator.evaluate(weights, &row(given)?, &row(&targets)?)?;
        let losses = values(&nll)?;
        let guesses = guesses(&argmax)?;
        let sum: f64 = losses.iter().skip(skipped).map(|loss| -f64::from(*loss)).sum();
        let pairs = guesses.iter().zip(wanted).skip(skipped);
        Ok(Likelihood { sum, greedy: pairs.into_iter().all(|(guess, id)| guess == id) })
    }
}

/// The likeliest tokens, on the CPU.
pub(crate) fn guesses(argmax: &Tensor) -> Result<Vec<i64>, ExecuteError> {
    let tensor = argmax.f_to_device(Device::Cpu)?.f_to_kind(Kind::Int64)?.f_contiguous()?;
    let count = tensor.numel();
    let mut guesses = vec![0i64; count];
    tensor.f_copy_data(&mut guesses, count)?;
    Ok(guesses)
}
