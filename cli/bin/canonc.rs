//! `canonc`: everything except tensors. It links no libtorch; a command that needs it continues as `canonc-torch`.

use std::process::ExitCode;

use cli::command::Program;
use cli::commands::COMMANDS;

#[cfg(feature = "ext")]
const PROGRAM: Program = Program {
    commands: &[COMMANDS, commands::COMMANDS],
    extensions: commands::EXTENSIONS,
    tensors: &[],
};
#[cfg(not(feature = "ext"))]
const PROGRAM: Program =
    Program { commands: &[COMMANDS], extensions: cli::extensions::Extensions::NONE, tensors: &[] };

fn main() -> ExitCode {
    cli::main(PROGRAM).into()
}
