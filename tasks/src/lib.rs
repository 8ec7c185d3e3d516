//! Synthetic tasks for language models: samples of Depo, Brevo, Capo, Mano, Lano and multi-hop questions.
//!
//! A task is one file: its row (parameters with bounds, defaults and meaning; metrics; what is special about it) and its
//! generator, whose samples are token for token those of the published script. [`DEFINITIONS`] lists the rows,
//! which everything else reads. By name it uses only what no other task has: the bits of Capo
//! (`runtime/src/evaluate.rs`, `runtime/src/evaluate/knowledge.rs`) and the right answers of multi-hop questions
//! (`ext/models/src/answer.rs`); `canonc new` writes a recipe of Depo. The order of draws never changes under one
//! revision.
//!
//! `cpython` makes the draws; `arguments` reads parameters as their rows say; `task` is what all tasks have in common. The
//! tasks are those of "Physics of Language Models: Part 4.1", appendix A.
//!
//! A sample of Depo (questions that follow 1 or 2 edges of a cycle of names), with its answers:
//!
//! ```
//! use tasks::cpython::Random;
//! use tasks::sample::{Mode, Tape};
//! use tasks::task::{Scratch, Task};
//!
//! let parameters = serde_json::json!({ "N": 5, "K": 2, "mini_vocab": 3, "min_tlen": 1, "max_tlen": 2, "M": 4 });
//! let depo = Task::parse("depo", parameters)?;
//! let mut tape = Tape::default();
//! depo.sample(&mut Random::new(7), Mode::Train, &mut Scratch::default(), &mut tape);
//! for answer in &tape.answers {
//!     let tokens = answer.start..answer.start + answer.len;
//!     println!("{} hops: {:?}", answer.level, &tape.tokens[tokens.clone()]);
//!     assert!((1..=2).contains(&answer.level) && tape.labels[tokens].iter().all(|label| *label == 1));
//! }
//! assert!(tape.tokens.iter().all(|token| depo.alphabet().contains(token)));
//! # Ok::<(), tasks::TaskError>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod cpython;
pub mod metric;
pub mod parameter;
pub mod arguments;
pub mod sample;
mod words;
pub mod grammar;
pub mod task;
pub mod brevo;
pub mod capo;
pub mod depo;
pub mod lano;
pub mod mano;
pub mod multihop;

use std::fmt;

use task::Definition;

/// The tasks, in the order of help texts.
pub static DEFINITIONS: [&Definition; 6] = [
    &depo::DEFINITION,
    &brevo::DEFINITION,
    &mano::DEFINITION,
    &lano::DEFINITION,
    &capo::DEFINITION,
    &multihop::DEFINITION,
];

/// The size of the byte vocabulary: every byte, [`BOS`] and [`EOS`].
pub const BYTES: u32 = 258;
/// Byte texts: the token before a document.
pub const BOS: u32 = 256;
/// Byte texts: the token after a document, and between texts in a window.
pub const EOS: u32 = 257;

/// What is wrong with a task's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// This parameter is not given and has no default.
    Missing(&'static str),
    /// Anything else.
    Wrong,
}

/// A task's parameters are wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskError {
    /// What is wrong, for a program.
    pub cause: Cause,
    /// The parameter to correct, if it is one.
    pub parameter: Option<&'static str>,
    /// What is wrong, on one line.
    pub message: String,
    /// What to type next.
    pub help: String,
}

impl TaskError {
    /// An error about no particular parameter.
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> TaskError {
        TaskError {
            cause: Cause::Wrong,
            parameter: None,
            message: message.into(),
            help: help.into(),
        }
    }

    /// The same error, about this parameter.
    pub fn about(self, parameter: &'static str) -> TaskError {
        TaskError { parameter: Some(parameter), ..self }
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nhelp: {}", self.message, self.help)
    }
}

impl std::error::Error for TaskError {}

impl From<TaskError> for dsl::Problem {
    fn from(error: TaskError) -> dsl::Problem {
        dsl::Problem::input(error.message, error.help)
    }
}
