//! `canonc help`: the long help of a command.

use std::ffi::OsString;

use clap::Args;

use crate::command::Program;
use crate::fail::{Exit, Outcome};
use crate::{output, usage};

/// Print the help of a command
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc help run             the same as `canonc run --help`
  canonc help data prepare")]
pub struct HelpArgs {
    /// The command
    #[arg(value_name = "COMMAND")]
    pub words: Vec<OsString>,
}

pub fn help(program: &Program, args: &HelpArgs) -> Outcome {
    let mut command = crate::help::command(program);
    command.build();
    let mut path = String::from("canonc");
    for (depth, word) in args.words.iter().enumerate() {
        let inner = word.to_str().and_then(|word| command.find_subcommand(word)).cloned();
        let word = word.to_string_lossy();
        command = inner.ok_or_else(|| match depth {
            0 => usage::unknown_command(program, &word),
            _ => usage::unknown_inside(&command, &path, &word),
        })?;
        path = format!("{path} {word}");
    }
    let text = command.render_long_help();
    output::styled(&match output::coloured_data() {
        true => text.ansi().to_string(),
        false => text.to_string(),
    })?;
    Ok(Exit::Fine)
}
