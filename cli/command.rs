//! A command as a row: its name, its arguments and the function that runs it.

use std::ffi::OsString;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};

use crate::extensions::Extensions;
use crate::fail::{Failure, Outcome};
use crate::output::When;

/// Compiles language-model architectures, locks experiments, and proves how two of them differ
#[derive(Debug, Parser)]
#[command(
    name = "canonc",
    version,
    disable_help_subcommand = true,
    help_template = "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}",
    after_help = "\
Examples:
  canonc new demo                                  a runnable architecture and recipe in ./demo
  canonc check                                     every .canon file under arch/
  canonc show arch/llamacanon_1B.canon             parameters, FLOPs, memory, state
  canonc graph arch/llamacanon_1B.canon --format svg > llamacanon.svg
  canonc build arch/llamacanon_1B.canon            writes lockfiles/llamacanon_1B.lock

Exit codes: 0 success, 1 a finding (drift, confound, unformatted file), 2 bad input or usage,
3 this machine cannot run it, 75 interrupted with a valid checkpoint."
)]
pub(crate) struct GlobalOptions {
    /// When to colour terminal output; `auto` respects NO_COLOR
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    pub(crate) color: When,
    /// Print only errors and results
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Also print which files and settings are used
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
}

/// The headings of `canonc --help`: commands in the groups in which a person meets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Heading {
    Start,
    Describe,
    Lock,
    Run,
    Conclude,
    UseAModel,
    Exchange,
    Machine,
}

impl Heading {
    pub fn text(self) -> &'static str {
        match self {
            Heading::Start => "Start",
            Heading::Describe => "Describe",
            Heading::Lock => "Lock",
            Heading::Run => "Run",
            Heading::Conclude => "Conclude",
            Heading::UseAModel => "Use a model",
            Heading::Exchange => "Exchange",
            Heading::Machine => "Machine",
        }
    }
}

/// Runs a command with the arguments that clap has read.
pub type Run = fn(&Program, &ArgMatches) -> Outcome;

/// A command.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub name: &'static str,
    /// Its heading in `canonc --help`, and its place there; `None` for a command of a command.
    pub listed: Option<(Heading, u8)>,
    /// Adds its arguments and its help: `augment_args` of a struct with `#[derive(Args)]`.
    pub arguments: fn(clap::Command) -> clap::Command,
    pub run: Run,
}

/// What a program can do. Several programs share the commands.
#[derive(Clone, Copy)]
pub struct Program {
    /// Lists of commands: those of the core, and those of extensions.
    pub commands: &'static [&'static [Row]],
    /// What extensions add to the commands of the core.
    pub extensions: Extensions,
    /// Commands that this program runs in another way, by name: with tensors.
    pub tensors: &'static [&'static [(&'static str, Run)]],
}

impl Program {
    /// All commands, those of the core first.
    pub fn rows(&self) -> impl Iterator<Item = &'static Row> {
        self.commands.iter().copied().flatten()
    }

    /// The command line that clap parses.
    pub fn command_line(&self) -> clap::Command {
        let command = GlobalOptions::command()
            .subcommand_required(true)
            .arg_required_else_help(true)
            // An unknown command is answered in this program's words.
            .external_subcommand_value_parser(clap::value_parser!(OsString));
        with_commands(command, self.rows())
    }

    /// The function and the arguments of the command that clap has read, or the word that is no command.
    pub(crate) fn find<'m>(
        &self,
        matches: &'m ArgMatches,
    ) -> Result<(Run, &'m ArgMatches), &'m str> {
        let (name, arguments) = matches.subcommand().ok_or("")?;
        // Words that are no command have the id "".
        let is_command = arguments.ids().all(|id| !id.as_str().is_empty());
        let row = self.rows().find(|row| row.name == name && is_command).ok_or(name)?;
        let mut tensors = self.tensors.iter().copied().flatten();
        let with_tensors = tensors.find(|(command, _)| *command == name);
        Ok((with_tensors.map_or(row.run, |(_, run)| *run), arguments))
    }
}

/// Adds commands to a command.
pub(crate) fn with_commands<'r>(
    command: clap::Command,
    rows: impl Iterator<Item = &'r Row>,
) -> clap::Command {
    rows.fold(command, |command, row| {
        command.subcommand((row.arguments)(clap::Command::new(row.name)))
    })
}

/// Passes a command's arguments to its function.
pub fn with<A: FromArgMatches>(matches: &ArgMatches, run: impl FnOnce(&A) -> Outcome) -> Outcome {
    let arguments = A::from_arg_matches(matches);
    run(&arguments.map_err(|error| Failure::bad_input(error.to_string()))?)
}
