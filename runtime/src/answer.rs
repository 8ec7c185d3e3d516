//! A model that answers the requests of an evaluation suite.
//!
//! Each request is computed alone, so a reply does not depend on what else is asked. Equal requests are computed once.

use std::collections::HashMap;
use std::ops::ControlFlow;

use compiler::graph::Graph;
use compiler::plan::{Options, Plan};
use dsl::Problem;

use crate::execute::{ExecuteError, Machine, Paths};
use crate::generate::{Continuation, Generator, Sampling};
use crate::likelihood::Scorer;
use crate::weights::Weights;
use records::measure::{Likelihood, Model};

/// An arch bound to a machine for answering requests.
#[derive(Debug)]
pub struct Answerer {
    scorer: Scorer,
    /// Only tasks of kind `generate` need it.
    generator: Option<Generator>,
    /// By tokens and the number of scored ones.
    known: HashMap<(Vec<i64>, usize), Likelihood>,
}

/// An answerer with weights.
#[derive(Debug)]
pub struct AnsweringModel<'a> {
    answerer: &'a mut Answerer,
    weights: &'a Weights,
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

    /// With the weights that all replies until `forget` come from.
    pub fn with<'a>(&'a mut self, weights: &'a Weights) -> AnsweringModel<'a> {
        AnsweringModel { answerer: self, weights }
    }
}

impl Model for AnsweringModel<'_> {
    fn likelihood(&mut self, tokens: Vec<i64>, scored: usize) -> Result<Likelihood, Problem> {
        let Answerer { scorer, known, .. } = &mut *self.answerer;
        let request = (tokens, scored);
        if let Some(known) = known.get(&request) {
            return Ok(*known);
        }
        let likelihood = scorer.score(self.weights, &request.0, scored)?;
        known.insert(request, likelihood);
        Ok(likelihood)
    }

    fn generate(
        &mut self,
        prompt: &[i64],
        max_tokens: usize,
        stop: Option<i64>,
        each: &mut dyn FnMut(i64) -> ControlFlow<()>,
    ) -> Result<(), Problem> {
        let Some(generator) = &self.answerer.generator else {
            let bug = "the plan that writes answers is missing";
            return Err(Problem::machine(bug, "this is a bug in canonc; please report it"));
        };
        let sampling = Sampling { temperature: 0.0, top_k: None, top_p: None, seed: 0 };
        let continuation = Continuation { prompt, max_tokens, sampling, stop };
        generator.generate(self.weights, &continuation, each).map(|_| ())
    }
}
