//! `canonc completions`: shell scripts that complete commands, options and file names.

use clap::Args;

use crate::command::Program;
use crate::fail::{Exit, Outcome};
use crate::help::visible;
use crate::output;

/// Print shell completions
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc completions bash > ~/.local/share/bash-completion/completions/canonc
  canonc completions zsh  > \"${fpath[1]}/_canonc\"
  canonc completions fish > ~/.config/fish/completions/canonc.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

pub fn completions(program: &Program, args: &CompletionsArgs) -> Outcome {
    let mut script = Vec::new();
    let mut command = visible(&program.command_line());
    clap_complete::generate(args.shell, &mut command, "canonc", &mut script);
    output::styled(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Fine)
}
