//! `canonc`: everything except tensors. It links no libtorch; a command that needs it continues as `canonc-torch`.

use std::process::ExitCode;

fn main() -> ExitCode {
    canonc::main(&canonc::sibling::Sibling).into()
}
