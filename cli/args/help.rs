//! Arguments of the commands that describe canonc itself.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// Write manual pages: one for canonc and one for each command
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc man ~/.local/share/man/man1
  canonc man pages && man pages/canonc-run.1")]
pub struct ManArgs {
    /// Folder for the pages
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

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
