//! `canonc`: everything but tensors. It links no libtorch; a command that needs it goes on as `canonc-torch`.

use std::process::ExitCode;

fn main() -> ExitCode {
    canonc::main(&canonc::sibling::Sibling)
}
