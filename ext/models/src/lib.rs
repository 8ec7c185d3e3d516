//! The commands of extensions that compute with tensors: models that read, continue and answer texts, benchmarks, and
//! the test of this machine.

// Each module uses only those above it.
mod forward;
mod prompts;
mod open;
mod served;
mod interactive;
mod generate;
mod serve;
mod answer;
pub mod eval;
pub mod bench;
pub mod selftest;

use cli::command::{Run, with};

/// The commands of extensions that `canonc-torch` runs, by name.
pub const TENSORS: &[(&str, Run)] = &[
    ("bench", |_, args| with(args, bench::bench)),
    ("selftest", |_, args| with(args, selftest::selftest)),
    ("forward", |_, args| with(args, forward::forward)),
    ("generate", |_, args| with(args, generate::generate)),
    ("serve", |_, args| with(args, serve::serve)),
    ("answer", |_, args| with(args, answer::answer)),
    ("eval", |_, args| with(args, |args| commands::eval::eval(args, eval::eval))),
];
