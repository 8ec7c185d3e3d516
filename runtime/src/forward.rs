//! Runs an arch with given weights on given tokens: logits, losses, gradients.
//!
//! It runs the plans of generation, evaluation and training, not plans of its own. Losses are means over counted
//! targets, and gradients are of that mean.

use compiler::graph::Graph;
use compiler::plan::{Decays, IGNORED, Loss, Optimizer, Options, Recompute, Stream, TrainOptions};
use compiler::plans;
use dsl::Problem;
use tch::{Kind, Tensor};

use crate::execute::{
    Evaluation, Evaluator, ExecuteError, Machine, Paths, Streamer, Sums, Trainer, check_ids,
};
use crate::weights::{Weights, file};

/// A request for logits, losses and gradients.
#[derive(Debug)]
pub struct Request<'a> {
    pub graph: &'a Graph,
    pub weights: &'a Weights,
    /// [batch, time] i64
    pub tokens: &'a Tensor,
    /// [batch, time] i64; needed for losses and gradients.
    pub targets: Option<&'a Tensor>,
    pub gradients: bool,
    pub loss: Loss,
    pub options: Options,
    pub machine: Machine,
}

/// The results.
#[derive(Debug)]
pub struct Answer {
    /// [batch, time, vocab]
    pub logits: Tensor,
    pub measured: Option<Measured>,
    /// By parameter path, in parameter order.
    pub gradients: Vec<(String, Tensor)>,
    pub paths: Paths,
}

#[derive(Debug)]
pub struct Measured {
    /// The training loss, a mean over counted targets.
    pub loss: f64,
    pub counted: i64,
    /// [batch, time]
    pub nll: Tensor,
}

pub fn forward(request: &Request<'_>) -> Result<Answer, Problem> {
    let Request { graph, weights, tokens, targets, gradients, loss, options, machine } = request;
    check_ids("tokens", tokens, graph.vocab, false)?;
    if let Some(targets) = targets {
        check_ids("targets", targets, graph.vocab, true)?;
        if targets.size() != tokens.size() {
            return Err(Problem::input(
                format!("targets are {:?} and tokens {:?}", targets.size(), tokens.size()),
                "give one target for each token",
            ));
        }
    } else if *gradients {
        return Err(Problem::input("gradients need a loss", "give --targets"));
    }
    let weights = weights.on(machine.device, machine.kind)?;
    let streamer = Streamer::new(plans::forward(graph, Stream::default(), *options), *machine)?;
    let start = streamer.start(tokens.size().first().copied().unwrap_or(0))?;
    let (logits, _) = streamer.forward(&weights, tokens, &start)?;
    let mut answer =
        Answer { logits, measured: None, gradients: Vec::new(), paths: streamer.paths() };
    let Some(targets) = targets else { return Ok(answer) };

    let counted = counted(targets)?;
    let evaluator = Evaluator::new(plans::evaluate(graph, *loss, *options), *machine)?;
    let Evaluation { nll, argmax: _, loss_sum, counted: _ } =
        evaluator.evaluate(&weights, tokens, targets)?;
    answer.paths.merge(&evaluator.paths());
    answer.measured = Some(Measured { loss: loss_sum / counted as f64, counted, nll });
    if *gradients {
        let trainer = Trainer::new(plans::train(graph, &backward_only(*loss, *options)), *machine)?;
        let scale = 1.0 / counted as f64;
        let Sums { gradients, .. } = trainer.micro_batch(&weights, tokens, targets, scale)?;
        answer.paths.merge(&trainer.paths());
        answer.gradients = weights.paths.iter().cloned().zip(gradients).collect();
    }
    Ok(answer)
}

impl Answer {
    /// The bytes of a safetensors file.
    pub fn bytes(&self) -> Result<Vec<u8>, Problem> {
        let named = self.named();
        let all: Vec<(&str, &Tensor)> = named.iter().map(|(name, t)| (name.as_str(), t)).collect();
        file::bytes(&all, Some("forward"))
    }

    /// The tensors of the file: `logits`; `loss` \[1\] f64 and `nll`, if there were targets; `grad.<path>`.
    pub fn named(&self) -> Vec<(String, Tensor)> {
        let mut named = vec![("logits".to_owned(), self.logits.shallow_clone())];
        if let Some(Measured { loss, counted: _, nll }) = &self.measured {
            named.push(("loss".to_owned(), Tensor::from_slice(&[*loss])));
            named.push(("nll".to_owned(), nll.shallow_clone()));
        }
        for (path, gradient) in &self.gradients {
            named.push((format!("grad.{path}"), gradient.shallow_clone()));
        }
        named
    }
}

/// Number of targets that are not ignored. There must be at least one.
fn counted(targets: &Tensor) -> Result<i64, Problem> {
    let count = targets
        .f_ne(IGNORED)
        .and_then(|counts| counts.f_sum(Kind::Int64))
        .and_then(|sum| sum.f_int64_value(&[]))
        .map_err(ExecuteError::from)?;
    if count == 0 {
        return Err(Problem::input(
            format!("all targets are {IGNORED}, so the loss is undefined"),
            "give at least one target",
        ));
    }
    Ok(count)
}

/// Options for a training plan that never runs its update.
fn backward_only(loss: Loss, common: Options) -> TrainOptions {
    let none = loss.z_loss; // any number: nothing reads these
    let optimizer = Optimizer {
        beta1: none,
        beta2: none,
        eps: none,
        weight_decay: none,
        decays: Decays::All,
        clip: None,
    };
    TrainOptions {
        common,
        loss,
        optimizer,
        updates: Vec::new(),
        recompute: Recompute::Nothing,
        // Gradients must be those of the returned loss, which is evaluation's.
        dropout: false,
    }
}
