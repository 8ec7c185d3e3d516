//! `canonc man`: manual pages, one for the program and one for each command.

use std::path::{Path, PathBuf};

use clap::{Args, Command};

use crate::command::Program;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::help::visible;
use crate::out::{self, OutputKind};
use crate::output;

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

pub fn man(program: &Program, args: &ManArgs) -> Outcome {
    let dir = args.dir.as_path();
    out::container(dir)?;
    disk::create_folders(dir).map_err(|error| Failure::cannot_write(dir, &error))?;
    let mut command = visible(&program.command_line());
    command.build();
    let written = pages(&command, dir)?;
    output::note(&format!("{} in {}", output::counted(written, "page"), shown(dir)));
    Ok(Exit::Fine)
}

fn pages(command: &Command, dir: &Path) -> Result<usize, Failure> {
    let page = clap_mangen::Man::new(command.clone());
    let path = dir.join(page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text).map_err(|error| Failure::cannot_write(&path, &error))?;
    out::put(&path, OutputKind::Manual, &text)?;
    let inner = command.get_subcommands().map(|inner| pages(inner, dir));
    inner.sum::<Result<usize, Failure>>().map(|inner| inner + 1)
}
