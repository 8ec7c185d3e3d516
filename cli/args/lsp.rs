//! The arguments of `canonc lsp`.
//!
//! In: argv, as clap reads it. Out: plain values. Must stay true: the flags that editors pass are accepted.

use clap::Args;

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
