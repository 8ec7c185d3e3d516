//! The commands of extensions, and what extensions add to those of the core. A command is a file here and a row in the
//! list; what it computes with tensors is a file of `ext/models`.

// Each module uses only those above it.
pub mod foreign;
mod suites;
mod signatures;
mod logs;

pub mod weights;
mod initial;
pub mod answer;
pub mod audit;
pub mod bench;
pub mod eval;
pub mod export;
pub mod forward;
pub mod generate;
pub mod graph;
pub mod import;
pub mod lsp;
pub mod selftest;
pub mod serve;
pub mod sign;

use clap::{Args, Command};
use cli::command::Heading::{self, Conclude, Describe, Exchange, Lock, Machine, UseAModel};
use cli::command::{Row, with};
use cli::commands::row;
use cli::extensions::Extensions;
use cli::torch_program;
use interop::class::class_names;

/// What extensions add to the commands of the core.
pub const EXTENSIONS: Extensions = Extensions {
    models: &foreign::Folders,
    weights: &initial::Files,
    suites: &suites::Suites,
    signatures: &signatures::Ssh,
    logs: &logs::Logs,
};

/// The commands of extensions.
pub const COMMANDS: &[Row] = &[
    row::<graph::GraphArgs>("graph", (Describe, 4), |_, args| with(args, graph::graph)),
    row::<audit::AuditArgs>("audit", (Lock, 4), |_, args| with(args, audit::audit)),
    row::<sign::SignArgs>("sign", (Heading::Run, 6), |_, args| with(args, sign::sign)),
    row::<bench::BenchArgs>("bench", (Machine, 2), torch_program::run),
    row::<selftest::SelftestArgs>("selftest", (Machine, 1), torch_program::run),
    row::<forward::ForwardArgs>("forward", (UseAModel, 3), torch_program::run),
    row::<generate::GenerateArgs>("generate", (UseAModel, 1), torch_program::run),
    row::<serve::ServeArgs>("serve", (UseAModel, 2), serve::run),
    row::<answer::AnswerArgs>("answer", (Conclude, 4), torch_program::run),
    row::<eval::EvalArgs>("eval", (Conclude, 3), eval::run),
    Row {
        arguments: |command| with_classes::<import::ImportArgs>(command, false),
        ..row::<import::ImportArgs>("import", (Exchange, 1), |_, args| with(args, import::import))
    },
    Row {
        arguments: |command| with_classes::<export::ExportArgs>(command, true),
        ..row::<export::ExportArgs>("export", (Exchange, 2), |_, args| with(args, export::export))
    },
    row::<lsp::LspArgs>("lsp", (Machine, 3), |_, args| with(args, lsp::lsp)),
];

/// Adds the arguments of a command whose long help lists the classes of Hugging Face: all, or those that `transformers`
/// has.
fn with_classes<A: Args>(command: Command, of_transformers: bool) -> Command {
    let command = A::augment_args(command);
    let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    command.after_long_help(help.replace("{classes}", &class_names(of_transformers)))
}
