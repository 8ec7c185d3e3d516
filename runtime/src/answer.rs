//! Answers the requests of a suite with a model.
//!
//! In: a graph, weights on their machine, a tokenizer, requests. Out: replies. Must stay true: each request is computed
//! alone, so a reply does not depend on what else is asked; equal requests are computed once.

use std::collections::HashMap;
use std::ops::ControlFlow;

use compiler::graph::Graph;
use compiler::plan::{Options, Plan};
use suite::encode::{self, Codec, Piece, Tokens};
use suite::generated::cut;
use suite::request::Request;
use suite::score::Reply;
use suite::suite::Task;

use crate::execute::{ExecuteError, Machine, Paths};
use crate::generate::{Continuation, Generator, Sampling};
use crate::likelihood::{Likelihood, Scorer};
use crate::weights::Weights;
use records::run::RunError;
use records::suites::unasked;

/// An arch bound to a machine for answering requests.
#[derive(Debug)]
pub struct Answerer {
    scorer: Scorer,
    /// Only tasks of kind `generate` need it.
    generator: Option<Generator>,
    known: HashMap<Piece, Likelihood>,
}

impl Answerer {
    pub fn new(graph: &Graph, options: Options, machine: Machine) -> Result<Self, ExecuteError> {
        Ok(Self {
            scorer: Scorer::new(graph, options, machine)?,
            generator: Some(Generator::new(graph, options, machine)?),
            known: HashMap::new(),
        })
    }

    /// For plans that were made before: one that scores, and one that writes.
    pub(crate) fn from_plans(
        vocab: i64,
        score: Plan,
        write: Option<Plan>,
        machine: Machine,
    ) -> Result<Self, ExecuteError> {
        Ok(Self {
            scorer: Scorer::from_plan(vocab, score, machine)?,
            generator: write.map(|plan| Generator::from_plan(vocab, plan, machine)).transpose()?,
            known: HashMap::new(),
        })
    }

    /// The paths of each kernel so far.
    pub fn paths(&self) -> Paths {
        let mut paths = self.scorer.paths();
        if let Some(generator) = &self.generator {
            paths.merge(&generator.paths());
        }
        paths
    }

    /// Forgets earlier replies: the weights have changed.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }

    /// The reply to a request with inputs of at most `longest` tokens.
    pub fn reply(
        &mut self,
        weights: &Weights,
        codec: &dyn Codec,
        longest: usize,
        task: &Task,
        request: &Request,
    ) -> Result<Reply, RunError> {
        match encode::request(codec, task, request, longest).map_err(unasked)? {
            Tokens::Continuations(pieces) => {
                let found = pieces.into_iter().map(|piece| self.likelihood(weights, piece));
                let pair = |it: Likelihood| (it.sum, it.greedy);
                Ok(Reply::Likelihoods(found.map(|it| it.map(pair)).collect::<Result<_, _>>()?))
            }
            Tokens::Document(pieces) => {
                let mut total = 0.0;
                for piece in pieces {
                    total += self.likelihood(weights, piece)?.sum;
                }
                Ok(Reply::Likelihood(total))
            }
            Tokens::Prompt(prompt) => {
                let most = task.max_tokens();
                Ok(Reply::Text(self.text(weights, codec, &prompt, most, &task.until)?))
            }
        }
    }

    fn likelihood(&mut self, weights: &Weights, piece: Piece) -> Result<Likelihood, RunError> {
        if let Some(known) = self.known.get(&piece) {
            return Ok(*known);
        }
        let found = self.scorer.score(weights, &piece.tokens, piece.scored)?;
        self.known.insert(piece, found);
        Ok(found)
    }

    /// The likeliest text, up to a stop text.
    fn text(
        &self,
        weights: &Weights,
        codec: &dyn Codec,
        prompt: &[i64],
        most: usize,
        until: &[String],
    ) -> Result<String, RunError> {
        let Some(generator) = &self.generator else {
            let bug = "the plan that writes answers is missing";
            return Err(RunError::machine(bug, "this is a bug in canonc; please report it"));
        };
        let what = Continuation {
            prompt,
            max_tokens: most,
            sampling: Sampling { temperature: 0.0, top_k: None, top_p: None, seed: 0 },
            stop: codec.stop(),
        };
        let (mut tokens, mut text, mut ended) = (Vec::new(), String::new(), Ok(()));
        let each = |token: i64| {
            tokens.push(token);
            match codec.continuation(prompt, &tokens) {
                Ok(bytes) => text = String::from_utf8_lossy(&bytes).into_owned(),
                Err(why) => ended = Err(RunError::input(why, "use the tokenizer of the model")),
            }
            match ended.is_err() || until.iter().any(|stop| text.contains(stop.as_str())) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        generator.generate(weights, &what, each)?;
        ended?;
        Ok(cut(&text, until).to_owned())
    }
}

/// The reply, if each of its numbers is finite.
pub fn finite(reply: Reply) -> Result<Reply, RunError> {
    let wrong = match &reply {
        Reply::Likelihoods(all) => all.iter().map(|(sum, _)| *sum).find(|sum| !sum.is_finite()),
        Reply::Likelihood(sum) => Some(*sum).filter(|sum| !sum.is_finite()),
        Reply::Text(_) => None,
        Reply::Diverged => Some(f64::NAN),
    };
    match wrong {
        None => Ok(reply),
        Some(sum) => Err(RunError::finding(
            format!("the model returned a log-likelihood of {sum}"),
            "check that the weights come from a run that did not diverge",
        )),
    }
}
