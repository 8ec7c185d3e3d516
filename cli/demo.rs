//! `canonc demo`: the whole way once, by the commands anyone would type.
//!
//! In: this repository's demo archs and recipes. Out: locks, a proof, runs, a table and a page with
//! curves. Must stay true: every step is a printed command that does the same when typed by hand;
//! interrupting and repeating goes on where it stopped; it never does anything that the commands do
//! not.

use std::path::Path;
use std::process::Command;

use crate::fail::{Exit, Failure, Outcome};
use crate::output;
use crate::run::stop_on_signals;

const BASE: &str = "llama_demo";
const TREATED: &str = "llamacanon_demo";

pub(crate) fn demo() -> Outcome {
    let needed = format!("arch/{BASE}.canon");
    if !Path::new(&needed).is_file() {
        return Err(Failure::bad_input(format!("there is no `{needed}` here"))
            .help("run the demo in the folder of the canonc repository, or `canonc new DIR` for one of your own"));
    }
    let lock = |name: &str| format!("lockfiles/{name}.lock");
    let arch = |name: &str| format!("arch/{name}.canon");
    let steps: [&[&str]; 4] = [
        &["build", &arch(BASE), &arch(TREATED), "recipes/demo.toml"],
        &["diff", &lock(BASE), &lock(TREATED), "--treatment", "canon"],
        &["show", &arch(TREATED), "--seq-len", "128"],
        &["compare", &lock("demo"), "--out", "demo/report.html"],
    ];
    // The commands take signals themselves; this process waits for them.
    let _stop = stop_on_signals()?;
    for step in steps {
        output::note(&format!("\n$ canonc {}", step.join(" ")));
        let program = std::env::current_exe()
            .map_err(|error| Failure::machine(format!("canonc does not find itself: {error}")))?;
        let status = Command::new(program).args(step).status().map_err(|error| {
            Failure::machine(format!("`canonc {}` does not start: {error}", step.join(" ")))
        })?;
        match status.code() {
            Some(0) => {}
            Some(75) => {
                output::note("interrupted with a good checkpoint: `make demo` goes on from there");
                return Ok(Exit::Interrupted);
            }
            Some(1) => return Err(Failure::shown(Exit::Finding)),
            Some(2) => return Err(Failure::shown(Exit::BadInput)),
            Some(_) | None => return Err(Failure::shown(Exit::Machine)),
        }
    }
    Ok(Exit::Fine)
}
