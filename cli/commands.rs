//! The commands of the core. A command is a file here and a row in the list; what it computes with tensors is a file of
//! `cli/tensors`.

pub mod bind;
pub mod build;
pub mod check;
pub mod compare;
pub mod completions;
pub mod data;
pub mod demo;
pub mod diff;
pub mod doctor;
pub mod fmt;
pub mod help;
pub mod man;
pub mod merge;
pub mod new;
pub mod plan;
pub mod playground;
pub mod record;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod scaling;
pub mod show;
pub mod verify;

use clap::Args;

use crate::command::{Heading, Row, Run, with};
use crate::torch_program;

/// A row for a struct of arguments.
pub const fn row<A: Args>(name: &'static str, listed: (Heading, u8), run: Run) -> Row {
    Row { name, listed: Some(listed), arguments: A::augment_args, run }
}

use Heading::{Conclude, Describe, Lock, Machine, Start};

/// The commands, in the order of completions and manual pages.
pub const COMMANDS: &[Row] = &[
    row::<new::NewArgs>("new", (Start, 1), |_, args| with(args, new::new)),
    row::<check::CheckArgs>("check", (Describe, 1), |_, args| with(args, check::check)),
    row::<fmt::FmtArgs>("fmt", (Describe, 2), |_, args| with(args, fmt::fmt)),
    row::<show::ShowArgs>("show", (Describe, 3), |_, args| with(args, show::show)),
    row::<build::BuildArgs>("build", (Lock, 1), |_, args| with(args, build::build)),
    row::<bind::BindArgs>("bind", (Lock, 2), |_, args| with(args, bind::bind)),
    row::<merge::MergeArgs>("merge", (Lock, 5), |_, args| with(args, merge::merge)),
    row::<diff::DiffArgs>("diff", (Lock, 3), |_, args| with(args, diff::diff)),
    row::<run::RunArgs>("run", (Heading::Run, 1), torch_program::run),
    row::<verify::VerifyArgs>("verify", (Heading::Run, 5), verify::run),
    row::<reproduce::ReproduceArgs>("reproduce", (Heading::Run, 4), torch_program::run),
    row::<record::RecordArgs>("record", (Heading::Run, 7), torch_program::run),
    row::<compare::CompareArgs>("compare", (Heading::Run, 2), compare::run),
    row::<plan::PlanArgs>("plan", (Describe, 5), |_, args| with(args, plan::plan)),
    row::<scaling::ScalingArgs>("scaling", (Conclude, 2), |_, args| with(args, scaling::scaling)),
    row::<demo::DemoArgs>("demo", (Start, 2), |_, args| with(args, demo::demo)),
    row::<playground::PlaygroundArgs>("playground", (Start, 3), |_, args| {
        with(args, playground::playground)
    }),
    row::<report::ReportArgs>("report", (Conclude, 1), |_, args| with(args, report::report)),
    Row {
        name: "data",
        listed: Some((Heading::Run, 3)),
        arguments: data::arguments,
        run: data::run,
    },
    row::<doctor::DoctorArgs>("doctor", (Start, 4), doctor::run),
    row::<completions::CompletionsArgs>("completions", (Machine, 4), |program, args| {
        with(args, |args| completions::completions(program, args))
    }),
    row::<man::ManArgs>("man", (Machine, 5), |program, args| {
        with(args, |args| man::man(program, args))
    }),
    row::<help::HelpArgs>("help", (Start, 5), |program, args| {
        with(args, |args| help::help(program, args))
    }),
];
