//! `canonc lsp`: the language server, on standard input and output.
//!
//! In: messages of a client. Out: answers; exit 0 after the client asked it to end, 1 if the client went away. Must stay
//! true: nothing else is written to standard output.

use crate::args::LspArgs;
use crate::fail::{Exit, Failure, Outcome};

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
