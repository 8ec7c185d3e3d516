//! `canonc`: everything except tensors. It links no libtorch; a command that needs it continues as `canonc-torch`.

use std::process::ExitCode;

use canonc::command::Program;
use canonc::commands::COMMANDS;

fn main() -> ExitCode {
    canonc::main(Program { commands: &[COMMANDS], tensors: &[] }).into()
}
