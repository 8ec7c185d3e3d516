//! How likely a model finds given tokens.
//!
//! In: a graph, weights on their machine, tokens of which the last are predicted. Out: their log-likelihood, and
//! whether each is the likeliest. Must stay true: the loss is cross-entropy, whatever a lock trains with; sums are in
//! f64, in the order of the tokens; one text at a time, so a result does not depend on what else is asked.

use compiler::graph::Graph;
use compiler::plan::{IGNORED, Loss, Options};
use compiler::plans;
use tch::Tensor;

use crate::execute::{Evaluation, Evaluator, ExecuteError, Machine, Paths, Streamer, check_ids};
use crate::state::values;
use crate::weights::Weights;
use records::run::RunError;

/// An arch bound to a machine for measuring texts.
#[derive(Debug)]
pub struct Scorer {
    evaluator: Evaluator,
    machine: Machine,
    vocab: i64,
}

/// How likely some tokens are after those before them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likelihood {
    /// Sum of ln p, in nats.
    pub sum: f64,
    /// Whether each token is the likeliest, that is whether greedy decoding writes them.
    pub greedy: bool,
}

impl Scorer {
    pub fn new(graph: &Graph, options: Options, machine: Machine) -> Result<Self, ExecuteError> {
        let plan = plans::evaluate(graph, Loss::CROSS_ENTROPY, options);
        Ok(Self { evaluator: Evaluator::new(plan, machine)?, machine, vocab: graph.vocab })
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
    ) -> Result<Likelihood, RunError> {
        let inputs = tokens.len().saturating_sub(1);
        let skipped = match inputs.checked_sub(scored) {
            Some(skipped) if scored > 0 => skipped,
            Some(_) | None => {
                return Err(RunError::input(
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
        let guesses = crate::evaluate::guesses(&argmax)?;
        let sum: f64 = losses.iter().skip(skipped).map(|loss| -f64::from(*loss)).sum();
        if !sum.is_finite() {
            return Err(RunError::finding(
                format!("the model returned a log-likelihood of {sum}"),
                "check that the weights come from a run that did not diverge",
            ));
        }
        let pairs = guesses.iter().zip(wanted).skip(skipped);
        Ok(Likelihood { sum, greedy: pairs.into_iter().all(|(guess, id)| guess == id) })
    }
}
