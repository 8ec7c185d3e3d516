//! Extra measures of an evaluation: tasks that a lock names, whose questions an extension asks the model.

use std::fmt::Debug;
use std::ops::ControlFlow;

use dsl::Problem;

/// How likely some tokens are after those before them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likelihood {
    /// Sum of ln p, in nats; not finite if the model diverged.
    pub sum: f64,
    /// Whether each token is the likeliest, that is whether greedy decoding writes them.
    pub greedy: bool,
}

/// A model that can be asked.
pub trait Model {
    /// How likely the last `scored` tokens are, at least one and fewer than all.
    fn likelihood(&mut self, tokens: Vec<i64>, scored: usize) -> Result<Likelihood, Problem>;

    /// Passes the likeliest tokens after a prompt to `each`, one by one, up to `stop`.
    fn generate(
        &mut self,
        prompt: &[i64],
        max_tokens: usize,
        stop: Option<i64>,
        each: &mut dyn FnMut(i64) -> ControlFlow<()>,
    ) -> Result<(), Problem>;
}

/// The questions of a lock's tasks.
pub trait Measure: Debug + Send {
    /// Asks a question of a task, both by number, in inputs of at most `longest` tokens. Returns its part of each of the
    /// task's metrics.
    fn ask(
        &self,
        model: &mut dyn Model,
        task: usize,
        question: usize,
        longest: usize,
    ) -> Result<Vec<f64>, Problem>;
}
