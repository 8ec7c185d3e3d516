//! `canonc completions`: shell scripts that complete commands, options and file names.
//!
//! In: a shell's name. Out: its script on standard output. Must stay true: the script is generated from the
//! definitions that parse argv, so the two cannot disagree.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::fail::{Exit, Outcome};
use crate::help::visible;
use crate::output;

pub fn completions(args: &CompletionsArgs) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(&Cli::command()), "canonc", &mut script);
    output::styled(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Fine)
}
