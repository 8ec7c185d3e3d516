//! `canonc lsp`: the language server, on standard input and output.

use clap::Args;

use cli::fail::{Exit, Failure, Outcome};

/// Serve an editor: diagnostics, hover, definitions, completion, renaming, formatting, colours
#[derive(Args, Debug)]
#[command(after_help = "\
An editor starts this command and talks to it on standard input and output, by the Language Server
Protocol. It serves .canon files, recipes (.toml) and locks. docs/editors.md has the settings for
VS Code (`make vscode` installs its extension), Neovim, Helix and Emacs.

Examples:
  canonc lsp

Exit codes: 0 the editor ended it, 1 the editor went away.")]
pub struct LspArgs {
    /// Accepted because many editors pass it; there is no other way
    #[arg(long)]
    pub stdio: bool,
}

pub fn lsp(args: &LspArgs) -> Outcome {
    // Editors pass it, and there is no other way to talk to them.
    let LspArgs { stdio: _ } = args;
    match lsp::stdio() {
        Ok(lsp::Ended::Asked) => Ok(Exit::Fine),
        Ok(lsp::Ended::Abandoned) => Ok(Exit::Finding),
        Err(message) => Err(Failure::bad_input(message)
            .help("an editor starts this command: docs/editors.md has the settings")),
    }
}
