//! Evaluation tasks in text files.
//!
//! A suite (TOML) defines how questions become text; the questions are the user's JSON lines. This crate turns them
//! into requests to a model, as text and then as tokens, and scores the replies; it has no model and no tensors of its
//! own. Prompts, token boundaries, ties and normalisations are those of EleutherAI's lm-evaluation-harness 0.4.7; each
//! rule names its source there. A question is never skipped without an error.
//!
//! The modules in the order in which data flows: [`suite`] reads a suite, [`questions`] the questions, [`template`]
//! renders them, [`shots`] chooses examples, [`request`] makes requests, [`asked`] reads whole suites, [`encode`] makes
//! tokens, [`needle`] generates a suite, [`generated`] judges texts, [`score`] adds up.

#![warn(missing_docs)]

pub mod suite;
pub mod questions;
pub mod template;
pub mod shots;
pub mod request;
pub mod asked;
pub mod encode;
pub mod needle;
pub mod generated;
pub mod score;
pub mod reply;
pub mod run;

/// The suite of the 14 tasks in the published results of Physics of Language Models 4.2.
pub const RELEASE: &str = include_str!("../release.toml");
